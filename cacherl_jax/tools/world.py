"""One session's state: made when needed, brought up to date by the state-changing calls so far.

Where an answer came from a cache the call did not run here.  It is noted, and run before the next
call that needs the state.  A call that ran out of time may still be at work on its state, so that
state is left to it and another one is made: a timed-out call has changed nothing.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from cacherl_jax.tools.observation import describe, failure
from cacherl_jax.tools.tool import Result, Scope, Status, Tool, Unavailable

LASTING = frozenset({Status.OK, Status.TOOL_ERROR})  # the call ran to its end and left its mark
Attempt = Callable[[Tool, tuple, Mapping[str, Any], float], Result]


class World:
    """The state that a task's session tools are handed."""

    def __init__(self, start: Callable[[], Any], attempt: Attempt):
        self._start, self._attempt = start, attempt
        self._history: list[tuple[Tool, Mapping[str, Any]]] = []
        self._applied: int | None = None  # how much of it the state has seen; None: no state
        self._state: Any = None

    def note(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """A state-changing call was answered without running here."""
        self._history.append((tool, arguments))

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
            self._history.append((tool, arguments))
            self._applied += 1
        return result

    def _catch_up(self, deadline: float) -> None:
        if self._applied is None:
            self._state, self._applied = self._start(), 0
        for tool, arguments in self._history[self._applied :]:
            left = deadline - time.perf_counter()
            result = self._attempt(tool, (self._state,), arguments, left)
            if result.status not in LASTING:
                self._applied = None
                raise Unavailable(f'the state could not be rebuilt: {result.status} in {tool.name}')
            self._applied += 1
