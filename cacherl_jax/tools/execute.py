"""Runs the calls of a turn: checked, in time, in order; whatever goes wrong is an observation.

Calls and a task's tools go in, one result per call comes out in call order.  The sessions made here
always run the tool; `tool_cache` makes sessions that look first.  Neither knows a task or a policy.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tenacity

from cacherl_jax.tools.arguments import fit, problem
from cacherl_jax.tools.attempt import Attempts, out_of_time
from cacherl_jax.tools.lanes import in_lanes
from cacherl_jax.tools.observation import cut, failure
from cacherl_jax.tools.tool import Call, ParseError, Result, Scope, Status, Tool
from cacherl_jax.tools.world import World

TRANSIENT = frozenset({Status.TIMEOUT, Status.UNAVAILABLE})  # may be different the next time


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecuteSettings:
    """How long, how often and how much."""

    time_limit_seconds: float = 30.0  # most one attempt may take; a tool's own limit may be lower
    budget_seconds: float = 30.0  # most one call may take: all attempts and the waits between them
    retries: int = 0  # further attempts after a time-out or an `unavailable`
    backoff_seconds: float = 0.1  # wait before the first retry; doubles with each
    calls_per_turn: int = 8  # calls beyond these are answered `over_budget`
    result_characters: int = 2000  # longer results are cut, and say so
    workers: int = 32  # functions that run at the same time, over all sessions

    def __post_init__(self):
        for name in ('time_limit_seconds', 'budget_seconds'):
            if not getattr(self, name) > 0:
                raise ValueError(f'{name} must be above 0, got {getattr(self, name)}')
        for name, least in (('calls_per_turn', 1), ('workers', 1), ('result_characters', 100)):
            if getattr(self, name) < least:
                raise ValueError(f'{name} must be at least {least}, got {getattr(self, name)}')
        if self.retries < 0 or self.backoff_seconds < 0:
            raise ValueError(
                'retries and backoff_seconds must not be negative, '
                f'got {self.retries} and {self.backoff_seconds}'
            )


def limits_text(settings: ExecuteSettings) -> str:
    """What the policy should be told beforehand."""
    return (
        f'At most {settings.calls_per_turn} tool calls a turn. '
        f'Results are cut after {settings.result_characters} characters.'
    )


class Runner:
    """Runs single calls within the limits and counts the attempts.  Shared by all sessions."""

    def __init__(self, settings: ExecuteSettings):
        self.settings = settings
        self.live_calls = 0  # attempts to run a function, retries and rebuilt states included
        self._attempts = Attempts(settings.workers)
        self._lock = threading.Lock()

    def attempt(self, tool: Tool, state: tuple, arguments: Mapping, left_seconds: float) -> Result:
        """One attempt, within every limit that applies."""
        with self._lock:
            self.live_calls += 1
        limits = (tool.time_limit_seconds, self.settings.time_limit_seconds, left_seconds)
        # Fitted again because a function may have changed what an earlier attempt handed to it.
        return self._attempts.run(tool.function, state, fit(tool, arguments), min(limits))

    def run(self, tool: Tool, arguments: Mapping[str, Any], world: World) -> Result:
        """One call with its retries, within one budget."""
        started, settings = time.perf_counter(), self.settings

        def once() -> Result:
            left = settings.budget_seconds - (time.perf_counter() - started)
            if left <= 0:
                return out_of_time(settings.budget_seconds)
            return world.run(tool, arguments, left)

        retry = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(1 + settings.retries)
            | tenacity.stop_before_delay(settings.budget_seconds),
            wait=tenacity.wait_exponential(multiplier=settings.backoff_seconds),
            retry=tenacity.retry_if_result(lambda result: result.status in TRANSIENT),
            retry_error_callback=lambda state: state.outcome.result(),
        )
        return dataclasses.replace(retry(once), seconds=time.perf_counter() - started)


def by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools of a task; two of one name are our mistake."""
    named = {tool.name: tool for tool in tools}
    if len(named) < len(tools):
        raise ValueError(f'tools must differ in name, got {[tool.name for tool in tools]}')
    return named


def screen(call: Call | ParseError, tools: Mapping[str, Tool]) -> Result | None:
    """The answer to a call that must not run; None if it may."""
    if isinstance(call, ParseError):
        return failure(Status.PARSE_ERROR, reason=call.reason)
    if not isinstance(call.name, str) or call.name not in tools:
        return failure(Status.UNKNOWN_TOOL, name=str(call.name)[:80], allowed=sorted(tools))
    wrong = problem(tools[call.name], call.arguments)
    return failure(Status.BAD_ARGUMENTS, **wrong) if wrong else None


Answer = Callable[[Tool, dict[str, Any], int], Result]  # tool, fitted arguments, place in the turn


def answer_turn(
    calls: Sequence[Call | ParseError],
    tools: Mapping[str, Tool],
    settings: ExecuteSettings,
    answer: Answer,
) -> tuple[Result, ...]:
    """One result per call, in call order.  Only calls that see the state wait for each other."""
    results: list[Result | None] = [screen(call, tools) for call in calls]
    for place in range(settings.calls_per_turn, len(calls)):
        results[place] = failure(Status.OVER_BUDGET, allowed_calls=settings.calls_per_turn)
    lanes: dict[Any, list[int]] = {}
    for place, call in enumerate(calls):
        if results[place] is None:
            sees_state = tools[call.name].scope is Scope.SESSION
            lanes.setdefault('state' if sees_state else place, []).append(place)

    def answer_lane(places: Sequence[int]) -> None:
        for place in places:
            tool = tools[calls[place].name]
            results[place] = answer(tool, fit(tool, calls[place].arguments), place)

    in_lanes(answer_lane, list(lanes.values()))
    return tuple(cut(result, settings.result_characters) for result in results)


class LiveSession:
    """Answers an episode's calls by running them."""

    def __init__(self, runner: Runner, tools: Sequence[Tool], start: Callable[[], Any]):
        self._runner, self._tools = runner, by_name(tools)
        self._world: World | None = World(start, runner.attempt)

    def answer(self, calls: Sequence[Call | ParseError]) -> tuple[Result, ...]:
        """One result per call, in call order; never raises for a model's mistake."""
        if self._world is None:
            raise RuntimeError('this session is closed; open another')
        return answer_turn(calls, self._tools, self._runner.settings, self._run)

    def _run(self, tool: Tool, arguments: dict[str, Any], place: int) -> Result:
        return self._runner.run(tool, arguments, self._world)

    def close(self) -> None:
        """Lets go of the state."""
        self._world = None


class LiveSessions:
    """Opens live sessions and counts what they run."""

    def __init__(self, settings: ExecuteSettings):
        self._runner = Runner(settings)

    @property
    def live_calls(self) -> int:
        """Attempts to run a function so far."""
        return self._runner.live_calls

    def open_session(
        self, task_id: str, tools: Sequence[Tool], start: Callable[[], Any], sample: int = 0
    ) -> LiveSession:
        """A session for one episode, with a state of its own."""
        return LiveSession(self._runner, tools, start)


def live_sessions(settings: ExecuteSettings | None = None) -> LiveSessions:
    """Sessions without a cache."""
    return LiveSessions(settings or ExecuteSettings())
