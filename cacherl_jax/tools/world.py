"""One session's state: made when needed, brought up to date by the state-changing calls so far.

Where an answer came from a cache the call did not run here.  It is noted, and run before the next
call that needs the state; where a copy of a later state is kept, that is gone on from.  A call that
ran out of time may still be at work on its state, so that state is left to it and another one is
made: a timed-out call has changed nothing.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from cacherl_jax.tools.observation import describe, failure, same_answer
from cacherl_jax.tools.tool import Result, Scope, Status, Tool, Unavailable

LASTING = frozenset({Status.OK, Status.TOOL_ERROR})  # the call ran to its end and left its mark
Attempt = Callable[[Tool, tuple, Mapping[str, Any], float], Result]


@dataclasses.dataclass(frozen=True)
class Forkable:
    """A `start` whose states can be copied: `fork(state)` shares nothing that a call can change."""

    start: Callable[[], Any]
    fork: Callable[[Any], Any]

    def __call__(self) -> Any:
        """A fresh state."""
        return self.start()


class Copies(Protocol):
    """Where copies of states are kept by name, and given out as copies."""

    def take(self, name: str) -> Any | None:
        """A state of one's own; None where none is kept."""

    def offer(self, name: str, state: Any, fork: Callable[[Any], Any]) -> None:
        """Keeps a copy, perhaps."""


class Change(NamedTuple):
    """A state-changing call, what it said, and the name of the state after it."""

    tool: Tool
    arguments: Mapping[str, Any]
    said: Result
    after: str = ''


class World:
    """The state that a task's session tools are handed."""

    def __init__(self, start: Callable[[], Any], attempt: Attempt, copies: Copies | None = None):
        self._start, self._attempt = start, attempt
        self._fork = getattr(start, 'fork', None)
        self._copies = copies if self._fork else None
        self._history: list[Change] = []
        self._applied: int | None = None  # how much of it the state has seen; None: no state
        self._state: Any = None

    def note(self, tool: Tool, arguments: Mapping[str, Any], said: Result) -> None:
        """A state-changing call was answered without running here."""
        self._history.append(Change(tool, arguments, said))

    def name(self, after: str) -> None:
        """What the state after the latest change is called, for others to go on from."""
        self._history[-1] = self._history[-1]._replace(after=after)
        if self._copies is not None and self._applied == len(self._history):
            self._copies.offer(after, self._state, self._fork)

    def run(self, tool: Tool, arguments: Mapping[str, Any], seconds: float) -> Result:
        """Runs a call once, on the state if it is a session tool."""
        if tool.scope is not Scope.SESSION:
            return self._attempt(tool, (), arguments, seconds)
        deadline = time.perf_counter() + seconds
        try:
            self._catch_up(deadline)
        except Unavailable as error:
            return failure(Status.UNAVAILABLE, message=describe(error))
        result = self._attempt(tool, (self._state,), arguments, deadline - time.perf_counter())
        if result.status is Status.TIMEOUT:
            self._applied = None
        elif tool.changes_state and result.status in LASTING:
            self._history.append(Change(tool, arguments, result))
            self._applied += 1
        return result

    def _catch_up(self, deadline: float) -> None:
        self._go_on_from_copy()
        if self._applied is None:
            self._state, self._applied = self._start(), 0
        for change in self._history[self._applied :]:
            left = deadline - time.perf_counter()
            again = self._attempt(change.tool, (self._state,), change.arguments, left)
            if not same_answer(change.said, again):
                # Whatever this state is, it is not the one that the answers so far were about.
                self._applied = None
                why = 'answers otherwise now' if again.status in LASTING else str(again.status)
                raise Unavailable(f'the state could not be rebuilt: {change.tool.name} {why}')
            self._applied += 1

    def _go_on_from_copy(self) -> None:
        """Takes the latest state that is kept, where it is later than the one at hand."""
        if self._copies is None:
            return
        for place in range(len(self._history), self._applied or 0, -1):
            state = self._copies.take(self._history[place - 1].after)
            if state is not None:
                self._state, self._applied = state, place
                return
