"""How much better a row, or a turn, did than its group.  Rewards in, advantages out.

A row is compared with the rows that carry its group number, wherever they stand.  Rows that do not
count (spoiled by infrastructure, or without a verdict) are neither compared nor compared with.
"""

import dataclasses
from typing import Literal

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.trajectory import Trajectory

SAME_REWARD = 1e-5  # rewards closer than this are the same reward: float32 means round


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageSettings:
    """What a reward is compared with, and in which unit."""

    estimator: Literal['group', 'gae'] = 'group'  # compare with siblings, or with a critic
    discount: float = 1.0  # gae: what the next token's expectation is worth, in [0, 1]
    trace: float = 0.95  # gae: how far a reward is credited beyond the critic's word, in [0, 1]
    std: bool = True  # divide by the deviation (population) of the rows compared with
    components: bool = False  # compare each component of the reward by itself, then sum
    leave_one_out: bool = False  # a row is compared with its siblings alone, not with itself too
    baseline: Literal['union', 'fresh', 'running'] = 'union'  # group, its fresh rows, task history
    turn_weight: float = 1.0  # of the per-turn advantage beside the episode's
    turn_baseline: Literal['turns', 'place'] = 'turns'  # all turns of the group, or those as late
    turn_discount: float = 0.0  # what a later turn's reward is worth one turn earlier, in [0, 1]
    stratified: bool = False  # group numbers tell rows of one task apart by their worst cache tier

    def __post_init__(self):
        if self.estimator not in ('group', 'gae'):
            raise ValueError(f'estimator must be group or gae, got {self.estimator!r}')
        compared = self.leave_one_out or self.stratified or self.baseline != 'union'
        if self.estimator == 'gae' and (compared or self.components):
            raise ValueError(
                'estimator gae compares with a critic: components, leave_one_out, stratified and a '
                'baseline other than union have no meaning with it'
            )
        for name in ('discount', 'trace'):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f'{name} must be in [0, 1], got {getattr(self, name)}')
        if self.baseline not in ('union', 'fresh', 'running'):
            raise ValueError(f'baseline must be union, fresh or running, got {self.baseline!r}')
        if self.turn_baseline not in ('turns', 'place'):
            raise ValueError(f'turn_baseline must be turns or place, got {self.turn_baseline!r}')
        if self.baseline == 'running' and self.stratified:
            raise ValueError('a task has one history: stratified needs the union or fresh baseline')
        if self.baseline == 'running' and self.components:
            raise ValueError('a task has one history: components need the union or fresh baseline')
        if self.baseline == 'running' and self.leave_one_out:
            raise ValueError('leave_one_out has no meaning with the running baseline')
        if not 0 <= self.turn_discount <= 1:
            raise ValueError(f'turn_discount must be in [0, 1], got {self.turn_discount}')
        if not 0 <= self.turn_weight < float('inf'):
            raise ValueError(f'turn_weight must be 0 or more, got {self.turn_weight}')


@struct.dataclass
class Running:
    """What earlier fresh episodes of each row's task were paid."""

    mean: jax.Array  # f32  [row]
    std: jax.Array  # f32  [row]  population
    seen: jax.Array  # bool [row]  False where the task has no history: its rows get 0


@struct.dataclass
class Comparison:
    """What the entries of each row are compared with."""

    mean: jax.Array  # f32 [row]
    std: jax.Array  # f32 [row]
    lowest: jax.Array  # f32 [row]  inf where there is nothing to compare with
    highest: jax.Array  # f32 [row]  -inf where there is nothing to compare with


def group_advantage(
    reward, group, fresh, counted, settings: AdvantageSettings, running: Running | None = None
):
    """A = (reward - mean) / std over the row's group (arxiv.org/abs/2402.03300), f32 [row].

    Exactly 0 where the rows compared agree within `SAME_REWARD`, for a group of one, and for rows
    that do not count.  A comparison whose own deviation is nothing counts as deviation 1.
    """
    chex.assert_rank([reward, group, fresh, counted], 1)
    chex.assert_equal_shape([reward, group, fresh, counted])
    reward, counted_entry = reward[:, None], counted[:, None]
    if settings.baseline == 'running':
        if running is None:
            raise ValueError('the running baseline needs the running statistics of each row')
        near = _history(running)
        counted_entry &= running.seen[:, None]
    else:
        near = _compare(reward, counted_entry, group, fresh, settings)
    return _advantage(reward, counted_entry, near, settings)[:, 0]


def component_advantage(
    component, known, weight, group, fresh, counted, settings: AdvantageSettings
):
    """A = sum_k w_k (r_k - mean_k) / std_k, f32 [row] (arxiv.org/abs/2601.05242).

    Compared, then summed, no component drowns in the deviation of another.  component f32 and known
    bool [row, term]; weight f32 [term].  A row whose component is not known stands outside its
    comparison and has 0 of it.  With one component of weight 1 it is `group_advantage`.
    """
    chex.assert_rank([component, known, weight], [2, 2, 1])
    chex.assert_equal_shape([component, known])
    chex.assert_equal_shape([component[0], weight])

    def one(reward, has):
        return group_advantage(reward, group, fresh, counted & has, settings)

    each = jax.vmap(one, in_axes=1, out_axes=1)(component, known)
    return jnp.sum(each * weight, axis=1)


def turn_advantage(turn_reward, present, group, fresh, counted, settings: AdvantageSettings):
    """The same over the turns of the group's rows, f32 [row, turn] (process supervision).

    A turn's credit is sum_s discount^(s - t) reward_s over s >= t; it is compared with the credits
    of all present turns of the group.  Under the running baseline, with those of fresh rows.
    `turn_baseline` place: with those of turns as late as it, so that a step of the way that pays
    nothing is not blamed for it: rows that went the same way get exactly 0.
    """
    chex.assert_rank([turn_reward, present], 2)
    chex.assert_equal_shape([turn_reward, present])
    chex.assert_equal_shape([group, fresh, counted, turn_reward[:, 0]])
    present = present & counted[:, None]
    credit = _discounted(jnp.where(present, turn_reward, 0.0), settings.turn_discount)

    def among(credit, present):
        return _advantage(
            credit, present, _compare(credit, present, group, fresh, settings), settings
        )

    if settings.turn_baseline == 'turns':
        return among(credit, present)
    one_turn = jax.vmap(lambda c, p: among(c[:, None], p[:, None])[:, 0], in_axes=1, out_axes=1)
    return one_turn(credit, present)


def token_advantage(
    episode_advantage,
    turn_advantage,
    trajectory: Trajectory,
    final_turn,
    settings: AdvantageSettings,
    final_advantage=None,
):
    """episode + turn_weight * turn's own at sampled tokens, 0 at forced ones, f32 [row, token].

    Tokens of `final_turn` (i32 [row]; -1 where a row gave no answer) get `final_advantage` alone,
    which is the episode's unless handed in: the answer is not paid for the calls before it.
    """
    chex.assert_rank([episode_advantage, final_turn], 1)
    chex.assert_rank(turn_advantage, 2)
    chex.assert_equal_shape([trajectory.turn, trajectory.sampled])
    if final_advantage is None:
        final_advantage = episode_advantage
    turns = turn_advantage.shape[1]
    place = jnp.clip(trajectory.turn, 0, turns - 1)
    own = jnp.take_along_axis(turn_advantage, place, axis=1)
    own = jnp.where((trajectory.turn >= 0) & (trajectory.turn < turns), own, 0.0)
    final = (trajectory.turn == final_turn[:, None]) & (final_turn >= 0)[:, None]
    before = episode_advantage[:, None] + settings.turn_weight * own
    advantage = jnp.where(final, final_advantage[:, None], before)
    return jnp.where(trajectory.sampled, advantage, 0.0)


def _compare(value, present, group, fresh, settings) -> Comparison:
    """Mean, deviation and range of what each row's entries are compared with.  Two passes."""
    sibling = group[:, None] == group[None, :]  # [row, row compared with]
    if settings.leave_one_out:
        sibling &= ~jnp.eye(group.shape[0], dtype=bool)
    member = present if settings.baseline == 'union' else present & fresh[:, None]
    value = jnp.where(member, value, 0.0)
    count = jnp.sum(member.sum(axis=1)[None, :], where=sibling, axis=1)
    mean = jnp.sum(value.sum(axis=1)[None, :], where=sibling, axis=1) / jnp.maximum(count, 1)
    among = sibling[:, :, None] & member[None, :, :]
    square = jnp.square(value[None, :, :] - mean[:, None, None])
    variance = jnp.sum(square, where=among, axis=(1, 2)) / jnp.maximum(count, 1)
    lowest = jnp.where(member, value, jnp.inf).min(axis=1)
    highest = jnp.where(member, value, -jnp.inf).max(axis=1)
    return Comparison(
        mean=mean,
        std=jnp.sqrt(variance),
        lowest=jnp.where(sibling, lowest[None, :], jnp.inf).min(axis=1),
        highest=jnp.where(sibling, highest[None, :], -jnp.inf).max(axis=1),
    )


def _history(running: Running) -> Comparison:
    return Comparison(
        mean=running.mean,
        std=running.std,
        lowest=running.mean - running.std,
        highest=running.mean + running.std,
    )


def _advantage(value, present, near: Comparison, settings):
    """Entries against their comparison; the range, not the deviation, decides what agrees."""
    lowest, highest = near.lowest[:, None], near.highest[:, None]
    alone = lowest > highest
    undecided = jnp.maximum(highest, value) - jnp.minimum(lowest, value) < SAME_REWARD
    agreeing = highest - lowest < SAME_REWARD
    unit = jnp.where(agreeing | (not settings.std), 1.0, near.std[:, None])
    centred = jnp.where(present, value - near.mean[:, None], 0.0)
    return jnp.where(present & ~alone & ~undecided, centred / unit, 0.0)


def _discounted(reward, discount):
    """sum_s discount^(s - t) reward_s over s >= t, from the last turn to the first."""

    def back(later, now):
        credit = now + discount * later
        return credit, credit

    _, credit = jax.lax.scan(back, jnp.zeros_like(reward[:, 0]), reward.T, reverse=True)
    return credit.T
