"""Rejection sampling: what a policy got right, as further examples.  Each refusal is counted.

A sample is right when its task's own checker says so.  What is learned are the ids that were
sampled, never text that was encoded again.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from cacherl_jax.supervised.dataset import Arrays
from cacherl_jax.tasks.task import Episode, Task, Termination
from cacherl_jax.tools.tool import ParseError, Tier
from cacherl_jax.trajectory import Trajectory

Play = Callable[[Sequence[Task], int], tuple[Trajectory, Sequence[Episode]]]
Judge = Callable[[Episode], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RejectionSettings:
    """What is sampled, and what is taken."""

    samples: int = 0  # attempts at a task in a round; 0: no rejection sampling
    iterations: int = 1  # times the policy is sampled and then trained anew, from the start
    per_task: int = 2  # most taken of a task
    rounds: int = 1  # times a task is played that has not as many yet
    tasks_at_once: int = 16  # played together
    minimum_score: float = 0.99  # of the task's checker, which gives 0 to 1
    worst_tier: Tier = Tier.EXACT  # least trusted answer that a sample may rest on

    def __post_init__(self):
        if self.samples < 0:
            raise ValueError(f'samples must be 0 (none) or more, got {self.samples}')
        for name in ('iterations', 'per_task', 'rounds', 'tasks_at_once'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')
        if not 0 < self.minimum_score <= 1:
            raise ValueError(f'minimum_score must be in (0, 1], got {self.minimum_score}')
        if self.worst_tier not in tuple(Tier):
            raise ValueError(f'worst_tier must be one of {list(Tier)}, got {self.worst_tier}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accepted:
    """Samples that may be learned, in the order of their tasks' playing."""

    arrays: list[Arrays]  # as of demonstrations, and logprob f32 [token] at sampling time
    episodes: list[Episode]
    counts: Mapping[str, int]  # sampled = accepted + the sum of refused/...; tasks, tasks_accepted

    def report(self) -> str:
        """How many were taken, and why the others were not."""
        told = self.counts
        refused = ', '.join(
            f'{told[name]} {name.removeprefix("refused/")}' for name in sorted(told) if '/' in name
        )
        return (
            f'rejection sampling: {told["accepted"]} of {told["sampled"]} samples accepted, '
            f'of {told["tasks_accepted"]} of {told["tasks"]} tasks'
        ) + (f'; refused: {refused}' if refused else '')

    def combined(self, demonstrations: Sequence[Arrays]) -> list[Arrays]:
        """The demonstrations, then what was accepted."""
        return [*demonstrations, *self.arrays]


def identity(row: Arrays) -> bytes:
    """Equal for rows of the same ids."""
    return np.asarray(row['tokens'], '<i4').tobytes()


def reject(
    play: Play,
    tasks: Sequence[Task],
    settings: RejectionSettings,
    *,
    demonstrations: Sequence[Arrays] = (),
    judges: Mapping[str, Judge] | None = None,
    tell: Callable[[int], None] = lambda accepted: None,
) -> Accepted:
    """Play training tasks and keep what is right, at most `per_task` of each, none of it twice.

    `play(tasks, round)` gives rows on the host, and their episodes; another round must give other
    samples.  Rows equal to a demonstration are refused as duplicates.  Each of `judges` must say
    yes as well.  `tell` hears after each playing how many have been accepted.
    Raises ValueError for a task that is not of the training split.
    """
    others = sorted(task.id for task in tasks if task.split != 'train')
    if others:
        raise ValueError(f'only training tasks may be learned, got {others[:3]}')
    seen = {identity(row) for row in demonstrations}
    taken: collections.Counter[str] = collections.Counter()
    counts = collections.Counter(tasks=len({task.id for task in tasks}), sampled=0, accepted=0)
    arrays, episodes = [], []
    for number in range(settings.rounds):
        open_tasks = [task for task in tasks if taken[task.id] < settings.per_task]
        for start in range(0, len(open_tasks), settings.tasks_at_once):
            rows, played = play(open_tasks[start : start + settings.tasks_at_once], number)
            for row, episode in zip(_cut(rows, len(played)), played, strict=True):
                reason = _refusal(episode, settings, judges or {}) or _surplus(
                    row, episode, seen, taken, settings
                )
                counts['sampled'] += 1
                counts[f'refused/{reason}' if reason else 'accepted'] += 1
                if not reason:
                    seen.add(identity(row))
                    taken[episode.task.id] += 1
                    arrays.append(row)
                    episodes.append(episode)
            tell(len(arrays))
    counts['tasks_accepted'] = len(+taken)
    return Accepted(arrays=arrays, episodes=episodes, counts=dict(counts))


def _cut(rows: Trajectory, count: int) -> Iterator[Arrays]:
    """The arrays of the first `count` rows without their padding."""
    for place, length in enumerate(np.asarray(rows.length)[:count]):
        yield {
            name: np.array(getattr(rows, name)[place][:length])
            for name in ('tokens', 'sampled', 'logprob', 'turn')
        }


def _refusal(episode: Episode, settings: RejectionSettings, judges: Mapping[str, Judge]) -> str:
    """Why nobody should learn from the episode; empty where it is right."""
    if episode.termination is Termination.TOOL_INFRASTRUCTURE:
        return 'infrastructure'
    if episode.termination is not Termination.ANSWERED:
        return f'ended by {episode.termination}'
    if any(isinstance(call, ParseError) for turn in episode.turns for call in turn.calls):
        return 'broken call'
    tiers = [result.tier for turn in episode.turns for result in turn.results]
    if max(tiers, default=Tier.LIVE) > settings.worst_tier:
        return 'answers not trusted'
    score = episode.task.score(episode)
    if np.isnan(score):
        return 'not scored'
    if score < settings.minimum_score:
        return 'wrong answer'
    against = sorted(name for name, judge in judges.items() if not judge(episode))
    return f'judge {against[0]}' if against else ''


def _surplus(row, episode, seen, taken, settings) -> str:
    """Why a right episode is one too many."""
    if identity(row) in seen:
        return 'duplicate'
    return 'enough of its task' if taken[episode.task.id] >= settings.per_task else ''
