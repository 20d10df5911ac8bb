"""Statistics: each number against a second way to get it, or against one printed in books."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cacherl_jax.evaluate import statistics
from cacherl_jax.evaluate.statistics import (
    avg_at,
    bootstrap_interval,
    compare_paired,
    correlations,
    pass_at,
    wilson_interval,
)


@pytest.mark.parametrize(
    ('attempts', 'successes', 'k'), [(3, 1, 2), (7, 3, 3), (7, 0, 1), (3, 3, 3)]
)
def test_pass_at_k_is_the_share_of_draws_with_a_success(attempts, successes, k):
    draws = list(itertools.combinations([True] * successes + [False] * (attempts - successes), k))
    assert pass_at(k, attempts, successes) == pytest.approx(np.mean([any(d) for d in draws]))


def test_pass_at_more_than_was_tried_is_unknown():
    assert pass_at(7, 3, 1) is None


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_wilson_interval_solves_its_equation(sample):
    successes, trials = sample
    rate, z = successes / trials, 1.959963984540054
    for bound in wilson_interval(rate, trials):
        assert (bound - rate) ** 2 == pytest.approx(z * z * bound * (1 - bound) / trials, abs=1e-9)


def test_intervals_of_nothing_say_nothing():
    assert wilson_interval(0.0, 0) == bootstrap_interval([]) == (0.0, 1.0)


def by_task(values):
    return {f'task {number}': value for number, value in enumerate(values)}


def flipped(difference):
    """The share of all sign patterns whose sum is as far from 0 as the observed one."""
    observed = abs(sum(difference)) - 1e-9
    patterns = list(itertools.product((-1, 1), repeat=len(difference)))
    return np.mean([abs(np.dot(p, difference)) >= observed for p in patterns])


def test_avg_at_k_is_the_mean_of_draws():
    draws = list(itertools.combinations([1] * 3 + [0] * 4, 3))
    assert avg_at(3, 7, 3) == pytest.approx(np.mean(draws)) and avg_at(8, 7, 3) is None


def test_the_bootstrap_covers_as_often_as_it_says():
    draws = np.random.default_rng(3)
    inside = 0
    for _ in range(200):
        low, high = bootstrap_interval(draws.normal(0.3, 1.0, 60).tolist())
        inside += low <= 0.3 <= high
    assert 0.90 <= inside / 200 <= 0.985


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=7))
def test_the_paired_test_counts_all_flips_of_signs(quarters):
    difference = [value / 4 for value in quarters]
    found = compare_paired(by_task([0.0] * len(difference)), by_task(difference))
    assert found.exact and found.p_value == pytest.approx(flipped(difference))
    assert (found.better, found.worse) == (
        sum(d > 0 for d in quarters),
        sum(d < 0 for d in quarters),
    )


def test_one_attempt_a_task_makes_it_mcnemars_test():
    first, second = [0] * 9 + [1] * 2 + [1] * 16, [1] * 9 + [0] * 2 + [1] * 16
    found = compare_paired(by_task(first), by_task(second))
    assert found.p_value == pytest.approx(stats.binomtest(9, 11).pvalue)
    assert found.difference == pytest.approx(7 / 27) and found.interval[0] > 0


def test_many_tasks_are_flipped_by_chance_and_always_alike():
    first = np.random.default_rng(0).random(40)
    second = first + np.random.default_rng(1).normal(0.05, 0.2, 40)
    found = compare_paired(by_task(first), by_task(second))
    assert not found.exact and found == compare_paired(by_task(first), by_task(second))
    assert found.p_value == pytest.approx(stats.ttest_rel(first, second).pvalue, abs=0.02)


def test_what_does_not_differ_is_no_evidence():
    same = by_task([0.0, 0.5, 1.0])
    assert compare_paired(same, same).p_value == 1.0
    assert compare_paired(same, same).interval == (0.0, 0.0)


def test_only_tasks_of_both_are_compared():
    found = compare_paired({'a': 0.0, 'b': 1.0}, {'b': 0.5, 'c': 1.0})
    assert (found.tasks, found.first, found.second) == (1, 1.0, 0.5)
    with pytest.raises(ValueError, match='no task is in both'):
        compare_paired({'a': 0.0}, {'b': 0.0})


def test_correlations_are_those_of_the_books():
    # Anscombe's first set, and Kendall's own example with two ties.
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    found = correlations(x, y, range(11), resamples=50)
    assert found['pearson'].coefficient == pytest.approx(0.81642, abs=1e-5)
    assert found['spearman'].coefficient == pytest.approx(0.81818, abs=1e-5)
    assert found['kendall'].coefficient == pytest.approx(0.63636, abs=1e-5)


def test_ties_count_in_kendalls_way():
    x, y = [1, 2, 2, 3, 4], [1, 3, 2, 3, 3]
    agree = sum(
        np.sign(a - b) * np.sign(c - d)
        for (a, c), (b, d) in itertools.combinations(zip(x, y, strict=True), 2)
    )
    tau_b = agree / math.sqrt((10 - 1) * (10 - 3))
    assert correlations(x, y, range(5), resamples=9)['kendall'].coefficient == pytest.approx(tau_b)


def test_a_known_correlation_lies_in_its_interval():
    draws = np.random.default_rng(7).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 150)
    pearson = correlations(*draws.T, range(150), resamples=300)['pearson']
    assert pearson.interval[0] < 0.6 < pearson.interval[1] and pearson.p_value < 1e-6
    # Fisher's z gives nearly the same interval for a normal sample.
    z, reach = math.atanh(pearson.coefficient), statistics.NORMAL_95 / math.sqrt(147)
    assert pearson.interval == pytest.approx((math.tanh(z - reach), math.tanh(z + reach)), abs=0.05)


def test_attempts_at_one_task_widen_the_interval():
    draws = np.random.default_rng(5)
    x = np.repeat(draws.normal(size=12), 7)
    y = x + np.repeat(draws.normal(size=12), 7)
    alone = correlations(x, y, range(84), resamples=200)['pearson'].interval
    together = correlations(x, y, [n // 7 for n in range(84)], resamples=200)['pearson'].interval
    assert together[1] - together[0] > 1.5 * (alone[1] - alone[0])


@pytest.mark.parametrize('y', [[], [0.5], [0.5, 0.5, 0.5]])
def test_constant_numbers_correlate_with_nothing(y):
    found = correlations(range(len(y)), y, range(len(y)), resamples=9)
    assert {agreement.coefficient for agreement in found.values()} == {None}


def test_numbers_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match='one y'):
        correlations([1.0], [1.0, 2.0], 'ab')
    with pytest.raises(ValueError, match='finite'):
        correlations([1.0, math.nan], [1.0, 2.0], 'ab')
