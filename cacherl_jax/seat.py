"""An episode that is being played: its limits, what the host remembers of it, when it must end."""

import dataclasses

from cacherl_jax.tasks.task import Task, Termination, Turn
from cacherl_jax.tools.tool import ParseError, Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How an episode goes, apart from its tokens."""

    samples: int = 8  # episodes of one task that are compared: a group
    # Of the samples of a group in turn, in place of sampling.temperature; none: all draw alike.
    temperatures: tuple[float, ...] = ()
    max_turns: int = 10  # assistant messages
    max_parse_failures: int = 2  # turns in a row in which nothing meant as a call could be read
    max_timeouts: int = 2  # turns in a row in which every call timed out: our trouble
    tool_workers: int = 8  # sessions answered side by side
    overlap: bool = False  # one half's tools run while the other half writes: for slow tools

    def __post_init__(self):
        for name in ('samples', 'max_turns', 'max_parse_failures', 'max_timeouts', 'tool_workers'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')
        if any(temperature <= 0 for temperature in self.temperatures):
            raise ValueError(f'temperatures must be above 0, got {self.temperatures}')


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


def past_a_limit(seat: Seat, turn: Turn, settings: RolloutSettings) -> Termination | None:
    """Which limit ends the episode after this turn; failures in a row count."""
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
