"""An episode in a slot: what the host remembers of it between segments, and when it must end."""

import dataclasses
from typing import Any

from cacherl_jax.tasks.task import Task, Termination, Turn
from cacherl_jax.tools.tool import ParseError, Status


@dataclasses.dataclass
class Seat:
    """One episode that is being played."""

    task: Task
    sample: int
    row: int  # where its trajectory goes
    session: object
    prompt: int  # tokens of its prompt
    length: int  # tokens written when its current turn began, the prompt's too
    ids: list[int] = dataclasses.field(default_factory=list)  # sampled in this turn
    turns: list[Turn] = dataclasses.field(default_factory=list)
    parse_failures: int = 0
    timeouts: int = 0
    answers: int = 0


def past_a_limit(seat: Seat, turn: Turn, settings: Any) -> Termination | None:
    """Which limit of RolloutSettings ends the episode after this turn; failures in a row count."""
    broken = bool(turn.calls) and all(isinstance(call, ParseError) for call in turn.calls)
    late = bool(turn.results) and all(r.status is Status.TIMEOUT for r in turn.results)
    seat.parse_failures = seat.parse_failures + 1 if broken else 0
    seat.timeouts = seat.timeouts + 1 if late else 0
    if seat.parse_failures >= settings.max_parse_failures:
        return Termination.PARSE_FAILURES
    if seat.timeouts >= settings.max_timeouts:
        return Termination.TOOL_INFRASTRUCTURE
    if len(seat.turns) + 1 >= settings.max_turns:
        return Termination.MAX_TURNS
    return None
