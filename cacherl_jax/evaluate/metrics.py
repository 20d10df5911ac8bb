"""How often and how well tasks are solved.  Episodes in, plain numbers out.

Success is what the task's own `solved` says; the reward has no part in it.  Episodes spoiled by
infrastructure are counted and otherwise left out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from cacherl_jax.evaluate.statistics import (
    avg_at,
    bootstrap_interval,
    pass_at,
    wilson_interval,
)
from cacherl_jax.tasks.task import Episode, Termination
from cacherl_jax.tools.tool import Tier


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
        for name, chance in (('avg', avg_at), ('pass', pass_at)):
            chances = [chance(k, len(of_task), sum(of_task)) for of_task in attempts.values()]
            known = [value for value in chances if value is not None]
            numbers[f'{name}_at_{k}'] = _mean(known)
            numbers[f'{name}_at_{k}_bootstrap'] = bootstrap_interval(known)
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
