"""An episode's calls, answered from the cache where the mode allows and from the tools where not.

The session knows the state only as a chain of the state-changing calls so far.  A real state is
made when a call has to run: a copy of the latest one that is kept, or the first one, and then the
calls since are run on it (see `tools.world`).
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cacherl_jax.tool_cache.key import CallKey, first_state, fitted_key, next_state
from cacherl_jax.tool_cache.lookup import Found, Question, Seat, place
from cacherl_jax.tool_cache.recording import lasts
from cacherl_jax.tools.execute import TRANSIENT, answer_turn, by_name
from cacherl_jax.tools.observation import failure
from cacherl_jax.tools.tool import Call, ParseError, Result, Scope, Status, Tier, Tool
from cacherl_jax.tools.world import LASTING, World

if TYPE_CHECKING:
    from cacherl_jax.tool_cache.cache import ToolCache


class CachedSession:
    """Answers the calls of one attempt at a task."""

    def __init__(
        self, cache: 'ToolCache', seat: Seat, tools: Sequence[Tool], start: Callable[[], Any]
    ):
        self._cache, self._seat, self._tools = cache, seat, by_name(tools)
        self._world: World | None = World(start, cache.runner.attempt, cache.copies)
        self._state = first_state(seat.task)
        self._turn = 0
        # How often a call came to nothing in earlier turns: a later try is a call of its own.
        self._failed: Counter[CallKey] = Counter()

    def answer(self, calls: Sequence[Call | ParseError]) -> tuple[Result, ...]:
        """One result per call, in call order; never raises for a model's mistake."""
        if self._world is None:
            raise RuntimeError('this session is closed; open another')
        failed: set[CallKey] = set()

        def one(tool: Tool, fitted: dict[str, Any], number: int) -> Result:
            key = fitted_key(tool, fitted, self._state)
            result = self._answer(tool, fitted, key, number)
            if result.status in TRANSIENT:
                failed.add(key)
            return result

        results = answer_turn(calls, self._tools, self._cache.runner.settings, one)
        self._failed.update(failed)
        self._turn += 1
        return results

    def _answer(self, tool: Tool, fitted: dict[str, Any], key: CallKey, number: int) -> Result:
        cache, mode = self._cache, self._cache.settings.mode
        keeps = tool.scope is not Scope.NEVER and mode != 'live'
        draw = place(key, self._seat, cache.settings.draws_of(tool.name))
        found = None
        if keeps and mode != 'record':
            found = cache.look_up(Question(tool, fitted, key, self._seat))
        if found is not None:
            result = as_result(found)
            if tool.changes_state and result.status in LASTING:
                self._world.note(tool, fitted, result)
            draw = found.entry.draw
        elif mode == 'replay':
            result = missing()
        elif not keeps:
            result = cache.runner.run(tool, fitted, self._world)
        else:
            result = self._run_and_offer(tool, fitted, key, draw, number)
        if tool.changes_state and result.status in LASTING:
            self._state = next_state(key, draw)
            self._world.name(self._state)
        cache.count(result)
        return result

    def _run_and_offer(
        self, tool: Tool, fitted: dict[str, Any], key: CallKey, draw: int, number: int
    ) -> Result:
        def run() -> Result:
            return self._cache.runner.run(tool, fitted, self._world)

        order = (self._seat, self._turn, number)
        if self._cache.settings.mode == 'record':
            result, mine = run(), True
        else:
            result, mine = self._cache.flights.once((key, draw, self._failed[key]), run)
        if tool.changes_state and not mine and result.status in LASTING:
            self._world.note(tool, fitted, result)
        if lasts(tool, result):
            self._cache.offer(key, draw, result, order)
        return result

    def close(self) -> None:
        """Lets go of the state."""
        self._world = None


def as_result(found: Found) -> Result:
    """The recorded answer, marked with how it was found."""
    if found.tier is Tier.EXACT:
        return found.entry.result
    return dataclasses.replace(
        found.entry.result, tier=found.tier, similarity=min(found.similarity, 1.0)
    )


def missing() -> Result:
    """The answer in replay where none is recorded."""
    told = failure(Status.UNAVAILABLE, message='no recorded answer to this call')
    return dataclasses.replace(told, tier=Tier.MISS, similarity=0.0, provenance='')
