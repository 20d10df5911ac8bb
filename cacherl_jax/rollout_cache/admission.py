"""Which episodes may be kept.  A record and what judges say of its episode in, a verdict out.

Every refusal has a reason and is counted.  Where judges disagree, or none has anything to say, the
record waits in quarantine for a person; nothing that was refused or waits is ever used.
"""

import collections
import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Mapping

from cacherl_jax.rollout_cache.record import Record, Source
from cacherl_jax.tasks.task import Episode, Termination
from cacherl_jax.tools.tool import Tier

Flag = Callable[[Episode], bool]
Judge = Callable[[Episode], bool | None]  # None: nothing to say


class Outcome(enum.StrEnum):
    """What becomes of a record."""

    ADMITTED = 'admitted'
    REFUSED = 'refused'
    QUARANTINED = 'quarantined'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome, a reason to count by, and what exactly was found."""

    outcome: Outcome
    reason: str
    detail: str = ''
    record: Record | None = None  # as admitted or waiting; None where refused


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdmissionSettings:
    """What an episode must show."""

    minimum_return: float = 0.5  # under the weights of its making
    worst_tier: Tier = Tier.EXACT  # least trusted answer it may rest on
    failures_fraction: float = 0.0  # most of the admitted that may be instructive failures
    maximum_waiting: int = 1000  # records in the quarantine

    def __post_init__(self):
        if not math.isfinite(self.minimum_return):
            raise ValueError(f'minimum_return must be finite, got {self.minimum_return}')
        if self.worst_tier not in tuple(Tier):
            raise ValueError(f'worst_tier must be one of {list(Tier)}, got {self.worst_tier}')
        if not 0 <= self.failures_fraction < 1:
            raise ValueError(f'failures_fraction must be in [0, 1), got {self.failures_fraction}')
        if self.maximum_waiting < 0:
            raise ValueError(f'maximum_waiting must be 0 or more, got {self.maximum_waiting}')


class Door:
    """Decides one record after the other, and remembers what came in."""

    def __init__(
        self,
        settings: AdmissionSettings,
        judges: Mapping[str, Judge],
        flags: Mapping[str, Flag],
        instructive: Flag = lambda episode: False,
        decisive: Collection[str] = (),
    ):
        """`judges` must all say yes, `flags` (signs of gaming the reward) must all say no.

        `instructive` picks failures worth keeping for contrast.  `decisive` names judges whose no
        is no matter of doubt, so that the others' yes sends nothing to a person.
        """
        strangers = sorted(set(decisive) - set(judges))
        if strangers:
            raise ValueError(f'decisive may name judges only: {sorted(judges)}, got {strangers}')
        self.settings, self.judges, self.flags = settings, dict(judges), dict(flags)
        self.instructive, self.decisive = instructive, frozenset(decisive)
        self.seen: set[str] = set()
        self.counts: collections.Counter[str] = collections.Counter()
        self.waiting: dict[str, Record] = {}

    def consider(self, record: Record, episode: Episode) -> Verdict:
        """Admit, refuse or set aside; the verdict is counted under `outcome/reason`."""
        verdict = self._decide(record, episode)
        if verdict.outcome is not Outcome.REFUSED:
            self.seen.add(record.identity)
        if verdict.outcome is Outcome.QUARANTINED:
            self.waiting[record.identity] = verdict.record
        return self._count(verdict)

    def review(self, identity: str, approve: bool) -> Verdict:
        """A person's decision about a record that waits."""
        if identity not in self.waiting:
            raise KeyError(f'no record {identity!r} waits; {len(self.waiting)} do')
        record = self.waiting.pop(identity)
        if approve:
            return self._count(_admit(record, 'approved'))
        return self._count(_refuse('rejected', 'by review'))

    def settle(self, decisions: Mapping[str, bool]) -> list[Verdict]:
        """A person's decisions about whatever of them waits here, in a fixed order."""
        decided = sorted(decisions.keys() & self.waiting.keys())
        return [self.review(identity, decisions[identity]) for identity in decided]

    def metrics(self) -> dict[str, float]:
        """Counts so far, `rollout_cache/<outcome>/<reason>`."""
        counts = {f'rollout_cache/{name}': float(n) for name, n in sorted(self.counts.items())}
        return counts | {'rollout_cache/waiting': float(len(self.waiting))}

    def state(self) -> dict:
        """What a checkpoint keeps, beside the records that wait (see `waiting`)."""
        return {'seen': sorted(self.seen), 'counts': dict(self.counts)}

    def restore(self, state: dict, waiting: Mapping[str, Record]) -> None:
        """Go on where `state` was taken."""
        self.seen = set(state['seen'])
        self.counts = collections.Counter(state['counts'])
        self.waiting = dict(waiting)

    def _decide(self, record: Record, episode: Episode) -> Verdict:
        refusal = self._unfit(record) or self._flagged(episode)
        if refusal:
            return refusal
        heard = {name: judge(episode) for name, judge in self.judges.items()}
        said = {name: bool(yes) for name, yes in heard.items() if yes is not None}
        against = sorted(name for name, yes in said.items() if not yes)
        good = record.episode_return >= self.settings.minimum_return
        if good and said and not against:
            return _admit(record, 'good')
        if good and not said:
            return self._set_aside(record, 'no judge had anything to say')
        if good and len(against) < len(said) and self.decisive.isdisjoint(against):
            return self._set_aside(record, f'against: {", ".join(against)}')
        if self._room_for_failure() and self.instructive(episode):
            failure = dataclasses.replace(record, source=Source.FAILURE)
            return _admit(failure, 'failure')
        if good:
            return _refuse('judges', f'against: {", ".join(against)}')
        least = self.settings.minimum_return
        return _refuse('return', f'{record.episode_return} is below {least}')

    def _unfit(self, record: Record) -> Verdict | None:
        """What no judge needs to be asked about."""
        if record.split != 'train':
            return _refuse('split', f'{record.task} is a {record.split} task')
        if record.termination is Termination.TOOL_INFRASTRUCTURE:
            return _refuse('infrastructure', 'spoiled by infrastructure')
        if not math.isfinite(record.episode_return):
            return _refuse('not_finite', f'the return is {record.episode_return}')
        if not record.sampled.any():
            return _refuse('empty', 'no token was sampled')
        if record.worst_tier > self.settings.worst_tier:
            allowed = self.settings.worst_tier.name
            return _refuse('tier', f'rests on {record.worst_tier.name}, allowed up to {allowed}')
        if record.identity in self.seen:
            return _refuse('duplicate', record.identity)
        return None

    def _flagged(self, episode: Episode) -> Verdict | None:
        raised = sorted(name for name, flag in self.flags.items() if flag(episode))
        return _refuse('flag', ', '.join(raised)) if raised else None

    def _set_aside(self, record: Record, detail: str) -> Verdict:
        if len(self.waiting) >= self.settings.maximum_waiting:
            return _refuse('quarantine_full', detail)
        noted = dataclasses.replace(record, note=detail)
        return Verdict(outcome=Outcome.QUARANTINED, reason='judges', detail=detail, record=noted)

    def _room_for_failure(self) -> bool:
        """Whether one more failure keeps their share among the admitted within its bound."""
        admitted = sum(n for name, n in self.counts.items() if name.startswith('admitted/'))
        failures = self.counts['admitted/failure']
        return failures + 1 <= self.settings.failures_fraction * (admitted + 1)

    def _count(self, verdict: Verdict) -> Verdict:
        self.counts[f'{verdict.outcome}/{verdict.reason}'] += 1
        return verdict


def _admit(record: Record, reason: str) -> Verdict:
    return Verdict(outcome=Outcome.ADMITTED, reason=reason, record=record)


def _refuse(reason: str, detail: str) -> Verdict:
    return Verdict(outcome=Outcome.REFUSED, reason=reason, detail=detail)
