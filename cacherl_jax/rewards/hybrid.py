"""The reward of an episode and of each of its turns.  Facts and weights in, Rewards out; jitted.

    turn[t]  = w_micro micro[t] + w_macro macro[t] + penalty[t]
    final    = w_final F,  F in [0, 1]
    total    = final + sum over turns of turn[t]

F is the answer's score; tier-aware it is a R_answer + (1 - a) R_process, with a by the worst tier
of the episode or, per turn, by the worst tier seen when the turn was taken (F is then the mean over
the turns).  A meta-reasoning answer has F = 0.  Penalties have no schedule: they do not fade.  With
the caps of the settings the total lies in
    [w_micro floor + penalty floor,  w_micro cap + w_macro cap + w_final];
it is not scaled to [0, 1], because advantages are relative.

A judge that abstains is no zero.  Such an episode is given the mean F of its judged siblings in the
total, so that it neither moves the group's mean nor is moved by this term, and `known` says so to
those who compare each of `terms` in the group before they sum (`advantage.components`).
"""

import dataclasses
import functools
from typing import Literal

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.rewards import terms
from cacherl_jax.rewards.facts import Facts
from cacherl_jax.schedule import Schedule

TierAware = Literal['off', 'worst', 'per_turn']


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightSettings:
    """Weight of each term over training: early the calls and sub-goals, later the answer."""

    micro: Schedule = Schedule(start=0.5, end=0.1, steps=500, shape='linear')
    macro: Schedule = Schedule(start=0.5, end=0.2, steps=500, shape='linear')
    final: Schedule = Schedule(start=0.5, end=1.0, steps=500, shape='linear')

    def __post_init__(self):
        for field in dataclasses.fields(self):
            values = getattr(self, field.name).values
            if min(values) < 0:
                raise ValueError(
                    f'the weight {field.name} must not be negative, got values {values}'
                )


@struct.dataclass
class Weights:
    """The weights of one step; arrays or floats, so that a schedule compiles nothing anew."""

    micro: jax.Array  # f32 []
    macro: jax.Array  # f32 []
    final: jax.Array  # f32 []


def weights_at(step: int, settings: WeightSettings) -> Weights:
    """The weights of a training step, counted from 0."""
    names = [field.name for field in dataclasses.fields(settings)]
    return Weights(**{name: jnp.float32(getattr(settings, name).at(step)) for name in names})


@dataclasses.dataclass(frozen=True, kw_only=True)
class HybridSettings:
    """What the terms pay, and how far the final one trusts the tool cache."""

    micro: terms.MicroSettings = terms.MicroSettings()
    macro: terms.MacroSettings = terms.MacroSettings()
    penalty: terms.PenaltySettings = terms.PenaltySettings()
    process: terms.ProcessSettings = terms.ProcessSettings()
    trust: terms.TrustSettings = terms.TrustSettings()
    tier_aware: TierAware = 'off'  # off: F is the answer's score; worst: by the episode; per_turn

    def __post_init__(self):
        if self.tier_aware not in TierAware.__args__:
            raise ValueError(
                f'tier_aware must be one of {TierAware.__args__}, got {self.tier_aware!r}'
            )


@struct.dataclass
class Rewards:
    """By name: micro, macro, penalty, final.  Values of rows that are not counted mean nothing."""

    total: jax.Array  # f32 [row]        the sum of terms
    turn: jax.Array  # f32 [row, turn]  micro, macro and penalty of turn_terms, where earned
    terms: dict[str, jax.Array]  # f32 [row]        weighted
    turn_terms: dict[str, jax.Array]  # f32 [row, turn]  weighted; final: as each turn is paid it
    raw: dict[str, jax.Array]  # f32 [row]        not weighted, of zeroed rows too; answer, process
    raw_turn: dict[str, jax.Array]  # f32 [row, turn]  not weighted
    known: dict[str, jax.Array]  # bool [row]       row belongs to the statistics of a name in raw
    counted: jax.Array  # bool [row]       row belongs to any statistics and to the loss

    @property
    def final(self) -> jax.Array:
        """The weighted final term, f32 [row]."""
        return self.terms['final']

    @property
    def final_by_turn(self) -> jax.Array:
        """The weighted final term as each turn is paid it, f32 [row, turn]."""
        return self.turn_terms['final']


@functools.partial(jax.jit, static_argnames='settings')
def hybrid_reward(facts: Facts, weights: Weights, settings: HybridSettings) -> Rewards:
    """total = w_final F + Σ_t (w_micro micro_t + w_macro macro_t + penalty_t); 0 where not kept."""
    chex.assert_rank([facts.played, facts.kept], [2, 1])
    earned = {
        'micro': terms.micro(facts, settings.micro),
        'macro': terms.macro(facts, settings.macro),
        'penalty': terms.penalty(facts, settings.penalty),
    }
    process = terms.process_score(facts, settings.process)
    worth, worth_turn = final_worth(facts, process, settings)
    raw = {name: x.sum(axis=1) for name, x in earned.items()} | {'final': worth}
    raw_turn = earned | {'final': worth_turn}
    kept = facts.kept[:, None]
    paid = {name: jnp.where(facts.kept, x, 0.0) for name, x in weighted(raw, weights).items()}
    paid_turn = {name: jnp.where(kept, x, 0.0) for name, x in weighted(raw_turn, weights).items()}
    known = dict.fromkeys((*earned, 'process'), facts.counted)
    known |= {'final': final_known(facts), 'answer': facts.counted & facts.judged}
    return Rewards(
        total=sum(paid.values()),
        turn=sum(paid_turn[name] for name in earned),
        terms=paid,
        turn_terms=paid_turn,
        raw=raw | {'answer': facts.answer_score, 'process': process},
        raw_turn=raw_turn,
        known=known,
        counted=facts.counted,
    )


def weighted(raw: dict[str, jax.Array], weights: Weights) -> dict[str, jax.Array]:
    """w_name x_name; they sum to the total.  Stored terms are paid anew by the weights of today."""
    chex.assert_rank([weights.micro, weights.macro, weights.final], 0)
    chex.assert_equal_shape([raw[name] for name in ('micro', 'macro', 'penalty', 'final')])
    return {
        'micro': weights.micro * raw['micro'],
        'macro': weights.macro * raw['macro'],
        'penalty': raw['penalty'],
        'final': weights.final * raw['final'],
    }


def final_known(facts: Facts) -> jax.Array:
    """Counted, and judged, clamped or zeroed: all but abstentions.  bool [row]."""
    return facts.counted & (facts.judged | facts.meta | ~facts.kept)


def final_worth(
    facts: Facts, process: jax.Array, settings: HybridSettings
) -> tuple[jax.Array, jax.Array]:
    """F = a R_answer + (1 − a) R_process [row] and F_t with a_t [row, turn], in [0, 1].

    Where F is not known, both are the mean F of the known siblings, or 0 where a group has none.
    """
    chex.assert_equal_shape([facts.answer_score, process])
    stands = facts.kept & ~facts.meta
    answer = jnp.where(stands, facts.answer_score, 0.0)
    process = jnp.where(stands, process, 0.0)
    episode, turn = answer_weight(facts, settings)
    worth = terms.tier_aware(answer, process, episode)
    paid = terms.tier_aware(answer[:, None], process[:, None], turn)
    known = final_known(facts)
    siblings = sibling_mean(worth, known, facts.group)
    worth = jnp.where(known, worth, siblings)
    paid = jnp.where(known[:, None], paid, siblings[:, None])
    return worth, jnp.where(facts.played, paid, 0.0)


def answer_weight(facts: Facts, settings: HybridSettings) -> tuple[jax.Array, jax.Array]:
    """a [row], a_t [row, turn]: 1; trust(worst tier); or trust(tier before t) and its mean."""
    chex.assert_equal_shape([facts.tier_before, facts.played])
    if settings.tier_aware == 'per_turn':
        turn = terms.trust(facts.tier_before, settings.trust)
        seen = jnp.sum(turn, where=facts.played, axis=1)
        return seen / jnp.maximum(facts.turns, 1), turn
    # One number an episode, not a mean of equal ones: equal answers stay equal to the last bit.
    off = settings.tier_aware == 'off'
    episode = terms.trust(facts.tier_worst, settings.trust)
    episode = jnp.ones_like(episode) if off else episode
    return episode, jnp.broadcast_to(episode[:, None], facts.played.shape)


def sibling_mean(x: jax.Array, keep: jax.Array, group: jax.Array) -> jax.Array:
    """Mean of x over the kept rows of each row's group; 0 where none is kept.  f32 [row]."""
    chex.assert_equal_shape([x, keep, group])
    add = functools.partial(jax.ops.segment_sum, segment_ids=group, num_segments=x.shape[0])
    total, count = add(jnp.where(keep, x, 0.0)), add(keep.astype(jnp.float32))
    return (total / jnp.maximum(count, 1))[group]
