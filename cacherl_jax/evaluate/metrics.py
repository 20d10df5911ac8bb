"""How often and how well tasks are solved.  Episodes in, plain numbers out.

Success is what the task's own `solved` says; the reward has no part in it.  Episodes spoiled by
infrastructure are counted and otherwise left out.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cacherl_jax.tasks.task import Episode, Termination
from cacherl_jax.tools.tool import Tier

NORMAL_95 = 1.959963984540054  # two-sided 95% quantile of the normal distribution
RESAMPLES = 2000


def pass_at(k: int, attempts: int, successes: int) -> float | None:
    """1 − C(n−c, k) / C(n, k), unbiased (arxiv.org/abs/2107.03374); None for fewer attempts."""
    if attempts < k:
        return None
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def wilson_interval(rate: float, trials: int) -> tuple[float, float]:
    """(p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), 95% (Wilson 1927); (0, 1) for no trial."""
    if trials == 0:
        return 0.0, 1.0
    z = NORMAL_95
    centre = rate + z * z / (2 * trials)
    reach = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def bootstrap_interval(rates: Sequence[float]) -> tuple[float, float]:
    """95% percentiles of the mean over resampled tasks; the same tasks give the same interval."""
    if not rates:
        return 0.0, 1.0
    drawn = np.random.default_rng(0).choice(np.asarray(rates, float), (RESAMPLES, len(rates)))
    low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def tier_mix(episodes: Sequence[Episode]) -> dict[str, float]:
    """The share of tool answers from each tier, live included; zeros where nothing was called."""
    counts = Counter(r.tier for e in episodes for turn in e.turns for r in turn.results)
    total = max(sum(counts.values()), 1)
    return {tier.name.lower(): counts[tier] / total for tier in Tier}


def _numbers(episodes: Sequence[Episode], solved: Mapping[int, bool], ks: Sequence[int]) -> dict:
    """The statistics of one set of episodes; an attempt's place in `solved` is its identity."""
    counted = [e for e in episodes if e.termination is not Termination.TOOL_INFRASTRUCTURE]
    attempts: dict[str, list[bool]] = defaultdict(list)
    for episode in counted:
        attempts[episode.task.id].append(solved[id(episode)])
    rates = [sum(of_task) / len(of_task) for of_task in attempts.values()]
    success = _mean(rates)
    won = [episode for episode in counted if solved[id(episode)]]
    numbers = {
        'episodes': len(episodes),
        'tasks': len(attempts),
        'infrastructure': len(episodes) - len(counted),
        'success': success,
        # Attempts at one task are not independent, so the tasks are the trials: if anything wide.
        'success_wilson': wilson_interval(success or 0.0, len(rates)),
        'success_bootstrap': bootstrap_interval(rates),
        'turns': _mean([len(e.turns) for e in won]),
        'calls': _mean([sum(len(turn.calls) for turn in e.turns) for e in won]),
        'tier_mix': tier_mix(episodes),
        'terminations': dict(sorted(Counter(e.termination.value for e in episodes).items())),
    }
    for k in ks:
        chances = [pass_at(k, len(of_task), sum(of_task)) for of_task in attempts.values()]
        numbers[f'pass_at_{k}'] = _mean([chance for chance in chances if chance is not None])
    return numbers


def evaluation_metrics(
    episodes: Sequence[Episode], ks: Sequence[int] = (1,)
) -> dict[str, dict[str, Any]]:
    """{suite: numbers}, each with the same numbers for its `levels` and `splits`.

    `success` is the mean over tasks of their share of successful attempts; `turns` and `calls` are
    means over successful episodes; None stands for the mean of nothing.
    """
    solved = {id(episode): bool(episode.task.solved(episode)) for episode in episodes}
    suites = {}
    for suite in sorted({e.task.suite for e in episodes}):
        of_suite = [e for e in episodes if e.task.suite == suite]
        suites[suite] = _numbers(of_suite, solved, ks) | {
            f'{part}s': {
                str(value): _numbers(
                    [e for e in of_suite if getattr(e.task, part) == value], solved, ks
                )
                for value in sorted({getattr(e.task, part) for e in of_suite})
            }
            for part in ('level', 'split')
        }
    return suites


def flat_metrics(suites: Mapping[str, Mapping[str, Any]], prefix: str = 'evaluate') -> dict:
    """`prefix/suite/name` for every number that is one, for the metrics of a run."""
    flat = {}
    for suite, numbers in suites.items():
        for name, value in numbers.items():
            if isinstance(value, (int, float)):
                flat[f'{prefix}/{suite}/{name}'] = value
    return flat
