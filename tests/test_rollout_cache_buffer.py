"""What stays in the store and what is drawn: by value and by key alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_cache_rows import entries

from cacherl_jax.rollout_cache.actions import ACTIONS
from cacherl_jax.rollout_cache.buffer import (
    BufferSettings,
    acquaint,
    make_buffer,
    rescore,
    task_weight,
)

FREE = {'age_cost': 0, 'reuse_cost': 0, 'crowding_cost': 0, 'familiar_cost': 0}


@functools.cache
def made(**settings):
    """One buffer for each way to make one, so that tests share what is compiled."""
    return make_buffer(BufferSettings(**settings), draws=min(3, settings['capacity']))


def filled(returns, capacity=3, step=0, keep=None, **settings):
    """A buffer, and its store after one addition to nothing."""
    buffer = made(**({'capacity': capacity, 'minimum': 1} | FREE | settings))
    rows = returns if hasattr(returns, 'task') else entries(returns)
    keep = jnp.ones(rows.task.shape, bool) if keep is None else jnp.asarray(keep)
    return buffer, buffer.add(buffer.init(rows), rows, keep, step)


def held(store):
    """Returns in the store, from low to high."""
    return sorted(np.asarray(store.entries.episode_return)[np.asarray(store.filled)].tolist())


def draw(buffer, store, seed=0, step=0, wanted=3, weight=None):
    weight = jnp.ones(store.filled.shape) if weight is None else weight
    return buffer.sample(store, jax.random.key(seed), weight, step, wanted)


@pytest.mark.parametrize('capacity', [1, 3, 7, 16])
def test_the_best_stay_in_whatever_pieces_they_come(capacity):
    returns = np.random.default_rng(capacity).permutation(16).astype(np.float32)
    buffer, store = filled(returns[:4], capacity)
    for piece in returns[4:].reshape(3, 4):
        store = buffer.add(store, entries(piece), jnp.ones(4, bool), 0)
    assert held(store) == sorted(returns)[-capacity:]


def test_rows_not_kept_and_returns_that_are_no_number_never_enter():
    _, store = filled([1, 2, np.nan, 3], keep=[True, False, True, True])
    assert held(store) == [1, 3]


def test_every_row_keeps_its_own_fields():
    _, store = filled([5, 1, 9, 7, 3])
    for slot in np.flatnonzero(store.filled):
        row = [5, 1, 9, 7, 3].index(store.entries.episode_return[slot])
        assert store.entries.trajectory.tokens[slot, 0] == row
        assert store.entries.task[slot] == row and store.entries.trajectory.length[slot] == row + 1


def test_the_oldest_rows_leave_first():
    buffer, store = filled([1, 1, 1])
    store = buffer.add(store, entries([1, 1]), jnp.ones(2, bool), 5)
    assert sorted(store.entries.added.tolist()) == [0, 5, 5]


@pytest.mark.parametrize(
    ('cost', 'fields', 'leaves'),
    [
        ('age_cost', {}, 3.0),  # the old rows lose more than they are ahead
        ('familiar_cost', {'familiar': [0, 0, 1]}, 5.0),
        ('crowding_cost', {'task': [4, 4, 8]}, 3.0),
    ],
)
def test_a_cost_decides_who_leaves(cost, fields, leaves):
    for price, expected in ((0, 2.0), (3.5, leaves)):
        buffer, store = filled(entries([3, 4, 5], **fields), **{cost: price})
        store = buffer.add(store, entries([2], task=[9]), jnp.ones(1, bool), 1)
        assert {2.0, 3.0, 4.0, 5.0} - set(held(store)) == {expected}


def did(*ways):
    """Actions of rows, each named by the numbers of what it did."""
    rows = np.full((len(ways), ACTIONS), -1)
    for row, way in zip(rows, ways, strict=True):
        row[: len(way)] = way
    return rows


def test_another_way_to_do_the_same_task_is_not_crowded_out():
    rows = entries([3, 4, 5], task=[4, 4, 4], actions=did([1, 2], [1, 2], [7, 8]))
    buffer, store = filled(rows, crowding_cost=3.5)
    # The best is alone in what it does; of two that are alike the worse one leaves.
    store = buffer.add(store, entries([2], task=[9]), jnp.ones(1, bool), 0)
    assert held(store) == [2, 4, 5]
    half = entries([3, 4, 5], task=[4, 4, 4], actions=did([1, 2], [1, 3], [7, 8]))
    buffer, store = filled(half, crowding_cost=2.4)  # a third alike: .8 is not enough to fall
    store = buffer.add(store, entries([2], task=[9]), jnp.ones(1, bool), 0)
    assert held(store) == [3, 4, 5]


def test_use_is_counted_and_costs():
    buffer, store = filled([3, 4, 5], reuse_cost=2, reuse_limit=9)
    only = jnp.asarray(store.entries.episode_return == 5, jnp.float32)
    store, _ = draw(buffer, store, weight=only)
    store, drawn = draw(buffer, store, weight=only)
    assert drawn.drawn.tolist() == [True, False, False] and store.entries.reuse.sum() == 2
    store = buffer.add(store, entries([2]), jnp.ones(1, bool), 0)
    assert held(store) == [2, 3, 4]


@pytest.mark.parametrize('wanted', [0, 1, 2, 3])
def test_a_draw_has_no_row_twice_and_depends_on_the_key_alone(wanted):
    buffer, store = filled(np.arange(7), capacity=7)
    seen = set()
    for seed in range(5):
        _, drawn = draw(buffer, store, seed, wanted=wanted)
        again = draw(buffer, store, seed, wanted=wanted)[1]
        slots = drawn.slot[drawn.drawn].tolist()
        assert len(slots) == len(set(slots)) == wanted and (drawn.slot == again.slot).all()
        seen.add(tuple(slots))
    assert len(seen) > 1 or wanted == 0


def test_only_tasks_asked_for_are_drawn():
    buffer, store = filled(np.arange(7), capacity=7)
    _, drawn = draw(buffer, store, weight=task_weight(store, jnp.array([2, 5, 99])))
    assert sorted(drawn.entries.task[drawn.drawn].tolist()) == [2, 5]


def test_too_old_or_too_often_used_is_not_drawn_and_demonstrations_do_not_age():
    rows = entries([1, 2, 3], version=[0, 5, 0], has_behaviour=[True, True, False])
    buffer, store = filled(rows, age_limit=4, reuse_limit=1)
    store, drawn = draw(buffer, store, step=5)
    assert sorted(drawn.entries.episode_return[drawn.drawn].tolist()) == [2, 3]
    assert not draw(buffer, store, step=5)[1].drawn.any()


def test_drawing_waits_for_the_minimum():
    buffer, store = filled([1, 2, 3], minimum=2, age_limit=4)
    assert buffer.can_sample(store, 4) and not buffer.can_sample(store, 5)
    assert not buffer.can_sample(buffer.init(entries([1])), 0)


def test_draws_follow_the_weights():
    buffer, store = filled([0, 1, 2], capacity=3)
    weight = 1.0 + 8.0 * (store.entries.episode_return == 2)
    first = [
        draw(buffer, store, seed, weight=weight)[1].entries.episode_return[0] for seed in range(60)
    ]
    assert sum(x == 2 for x in first) > 36  # nine times as likely as each of the others


def test_returns_are_those_of_the_weights_of_now():
    _, store = filled([1, 2, 3])
    store = rescore(store, jnp.array([0.0, 7.0]))
    assert store.entries.episode_return[store.filled].tolist() == [7, 7, 7]


def test_what_the_policy_solves_by_itself_is_noted_for_its_task_alone():
    _, store = filled([1, 2, 3])
    fresh = entries([0] * 5, task=[1, 1, 1, 1, 9])
    store = acquaint(store, fresh, jnp.array([True, True, False, True, True]))
    by_task = dict(zip(store.entries.task.tolist(), store.entries.familiar.tolist(), strict=True))
    assert by_task == {0: 0, 1: 0.75, 2: 0}


def test_what_the_policy_solves_in_another_way_is_not_familiar():
    rows = entries([1, 2, 3], task=[4, 4, 4], actions=did([1, 2], [1, 3], [7, 8]))
    _, store = filled(rows)
    fresh = entries([0] * 4, task=[4] * 4, actions=did([1, 2], [1, 2], [7, 8], [9]))
    store = acquaint(store, fresh, jnp.array([True, True, False, True]))
    by_return = zip(store.entries.episode_return.tolist(), store.entries.familiar, strict=True)
    familiar = [float(x) for _, x in sorted(by_return)]
    np.testing.assert_allclose(familiar, [2 / 4, 2 / 3 / 4, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    'wrong',
    [{'minimum': 17}, {'minimum': 0}, {'capacity': 0}, {'age_limit': 0}, {'reuse_cost': -1}],
)
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BufferSettings(**({'capacity': 16} | wrong))


def test_more_draws_than_the_capacity_are_refused():
    with pytest.raises(ValueError, match='draws must be in 1..capacity'):
        make_buffer(BufferSettings(capacity=16), draws=17)
