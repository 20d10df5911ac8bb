"""Advantages as laws: who is compared with whom, and what agreement is worth."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.grpo.advantage import (
    AdvantageSettings,
    Running,
    component_advantage,
    group_advantage,
    token_advantage,
    turn_advantage,
)
from cacherl_jax.trajectory import Trajectory

UNION, FRESH = AdvantageSettings(), AdvantageSettings(baseline='fresh')


def advantage(reward, group=None, fresh=None, counted=None, settings=UNION, running=None):
    rows = len(reward)
    group = jnp.zeros(rows, jnp.int32) if group is None else jnp.asarray(group)
    fresh = jnp.ones(rows, bool) if fresh is None else jnp.asarray(fresh)
    counted = jnp.ones(rows, bool) if counted is None else jnp.asarray(counted)
    reward = jnp.asarray(reward, jnp.float32)
    jitted = jax.jit(group_advantage, static_argnums=4)
    return np.asarray(jitted(reward, group, fresh, counted, settings, running))


@pytest.mark.parametrize('settings', [UNION, FRESH, AdvantageSettings(leave_one_out=True)])
@pytest.mark.parametrize('samples', [1, 3, 7, 8, 16])
def test_a_group_that_agrees_gets_exactly_zero(samples, settings):
    for reward in (0.1, 0.35, 0.7, 1.0):
        assert (advantage([reward] * samples, settings=settings) == 0).all()


def test_the_odd_ones_siblings_agree_about_it():
    settings = AdvantageSettings(leave_one_out=True)
    odd = advantage([0.35] * 7 + [0.0], settings=settings)[-1]
    assert odd == pytest.approx(-0.35, abs=1e-6)  # no deviation counts as 1, not as 1.5e-4


@pytest.mark.parametrize(
    ('reward', 'settings', 'expected'),
    [
        ([0, 0, 0, 0, 1], UNION, [-0.5, -0.5, -0.5, -0.5, 2.0]),
        ([0, 0, 0, 0, 1], FRESH, [0, 0, 0, 0, 1]),
        ([1, 0, 0, 0, 1], UNION, [1.2247, -0.8165, -0.8165, -0.8165, 1.2247]),
        ([1, 1, 1, 1, 1], UNION, [0, 0, 0, 0, 0]),
        ([1, 1, 1, 1, 1], FRESH, [0, 0, 0, 0, 0]),
    ],
)
def test_an_elite_in_the_group(reward, settings, expected):
    result = advantage(reward, fresh=[True] * 4 + [False], settings=settings)
    np.testing.assert_allclose(result, expected, atol=5e-5)
    assert (result[np.array(expected) == 0] == 0).all()


def test_a_group_without_an_elite():
    expected = [1.7321, -0.5774, -0.5774, -0.5774]
    np.testing.assert_allclose(advantage([1, 0, 0, 0]), expected, atol=5e-5)


@pytest.mark.parametrize(
    ('samples', 'own', 'no_std'),
    [(2, 0.15, -0.0125), (4, 0.187129, -0.01875), (8, 0.111526, -0.021875)],
)
def test_dividing_by_the_deviation_turns_a_noisy_choice_around(samples, own, no_std):
    """Tool A pays 0.9; tool B pays 1 with probability 0.8, else 0; each is picked half the time."""
    chances = {0.9: 0.5, 1.0: 0.4, 0.0: 0.1}
    for std, expected in ((True, own), (False, no_std)):
        settings, push = AdvantageSettings(std=std), 0.0
        for paid in itertools.combinations_with_replacement(chances, samples):
            ways = math.factorial(samples) / math.prod(
                math.factorial(paid.count(reward)) for reward in chances
            )
            slope = np.where(np.array(paid) == 0.9, -0.5, 0.5)
            chance = ways * math.prod(chances[reward] for reward in paid)
            push += chance * np.mean(advantage(paid, settings=settings) * slope)
        assert push == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize('settings', [UNION, FRESH, AdvantageSettings(leave_one_out=True)])
def test_groups_are_known_by_number_not_by_place(settings):
    random = np.random.default_rng(0)
    reward, group = random.random(21), np.repeat([7, 2**30, 3], 7)
    order = random.permutation(21)
    whole = advantage(reward[order], group[order], settings=settings)
    for number in (7, 2**30, 3):
        alone = advantage(reward[order][group[order] == number], settings=settings)
        np.testing.assert_allclose(whole[group[order] == number], alone, atol=1e-5)


def test_rows_that_do_not_count_change_nothing_and_get_zero():
    counted = [True, True, False, True]
    with_them = advantage([0.2, 0.9, math.nan, 0.4], counted=counted)
    assert with_them[2] == 0
    np.testing.assert_allclose(with_them[[0, 1, 3]], advantage([0.2, 0.9, 0.4]), atol=1e-6)


@pytest.mark.parametrize('samples', [2, 3, 7, 16])
def test_leaving_one_out_equals_comparing_with_the_siblings(samples):
    reward = np.random.default_rng(samples).random(samples)
    result = advantage(reward, settings=AdvantageSettings(leave_one_out=True, std=False))
    siblings = [np.delete(reward, row).mean() for row in range(samples)]
    np.testing.assert_allclose(result, reward - siblings, atol=1e-6)


def test_history_is_the_running_baseline_and_no_history_teaches_nothing():
    running = Running(
        jnp.array([0.5, 0.5, 0.0]), jnp.array([0.25, 0.0, 0.0]), jnp.array([True, True, False])
    )
    settings = AdvantageSettings(baseline='running')
    np.testing.assert_allclose(
        advantage([1, 1, 1], settings=settings, running=running), [2, 0.5, 0], atol=1e-6
    )


def components(paid, weight, known=None, settings=UNION):
    paid = jnp.asarray(paid, jnp.float32)
    known = jnp.ones(paid.shape, bool) if known is None else jnp.asarray(known)
    rows = jnp.zeros(len(paid), jnp.int32), jnp.ones(len(paid), bool), jnp.ones(len(paid), bool)
    jitted = jax.jit(component_advantage, static_argnums=6)
    return np.asarray(jitted(paid, known, jnp.asarray(weight, jnp.float32), *rows, settings))


@pytest.mark.parametrize('settings', [UNION, FRESH, AdvantageSettings(leave_one_out=True)])
def test_a_single_component_is_compared_as_a_reward_is(settings):
    reward = np.random.default_rng(1).random(7)
    result = components(reward[:, None], [1.0], settings=settings)
    np.testing.assert_array_equal(result, advantage(reward, settings=settings))


def test_without_a_deviation_to_compare_and_to_sum_change_places():
    settings, weight = AdvantageSettings(std=False), [0.5, 0.0, 2.0]
    paid = np.random.default_rng(2).random((7, 3))
    expected = advantage(paid @ weight, settings=settings)
    np.testing.assert_allclose(components(paid, weight, settings=settings), expected, atol=1e-6)


def test_a_small_component_does_not_drown_in_a_large_one():
    paid = [[0.0, 0.00], [0.0, 0.01], [9.0, 0.00], [9.0, 0.01]]
    np.testing.assert_allclose(components(paid, [1, 1]), [-2, 0, 0, 2], atol=1e-4)
    np.testing.assert_allclose(advantage(np.sum(paid, axis=1)), [-1, -1, 1, 1], atol=3e-3)


@pytest.mark.parametrize('samples', [1, 3, 7, 16])
def test_components_that_agree_teach_nothing(samples):
    assert (components([[0.1, 0.35, 0.7]] * samples, [0.3, 0.5, 1.0]) == 0).all()


def test_a_row_stands_outside_the_comparison_of_a_component_that_it_has_not():
    paid, known = np.array([[1.0, 0.3], [0.0, 9.0], [1.0, 0.9]]), np.ones((3, 2), bool)
    known[1, 1] = False
    first, second = components(paid[:, :1], [1]), advantage(paid[[0, 2], 1])
    expected = first + np.array([second[0], 0, second[1]])
    np.testing.assert_allclose(components(paid, [1, 1], known), expected, atol=1e-6)


def test_one_history_has_no_components():
    with pytest.raises(ValueError, match='components need the union or fresh baseline'):
        AdvantageSettings(components=True, baseline='running')
    with pytest.raises(ValueError, match='components, leave_one_out'):
        AdvantageSettings(components=True, estimator='gae')


def turn_case():
    reward = jnp.array([[0.1, 0.1, 0.0], [0.1, -0.2, 0.0], [9.0, 9.0, 9.0]])
    present = jnp.array([[True, True, False], [True, True, False], [True, True, True]])
    group, counted = jnp.zeros(3, jnp.int32), jnp.array([True, True, False])
    return reward, present, group, jnp.ones(3, bool), counted


def test_a_turn_is_compared_with_all_turns_of_its_group():
    result = np.asarray(turn_advantage(*turn_case(), UNION))
    paid = np.array([0.1, 0.1, 0.1, -0.2])
    expected = (paid - paid.mean()) / paid.std()
    np.testing.assert_allclose(result[:2, :2].reshape(-1), expected, rtol=1e-5)
    assert (result[:2, 2] == 0).all() and (result[2] == 0).all()


def test_a_discounted_turn_is_paid_for_what_follows():
    settings = AdvantageSettings(turn_discount=0.5, std=False)
    result = np.asarray(turn_advantage(*turn_case(), settings))
    paid = np.array([0.15, 0.1, 0.0, -0.2])
    np.testing.assert_allclose(result[:2, :2].reshape(-1), paid - paid.mean(), atol=1e-6)


@pytest.mark.parametrize('discount', [0.0, 1.0])
def test_by_place_each_turn_is_compared_with_turns_as_late_as_it(discount):
    settings = AdvantageSettings(turn_baseline='place', turn_discount=discount)
    reward, present, *rows = turn_case()
    result = np.asarray(turn_advantage(reward, present, *rows, settings))
    credit = np.where(present, reward, 0.0)
    credit = credit[:, ::-1].cumsum(axis=1)[:, ::-1] if discount else credit
    for turn in range(reward.shape[1]):
        alone = group_advantage(
            jnp.asarray(credit[:, turn]), *rows[:2], rows[2] & present[:, turn], settings
        )
        np.testing.assert_allclose(result[:, turn], alone, atol=1e-6)


def test_rows_that_went_the_same_way_are_not_told_that_its_unpaid_steps_were_wrong():
    reward = jnp.tile(jnp.asarray([0.1, 0.1, 0.6, 0.0]), (4, 1))
    present, group = jnp.ones((4, 4), bool), jnp.zeros(4, jnp.int32)
    every = jnp.ones(4, bool)
    by_place = AdvantageSettings(turn_baseline='place')
    assert not turn_advantage(reward, present, group, every, every, by_place).any()
    assert turn_advantage(reward, present, group, every, every, AdvantageSettings()).any()


def test_turns_that_agree_get_exactly_zero():
    reward, ones = jnp.full((7, 3), 0.35), jnp.ones(7, bool)
    result = turn_advantage(
        reward, jnp.ones((7, 3), bool), jnp.zeros(7, jnp.int32), ones, ones, UNION
    )
    assert (np.asarray(result) == 0).all()


@pytest.mark.parametrize('final_advantage', [None, jnp.array([5.0])])
def test_tokens_get_their_turns_credit_and_the_answer_its_own(final_advantage):
    turn = jnp.array([[-1, 0, 0, 0, 1, 1]])
    sampled = jnp.array([[False, True, True, False, True, True]])
    rows = Trajectory(turn * 0, jnp.array([6]), sampled, turn * 0.0, turn)
    settings = AdvantageSettings(turn_weight=0.5)
    result = token_advantage(
        jnp.array([1.0]), jnp.array([[2.0, 4.0]]), rows, jnp.array([1]), settings, final_advantage
    )
    final = 1.0 if final_advantage is None else 5.0
    np.testing.assert_array_equal(result, [[0, 2, 2, 0, final, final]])


@pytest.mark.parametrize(
    'wrong',
    [{'baseline': 'batch'}, {'baseline': 'running', 'leave_one_out': True}, {'turn_discount': 1.5}],
)
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        AdvantageSettings(**wrong)
