"""One recorded answer."""

import dataclasses
import json

from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tools.tool import Result, Status, Tier

PROVENANCES = ('live', 'teacher', 'imported', 'simulated')


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The answer to a call, and where it came from."""

    key: CallKey
    draw: int  # number among the answers to this call
    result: Result  # as the exact tier gives it
    task: str  # id of the task that recorded it
    gold: frozenset[str]  # ids of the tasks whose demonstrations recorded it
    recorded: float  # Unix seconds; for people, decides nothing
    hits: int = 0  # times it answered, when last read from the store
    seconds: float = 0.0  # that the call took when it ran: what a hit saves

    @property
    def source(self) -> str:
        """The name that results give for this entry."""
        return self.result.source

    @property
    def content(self) -> str:
        """All that decides an answer, as one line."""
        said = [self.result.status, self.result.text, self.result.provenance]
        return json.dumps([*self.key, self.draw, *said, self.task, sorted(self.gold)])


def make_entry(
    key: CallKey, draw: int, result: Result, *, task: str, recorded: float, gold: bool = False
) -> Entry:
    """The entry for a result that a live call gave."""
    if result.provenance not in PROVENANCES:
        raise ValueError(f'provenance must be one of {PROVENANCES}, got {result.provenance!r}')
    exact = exact_result(source_of(key, draw), result.status, result.text, result.provenance)
    tasks = frozenset([task] if gold else [])
    return Entry(key, draw, exact, task, tasks, recorded, seconds=result.seconds)


def source_of(key: CallKey, draw: int) -> str:
    """The name of an entry."""
    return f'{key.digest}/{draw}'


def exact_result(source: str, status: Status, text: str, provenance: str) -> Result:
    """What the exact tier answers."""
    return Result(status=status, text=text, tier=Tier.EXACT, source=source, provenance=provenance)
