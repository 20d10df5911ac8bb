"""Laws of credit by a critic: every reward is paid once, and only what was chosen is credited."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.grpo.critic import generalised_advantage, token_rewards, whitened
from cacherl_jax.trajectory import Trajectory

ROWS, TOKENS, TURNS = 7, 16, 3


def rows(seed=0):
    """Prompts, turns with forced tokens between sampled ones, and one row without any choice."""
    random = np.random.default_rng(seed)
    turn = np.sort(random.integers(-1, TURNS, (ROWS, TOKENS)), axis=1)
    sampled = (turn >= 0) & (random.random((ROWS, TOKENS)) < 0.6)
    sampled[3] = False
    length = jnp.full(ROWS, TOKENS, jnp.int32)
    nothing = jnp.zeros((ROWS, TOKENS))
    return Trajectory(nothing, length, jnp.asarray(sampled), nothing, jnp.asarray(turn))


def test_a_turn_is_paid_at_its_last_sampled_token_and_the_end_at_the_rows():
    turn = jnp.asarray([[-1, 0, 0, 0, 1, 1, 2, 2]])
    sampled = jnp.asarray([[0, 1, 1, 0, 0, 1, 0, 0]], bool)
    made = Trajectory(turn * 0.0, jnp.asarray([8]), sampled, turn * 0.0, turn)
    paid = token_rewards(jnp.asarray([[1.0, 10.0, 100.0]]), jnp.asarray([1000.0]), made)
    assert paid.tolist() == [[0, 0, 1, 0, 0, 1110, 0, 0]]  # the last turn chose nothing


def test_all_that_was_earned_is_paid_to_rows_that_chose_anything():
    random, made = np.random.default_rng(1), rows()
    turns, end = random.normal(size=(ROWS, TURNS)), random.normal(size=ROWS)
    # A turn before the first choice of its row has nobody to be paid to.
    first = [made.turn[row][made.sampled[row]].min(initial=TURNS) for row in range(ROWS)]
    turns = np.where(np.arange(TURNS) < np.asarray(first)[:, None], 0.0, turns)
    paid = np.asarray(token_rewards(jnp.asarray(turns), jnp.asarray(end), made))
    chose = np.asarray(made.sampled).any(axis=1)
    np.testing.assert_allclose(paid.sum(axis=1), np.where(chose, turns.sum(1) + end, 0), atol=1e-5)
    assert not paid[~np.asarray(made.sampled)].any()


def reference(reward, value, sampled, discount, trace):
    """Choice by choice, from the definition: the sum of discounted errors, in float64."""
    found = np.zeros(reward.shape)
    for row in range(len(reward)):
        at = np.flatnonzero(sampled[row])
        r, v = reward[row, at], np.append(value[row, at], 0.0)
        error = r + discount * v[1:] - v[:-1]
        for i in range(len(at)):
            steps = np.arange(len(at) - i)
            found[row, at[i]] = np.sum((discount * trace) ** steps * error[i:])
    return found


@pytest.mark.parametrize(('discount', 'trace'), [(1.0, 0.95), (0.9, 0.5), (1.0, 0.0), (0.8, 1.0)])
def test_an_advantage_is_the_discounted_sum_of_what_the_critic_missed(discount, trace):
    for seed in range(5):
        random, sampled = np.random.default_rng(seed), np.asarray(rows(seed).sampled)
        numbers = random.normal(size=(2, ROWS, TOKENS))
        reward, value = np.where(sampled, numbers, np.nan)  # what was forced is not looked at
        told = jax.jit(generalised_advantage, static_argnums=(3, 4))(
            *map(jnp.asarray, (reward, value, sampled)), discount, trace
        )
        expected = reference(reward, value, sampled, discount, trace)
        np.testing.assert_allclose(told[0], expected, rtol=1e-4, atol=1e-5)
        target = np.where(sampled, expected + numbers[1], 0.0)
        np.testing.assert_allclose(told[1], target, rtol=1e-4, atol=1e-5)


def test_a_critic_that_knew_leaves_nothing_to_credit():
    made = rows()
    reward = token_rewards(jnp.ones((ROWS, TURNS)), jnp.ones(ROWS), made)
    to_go = jnp.cumsum(reward[:, ::-1], axis=1)[:, ::-1]
    advantage, target = generalised_advantage(reward, to_go, made.sampled, 1.0, 0.95)
    np.testing.assert_allclose(advantage, 0.0, atol=1e-5)
    np.testing.assert_allclose(target, jnp.where(made.sampled, to_go, 0.0), atol=1e-5)


@pytest.mark.parametrize('same', [False, True])
def test_a_unit_is_the_deviation_of_what_was_chosen(same):
    sampled = np.asarray(rows().sampled)
    advantage = np.random.default_rng(2).normal(3.0, 5.0, sampled.shape)
    advantage = np.full(sampled.shape, 0.35) if same else advantage
    found = np.asarray(whitened(jnp.asarray(advantage), jnp.asarray(sampled)))
    assert not found[~sampled].any()
    np.testing.assert_allclose(found[sampled].mean(), 0.0, atol=1e-5)
    np.testing.assert_allclose(found[sampled].std(), 0.0 if same else 1.0, atol=1e-5)
