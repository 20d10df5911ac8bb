"""Credit by a critic in place of a group.  Rewards and values of tokens in, advantages out.

Only sampled tokens are moments of choice: what stands between two of them (a tool's answer, the
template) passes no time.  A value is what the critic expects to be paid from a token on.
"""

import chex
import jax
import jax.numpy as jnp

from cacherl_jax.trajectory import Trajectory


def token_rewards(turn_reward, end_reward, rows: Trajectory):
    """Where each reward is paid, f32 [row, token]: a turn's at its last sampled token.

    turn_reward f32 [row, turn]; end_reward f32 [row], at the last sampled token of the row.  A turn
    without a sampled token is paid at the last one before it.  Rows without any are paid nothing.
    """
    chex.assert_rank([turn_reward, end_reward], [2, 1])
    chex.assert_equal_shape([rows.turn, rows.sampled])
    width = rows.sampled.shape[1]
    place, number = jnp.arange(width), jnp.arange(turn_reward.shape[1])
    until = rows.sampled[:, None, :] & (rows.turn[:, None, :] <= number[:, None])
    paid_at = jnp.where(until, place, -1).max(axis=2)
    end = jnp.where(rows.sampled, place, -1).max(axis=1, keepdims=True)
    at = jnp.concatenate([paid_at, end], axis=1)
    rewards = jnp.concatenate([turn_reward, end_reward[:, None]], axis=1)
    at = jnp.where(at < 0, width, at)  # out of range: written nowhere

    def one(paid, places):
        return jnp.zeros(width).at[places].add(paid, mode='drop')

    return jax.vmap(one)(rewards, at)


def generalised_advantage(reward, value, sampled, discount: float, trace: float):
    """A_t = d_t + discount trace A_u, d_t = r_t + discount V_u - V_t (arxiv.org/abs/1506.02438).

    u is the next sampled token after t; behind the last one V and A are 0.  All [row, token].
    Returns A and its target A + V for the critic, f32; both 0 where not sampled.  Numbers where not
    sampled are never looked at.
    """
    chex.assert_rank([reward, value, sampled], 2)
    chex.assert_equal_shape([reward, value, sampled])
    reward, value = jnp.where(sampled, reward, 0.0), jnp.where(sampled, value, 0.0)

    def back(later, now):
        (next_value, next_advantage), (paid, said, here) = later, now
        error = paid + discount * next_value - said
        advantage = error + discount * trace * next_advantage
        kept = jnp.where(here, said, next_value), jnp.where(here, advantage, next_advantage)
        return kept, jnp.where(here, advantage, 0.0)

    nothing = jnp.zeros(reward.shape[0])
    by_token = (reward.T, value.T, sampled.T)
    _, advantage = jax.lax.scan(back, (nothing, nothing), by_token, reverse=True)
    return advantage.T, advantage.T + value


def whitened(advantage, tokens):
    """(A - mean) / std over `tokens` (bool [row, token]), 0 elsewhere; no deviation counts as 1."""
    chex.assert_equal_shape([advantage, tokens])
    count = jnp.maximum(tokens.sum(), 1)
    centred = advantage - jnp.sum(advantage, where=tokens) / count
    std = jnp.sqrt(jnp.sum(jnp.square(centred), where=tokens) / count)
    return jnp.where(tokens, centred / jnp.where(std < 1e-6, 1.0, std), 0.0)
