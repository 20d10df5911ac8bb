"""What numbers over tasks amount to: chances, intervals, comparisons, agreement.  Numbers only.

Attempts at one task are not independent, so wherever something is resampled, flipped or counted as
a trial it is the task.  Everything drawn is drawn from a fixed seed: the same numbers give the same
interval.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from scipy import stats

NORMAL_95 = 1.959963984540054  # two-sided 95% quantile of the normal distribution
PERCENTILES = (2.5, 97.5)
RESAMPLES = 2000
FLIPS = 2**14  # of signs: all of them up to 14 tasks that differ, as many drawn ones beyond

Interval = tuple[float, float]


def avg_at(k: int, attempts: int, successes: int) -> float | None:
    """c / n: the expected mean over k of the n attempts; None for fewer attempts."""
    return None if attempts < k else successes / attempts


def pass_at(k: int, attempts: int, successes: int) -> float | None:
    """1 − C(n−c, k) / C(n, k), unbiased (arxiv.org/abs/2107.03374); None for fewer attempts."""
    if attempts < k:
        return None
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def wilson_interval(rate: float, trials: int) -> Interval:
    """(p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), 95% (Wilson 1927); (0, 1) for no trial."""
    if trials == 0:
        return 0.0, 1.0
    z = NORMAL_95
    centre = rate + z * z / (2 * trials)
    reach = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def _resampled_means(values: Sequence[float]) -> np.ndarray:
    drawn = np.random.default_rng(0).choice(np.asarray(values, float), (RESAMPLES, len(values)))
    return drawn.mean(axis=1)


def bootstrap_interval(rates: Sequence[float]) -> Interval:
    """95% percentiles of the mean over resampled tasks; (0, 1), all that is known, for none."""
    if not rates:
        return 0.0, 1.0
    low, high = np.percentile(_resampled_means(rates), PERCENTILES)
    return float(low), float(high)


def crossed_interval(values: Sequence[Sequence[float]]) -> Interval:
    """95% percentiles of the mean of values [run, task], runs and tasks both resampled.

    Runs meet the same tasks, so neither are n·m numbers independent ones nor are the runs alone
    the sample (the pigeonhole bootstrap, Owen 2007); (0, 1), all that is known, for none.
    """
    table = np.asarray(values, float)
    if not table.size:
        return 0.0, 1.0
    draws = np.random.default_rng(0)
    runs, tasks = (draws.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in table.shape)
    low, high = np.percentile(np.einsum('br,rt,bt->b', runs, table, tasks), PERCENTILES)
    return float(low), float(high)


def bootstrap_ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    """95% percentiles of Σ first / Σ second over resampled pairs; (0, ∞) for none.

    Resamples whose second sum is 0 are left out.
    """
    if not pairs:
        return 0.0, math.inf
    table = np.asarray(pairs, float)
    drawn = np.random.default_rng(0).integers(len(table), size=(RESAMPLES, len(table)))
    first, second = table[drawn].sum(axis=1).T
    low, high = np.percentile(first[second != 0] / second[second != 0], PERCENTILES)
    return float(low), float(high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a second set of attempts does against a first one at the same tasks."""

    tasks: int  # in both
    first: float  # mean over them
    second: float
    difference: float  # second − first
    interval: Interval  # 95%, of the difference
    better: int  # tasks at which the second does better
    worse: int
    p_value: float  # two-sided; chance of a difference as large if first and second were alike
    exact: bool  # all flips of signs were counted, not a sample


def compare_paired(first: Mapping[str, float], second: Mapping[str, float]) -> Comparison:
    """Sign-flip permutation test on the differences of the tasks that both have.

    p = share of ±d_1 ± ... ± d_n with |sum| at least as large as the observed one (Fisher 1935);
    tasks that do not differ change nothing and are left out of the flips.  For one attempt a task
    this is McNemar's exact test.  Raises ValueError where no task is in both.
    """
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise ValueError(
            f'no task is in both: {len(first)} in the first, {len(second)} in the second; '
            'compare runs on the same suites, levels, split and number of tasks'
        )
    one, other = (np.array([side[task] for task in shared], float) for side in (first, second))
    difference = other - one
    low, high = np.percentile(_resampled_means(difference), PERCENTILES)
    moved = difference[difference != 0]
    return Comparison(
        tasks=len(shared),
        first=float(one.mean()),
        second=float(other.mean()),
        difference=float(difference.mean()),
        interval=(float(low), float(high)),
        better=int((difference > 0).sum()),
        worse=int((difference < 0).sum()),
        p_value=_flip_test(moved),
        exact=2 ** len(moved) <= FLIPS,
    )


def _flip_test(moved: np.ndarray) -> float:
    if len(moved) < 2:  # either sign of one number is as far from 0
        return 1.0
    found = stats.permutation_test(
        (moved,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type='samples',
        vectorized=True,
        n_resamples=FLIPS,
        batch=FLIPS // 4,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """One coefficient of correlation; None where it is not defined, as for constant numbers."""

    coefficient: float | None
    interval: Interval | None  # 95%; None too where most resamples are constant
    p_value: float | None  # two-sided, of no correlation


def _coefficient(measure: Callable, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Coefficient and p value; NaN where one side is constant."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan, math.nan
    found = measure(x, y)
    return float(found.statistic), float(found.pvalue)


def correlations(
    x: Sequence[float], y: Sequence[float], clusters: Sequence[Hashable], resamples: int = 1000
) -> dict[str, Agreement]:
    """Pearson's r, Spearman's ρ and Kendall's τ_b of pairs (x, y), with intervals over clusters.

    `clusters` says which pairs belong together, such as attempts at one task; the bootstrap draws
    clusters.  Raises ValueError for lists of different lengths and for numbers that are not finite.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    if not len(x) == len(y) == len(clusters):
        raise ValueError(f'one y and one cluster for each x: {len(x)}, {len(y)}, {len(clusters)}')
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError('only finite numbers can be correlated')
    members: dict[Hashable, list[int]] = {}
    for place, cluster in enumerate(clusters):
        members.setdefault(cluster, []).append(place)
    groups, draws = [np.array(places) for places in members.values()], np.random.default_rng(0)
    drawn = [
        np.concatenate([groups[g] for g in draws.integers(len(groups), size=len(groups))])
        for _ in range(resamples if groups else 0)
    ]
    measures = {'pearson': stats.pearsonr, 'spearman': stats.spearmanr, 'kendall': stats.kendalltau}
    return {name: _agreement(measure, x, y, drawn) for name, measure in measures.items()}


def _agreement(measure, x, y, drawn) -> Agreement:
    coefficient, p_value = _coefficient(measure, x, y)
    if math.isnan(coefficient):
        return Agreement(coefficient=None, interval=None, p_value=None)
    again = [_coefficient(measure, x[places], y[places])[0] for places in drawn]
    defined = [value for value in again if not math.isnan(value)]
    interval = None
    if 2 * len(defined) > len(again):
        low, high = np.percentile(defined, PERCENTILES)
        interval = (float(low), float(high))
    return Agreement(
        coefficient=coefficient,
        interval=interval,
        p_value=None if math.isnan(p_value) else p_value,
    )
