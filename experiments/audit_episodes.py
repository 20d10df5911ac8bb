"""Episodes played live and from a cache, compared; hits among them executed again.

Two rollouts of one policy go in.  Where they part, why, and what that does to the reward comes out.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from cacherl_jax.evaluate.statistics import compare_paired, wilson_interval
from cacherl_jax.run.results import plain
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tool_cache.audit import HITS, Judged, Turns, reexecuted, sampled


class Parted(NamedTuple):
    """One attempt, played live and from the cache."""

    task: str
    sample: int
    turn: int | None  # the first in which the two differ, in words or results; None: nowhere
    cause: str  # tier of the first result that differs; 'sampling' if words differ before any
    reward: tuple[float, float]  # live, from the cache
    solved: tuple[bool, bool]


def turns_of(episode: Episode) -> Turns:
    """An episode as an audit sees it."""
    return [(turn.calls, turn.results) for turn in episode.turns]


def parted(live: Episode, cached: Episode) -> Parted:
    """Where two attempts part, and what came of each."""
    place, cause = None, ''
    for number, (one, other) in enumerate(zip(live.turns, cached.turns, strict=False)):
        pairs = zip(one.results, other.results, strict=False)
        differ = [b for a, b in pairs if (a.status, a.text) != (b.status, b.text)]
        if one.text != other.text or differ:
            cause = 'sampling' if one.text != other.text else differ[0].tier.name.lower()
            place = number
            break
    else:
        if len(live.turns) != len(cached.turns):
            place, cause = min(len(live.turns), len(cached.turns)), 'sampling'
    both = (live, cached)
    return Parted(
        live.task.id, live.sample, place, cause,
        tuple(each.task.score(each) for each in both),
        tuple(each.task.solved(each) for each in both),
    )  # fmt: skip


def side_by_side(live: Sequence[Episode], cached: Sequence[Episode]) -> list[Parted]:
    """The attempts of two rollouts of one policy, by task and sample; both must have the same."""
    others = {(each.task.id, each.sample): each for each in cached}
    if {(each.task.id, each.sample) for each in live} != set(others):
        raise ValueError('the two rollouts are of different tasks or samples')
    return [parted(each, others[each.task.id, each.sample]) for each in live]


def divergence(pairs: Sequence[Parted]) -> dict[str, Any]:
    """Share of attempts that part, why they do, and reward and success of either way."""
    apart = [pair for pair in pairs if pair.turn is not None]

    def by_task(field: str, way: int) -> dict[str, float]:
        told: dict[str, list[float]] = {}
        for pair in pairs:
            told.setdefault(pair.task, []).append(float(getattr(pair, field)[way]))
        return {task: sum(values) / len(values) for task, values in told.items()}

    return {
        'episodes': len(pairs),
        'diverged': len(apart),
        'diverged_share': len(apart) / len(pairs),
        'diverged_wilson': wilson_interval(len(apart) / len(pairs), len(pairs)),
        'causes': dict(Counter(pair.cause for pair in apart)),
        'reward': plain(compare_paired(by_task('reward', 0), by_task('reward', 1))),
        'success': plain(compare_paired(by_task('solved', 0), by_task('solved', 1))),
    }


def reexecute_sample(episodes: Sequence[Episode], count: int, seed: int) -> list[Judged]:
    """Some of the hits of episodes beside the truth."""
    told: list[Judged] = []
    every = [turns_of(episode) for episode in episodes]
    for episode, turns, chosen in zip(episodes, every, sampled(every, count, seed), strict=True):
        if chosen:
            task = episode.task
            told += reexecuted(task.id, task.tools, task.start, turns, chosen)
    return told


def fidelity(told: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """{'exact': numbers, ..., 'exact, tool': numbers}: hits, and how many said the same."""
    groups: dict[str, list[Judged]] = {}
    for tier in sorted(HITS):
        part = [each for each in told if each.tier is tier]
        if part:
            groups[tier.name.lower()] = part
        for name in sorted({each.tool for each in part}):
            groups[f'{tier.name.lower()}, {name}'] = [each for each in part if each.tool == name]
    return {name: _numbers(part) for name, part in groups.items()}


def _numbers(told: Sequence[Judged]) -> dict[str, Any]:
    same = sum(each.same for each in told)
    return {
        'hits': len(told),
        'same': same,
        'fidelity': same / len(told),
        'wilson': wilson_interval(same / len(told), len(told)),
        'agreement': sum(each.agreement for each in told) / len(told),
    }
