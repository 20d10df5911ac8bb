"""Which tasks a step is about: by address, evenly over suites, hard only when it is time."""

import collections
import json

import numpy as np
import pytest
from rollout_cache_rows import task

from cacherl_jax.rollout_cache.curriculum import (
    CurriculumSettings,
    Standing,
    draw_tasks,
    level_weights,
    observe,
    running_baseline,
    uncertainty,
)

SUITES = ('sums', 'trips', 'plays')


def source(suite, level, number):
    return task(number, suite, level=level)


def settings(**changes):
    return CurriculumSettings(**({'suites': SUITES, 'tasks': 16} | changes))


def drawn(step=0, groups=7, standing=Standing(), seed=3, taken=(), again=0, **changes):
    told = (standing, seed, step, groups, settings(**changes), source)
    return draw_tasks(*told, taken=taken, again=again)


def test_a_step_has_its_tasks_for_ever_and_each_once():
    ids = [[played.id for played in drawn(step)] for step in range(5)]
    assert ids == [[played.id for played in drawn(step)] for step in range(5)]
    assert all(len(set(step)) == 7 for step in ids) and len(set(map(tuple, ids))) == 5
    assert [played.id for played in drawn(seed=4)] != ids[0]


def test_a_step_that_is_asked_again_gives_others():
    first = [played.id for played in drawn()]
    again = [played.id for played in drawn(taken=first, again=1)]
    assert len(set(again)) == 7 and not set(again) & set(first)
    assert [played.id for played in drawn(again=1)] != first
    assert [played.id for played in drawn(taken=first, again=2)] != again


def test_suites_take_turns():
    counts = collections.Counter(p.suite for step in range(5) for p in drawn(step))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_step_may_use_every_task_there_is():
    tasks = drawn(groups=18, tasks=2, order='schedule', least_fraction=0)
    assert len({played.id for played in tasks}) == 18
    with pytest.raises(ValueError, match='19 groups need 7 tasks of a suite; there are 6'):
        drawn(groups=19, tasks=2)


@pytest.mark.parametrize(('step', 'level'), [(0, 1), (50, 2), (100, 3), (1000, 3)])
def test_the_schedule_goes_from_easy_to_hard(step, level):
    tasks = drawn(step, order='schedule', steps=100, least_fraction=0)
    assert {played.level for played in tasks} == {level}


def test_levels_solved_sometimes_are_preferred():
    outcomes = [(source('sums', 1, n), True, 1.0) for n in range(16)]
    outcomes += [(source('sums', 2, n), n % 2 == 0, 0.5) for n in range(16)]
    outcomes += [(source('sums', 3, n), False, 0.0) for n in range(16)]
    standing = observe(Standing(), outcomes, settings(forget=0))
    easy, middling, hard = level_weights(standing, 'sums', 0, settings())
    assert middling > 0.5 and min(easy, hard) >= 0.1 / 3 - 1e-9
    assert level_weights(standing, 'sums', 0, settings(order='uniform')) == pytest.approx(
        [1 / 3] * 3
    )


def test_tasks_solved_sometimes_are_preferred():
    always, sometimes = source('sums', 1, 0), source('sums', 1, 1)
    outcomes = [(always, True, 1.0)] * 4 + [(sometimes, True, 1.0), (sometimes, False, 0.0)] * 2
    standing = observe(Standing(), outcomes, settings())
    assert uncertainty(standing, sometimes) > uncertainty(standing, always)
    tasks = drawn(standing=standing, groups=1, suites=('sums',), levels=(1,), tasks=2, candidates=9)
    assert tasks[0].id == sometimes.id


def test_what_was_long_ago_counts_less():
    place = source('sums', 1, 0)
    outcomes = [(place, False, 0.0)] * 16 + [(place, True, 1.0)] * 4
    rates = [
        observe(Standing(), outcomes, settings(forget=forget)).tasks[place.id].rate()
        for forget in (0.0, 0.3)
    ]
    assert rates[0] < 0.3 < 0.6 < rates[1]


def test_evaluation_tasks_do_not_steer():
    with pytest.raises(ValueError, match='only training tasks'):
        observe(Standing(), [(task(split='test'), True, 1.0)], settings())


def test_a_standing_survives_a_checkpoint():
    outcomes = [(source(suite, 1, 3), True, 0.3) for suite in SUITES]
    standing = observe(Standing(), outcomes, settings())
    again = Standing.restore(json.loads(json.dumps(standing.state())))
    assert again == standing
    assert [p.id for p in drawn(9, standing=again)] == [p.id for p in drawn(9, standing=standing)]


def test_the_running_baseline_is_the_mean_of_what_was_paid():
    paid = np.random.default_rng(0).random(7)
    known, unknown = source('sums', 1, 0), source('sums', 1, 1)
    standing = observe(Standing(), [(known, True, x) for x in paid], settings(forget=0))
    mean, std, seen = running_baseline(standing.tasks, [known.id, unknown.id])
    np.testing.assert_allclose([mean[0], std[0]], [paid.mean(), paid.std()], rtol=1e-5)
    assert seen.tolist() == [True, False]


@pytest.mark.parametrize(
    'wrong',
    [
        {'suites': ('sums', 'sums')},
        {'levels': (4,)},
        {'order': 'random'},
        {'candidates': 0},
        {'least_fraction': 2},
        {'forget': 1.0},
    ],
)
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        settings(**wrong)
