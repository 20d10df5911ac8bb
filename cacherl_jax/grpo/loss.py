"""The loss, term by term, as on a board.  Log-probabilities in, sums over tokens out.

Everything is [row, token]: `logprob[row, t]` is the log-probability of `tokens[row, t]` given what
stands before it.  Each term is a sum over tokens, divided by a denominator counted once over the
whole batch, so cutting the batch into micro-batches, or padding it, changes nothing.  Numbers at
positions that are not sampled are never looked at; they may be NaN.
"""

import dataclasses
import math
from typing import Literal

import chex
import jax
import jax.numpy as jnp
from flax import struct

FRESH, CACHED, SUPERVISED, LEFT_OUT, TEXT = range(5)  # the kinds of rows

# Which kinds of rows feed a term: the policy is held near the reference where it acts itself.
KINDS = {
    'policy': (FRESH, CACHED),
    'kl': (FRESH,),
    'entropy': (FRESH,),
    'supervised': (SUPERVISED,),
    'language': (TEXT,),
    'value': (FRESH,),  # where there is a critic
}
LOG_RATIO_BOUND = 20.0  # exp(20) is finite in every float format, and far beyond any clip
K3_BOUND = 5.0  # from here on k3 goes straight, with the slope it has


@struct.dataclass
class Batch:
    """Rows of one update; padding is known by `length` and `kind`."""

    tokens: jax.Array  # i32  [row, token]
    length: jax.Array  # i32  [row]
    sampled: jax.Array  # bool [row, token]  tokens with a loss; never position 0
    behaviour_logprob: jax.Array  # f32  [row, token]  of the policy that sampled the row
    reference_logprob: jax.Array  # f32  [row, token]  of the frozen reference
    advantage: jax.Array  # f32  [row, token]
    kind: jax.Array  # i32  [row]  FRESH, CACHED, SUPERVISED, LEFT_OUT or TEXT; packed: [row, token]
    # Of packed rows only (grpo/packing.py): each token's place in its row of before, and which row.
    position: jax.Array | None = None  # i32  [row, token]
    segment: jax.Array | None = None  # i32  [row, token]
    # Where rows share prompts (grpo/sharing.py): tokens for a prompt, and for each row behind it.
    split: tuple[int, int] | None = struct.field(default=None, pytree_node=False)
    # Of the policy before the update, by the trainer's numerics; None: the sampler's will do.
    trainer_logprob: jax.Array | None = None  # f32  [row, token]
    value_target: jax.Array | None = None  # f32  [row, token]  of the critic; None: there is none

    @property
    def token_kind(self) -> jax.Array:
        """The kind of each token, i32 [row, 1] or, packed, [row, token]."""
        return self.kind[:, None] if self.segment is None else self.kind

    @property
    def old_logprob(self) -> jax.Array:
        """What a ratio is taken to, f32 [row, token]: of fresh rows the trainer's, where given."""
        if self.trainer_logprob is None:
            return self.behaviour_logprob
        fresh = self.token_kind == FRESH
        return jnp.where(fresh, self.trainer_logprob, self.behaviour_logprob)

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the loss that this batch has."""
        return tuple(t for t in KINDS if t != 'value' or self.value_target is not None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Weights of the terms and the shape of the policy objective."""

    policy_weight: float = 1.0
    kl_weight: float = 0.05  # of the divergence from the reference
    entropy_weight: float = 0.0  # of the bonus for entropy
    supervised_weight: float = 1.0  # of the cross-entropy on supervised rows
    language_weight: float = 0.0  # of the next-token loss on text rows, against forgetting
    value_weight: float = 0.5  # of the critic's squared error, where there is a critic
    clip_low: float = 0.2  # a ratio below 1 - clip_low earns nothing more
    clip_high: float = 0.2  # a ratio above 1 + clip_high earns nothing more
    dual_clip: float | None = None  # bound, in advantages, on the loss of a bad token; above 1
    cached_ratio: Literal['behaviour', 'shaped'] = 'behaviour'  # truncated, or w/(w + s)
    truncation: float = 2.0  # largest importance weight of a cached token
    shaping: float = 0.1  # s of the shaped ratio
    sampler_truncation: float | None = None  # largest weight of trainer over sampler; None: off
    kl: Literal['k1', 'k2', 'k3'] = 'k3'  # estimator of the divergence
    aggregation: Literal['token', 'sequence', 'constant'] = 'token'  # not of text rows
    constant_tokens: int = 1024  # a row's divisor under constant aggregation

    def __post_init__(self):
        for name in KINDS:
            weight = getattr(self, f'{name}_weight')
            if not 0 <= weight < math.inf:
                raise ValueError(f'{name}_weight must be 0 or more, got {weight}')
        if not (0 < self.clip_low < 1 and self.clip_high > 0):
            raise ValueError(
                'clip_low must be in (0, 1) and clip_high above 0, '
                f'got {self.clip_low} and {self.clip_high}'
            )
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f'dual_clip must be above 1, got {self.dual_clip}')
        if self.truncation < 1 + self.clip_high:
            raise ValueError(
                f'truncation must be 1 + clip_high ({1 + self.clip_high}) or more, '
                f'got {self.truncation}'
            )
        if self.sampler_truncation is not None and self.sampler_truncation < 1:
            raise ValueError(f'sampler_truncation must be 1 or more, got {self.sampler_truncation}')
        if self.shaping <= 0:
            raise ValueError(f'shaping must be above 0, got {self.shaping}')
        if self.constant_tokens < 1:
            raise ValueError(f'constant_tokens must be 1 or more, got {self.constant_tokens}')
        for name, allowed in (
            ('cached_ratio', ('behaviour', 'shaped')),
            ('kl', tuple(KL)),
            ('aggregation', ('token', 'sequence', 'constant')),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f'{name} must be one of {allowed}, got {getattr(self, name)!r}')


def k1(logprob, reference_logprob):
    """log pi - log ref: unbiased, may be negative; its gradient has mean 0, so it holds nothing."""
    return logprob - reference_logprob


def k2(logprob, reference_logprob):
    """(log pi - log ref)^2 / 2: never negative, biased, with the gradient of the divergence."""
    return 0.5 * jnp.square(logprob - reference_logprob)


def k3(logprob, reference_logprob):
    """exp(d) - d - 1, d = log ref - log pi (joschu.net/blog/kl-approx.html).

    Unbiased and never negative.  Above `K3_BOUND` exp goes on as its tangent, so that one token
    cannot own the gradient.
    """
    difference = reference_logprob - logprob
    bounded = jnp.minimum(difference, K3_BOUND)
    beyond = difference - bounded
    return jnp.exp(bounded) + jnp.exp(K3_BOUND) * beyond - difference - 1


KL = {'k1': k1, 'k2': k2, 'k3': k3}


def log_ratio(logprob, behaviour_logprob):
    """log(pi / behaviour), bounded so that its exp stays finite."""
    return jnp.clip(logprob - behaviour_logprob, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def clipped_objective(ratio, advantage, settings: LossSettings):
    """min(w A, clip(w, 1-low, 1+high) A), elementwise (arxiv.org/abs/1707.06347)."""
    clipped = jnp.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    return jnp.minimum(ratio * advantage, clipped * advantage)


def dual_clipped_objective(ratio, advantage, settings: LossSettings):
    """max(clipped, dual A) where A < 0: a bad token costs no more (arxiv.org/abs/1912.09729)."""
    objective = clipped_objective(ratio, advantage, settings)
    if settings.dual_clip is None:
        return objective
    bounded = jnp.maximum(objective, settings.dual_clip * advantage)
    return jnp.where(advantage < 0, bounded, objective)


def truncated_ratio(logprob, behaviour_logprob, truncation):
    """min(w, truncation), whose gradient is min(w, truncation) grad log pi above the bound too."""
    weight = jnp.exp(jnp.minimum(log_ratio(logprob, behaviour_logprob), math.log(truncation)))
    return jax.lax.stop_gradient(weight) * jnp.exp(logprob - jax.lax.stop_gradient(logprob))


def shaped_ratio(logprob, behaviour_logprob, shaping):
    """w / (w + s): what the policy finds unlikely still teaches (arxiv.org/abs/2504.14945)."""
    return jax.nn.sigmoid(log_ratio(logprob, behaviour_logprob) - math.log(shaping))


def cached_objective(logprob, behaviour_logprob, advantage, settings: LossSettings):
    """What a cached token earns: clipped with a truncated weight, or with the shaped one."""
    if settings.cached_ratio == 'shaped':
        return shaped_ratio(logprob, behaviour_logprob, settings.shaping) * advantage
    ratio = truncated_ratio(logprob, behaviour_logprob, settings.truncation)
    return clipped_objective(ratio, advantage, settings)


def sampler_weight(batch: Batch, settings: LossSettings):
    """min(trainer / sampler, bound), f32 [row, token]; 1 of cached rows and where it is off.

    The sampler's numerics are not the trainer's (bf16, a KV cache): what was drawn by the one is
    weighed for the other, and the ratio tells what updates did, alone
    (fengyao.notion.site/off-policy-rl).
    """
    if batch.trainer_logprob is None or settings.sampler_truncation is None:
        return jnp.float32(1)
    fresh = batch.sampled & (batch.token_kind == FRESH)
    log = log_ratio(batch.trainer_logprob, batch.behaviour_logprob)
    weight = jnp.exp(jnp.minimum(log, math.log(settings.sampler_truncation)))
    return jnp.where(fresh, weight, 1.0)


def term_tokens(batch: Batch, term: str):
    """bool [row, token]: the tokens that feed a term."""
    return batch.sampled & jnp.isin(batch.token_kind, jnp.array(KINDS[term]))


def row_tokens(tokens, segment=None):
    """How many of `tokens` its row has, i32 [row, 1]; packed, its row of before: [row, token]."""
    if segment is None:
        return tokens.sum(axis=1, keepdims=True)
    width = tokens.shape[1]
    place = jnp.where(segment < 0, width, segment)  # out of range: padding counts nowhere

    def one(held, places):
        counts = jnp.zeros(width, jnp.int32).at[places].add(held, mode='drop')
        return counts.at[places].get(mode='fill', fill_value=0)

    return jax.vmap(one)(tokens.astype(jnp.int32), place)


def token_weight(tokens, term: str, settings: LossSettings, segment=None):
    """What a token weighs in its row: 1, 1 / tokens of the row, or 1 / constant.

    f32 [row, 1], or [row, token] where rows are packed.
    """
    count = row_tokens(tokens, segment)
    if settings.aggregation == 'token' or term in ('supervised', 'language'):
        return jnp.ones(count.shape, jnp.float32)
    if settings.aggregation == 'sequence':
        return 1.0 / jnp.maximum(count, 1).astype(jnp.float32)
    return jnp.full(count.shape, 1.0 / settings.constant_tokens, jnp.float32)


def denominators(batch: Batch, settings: LossSettings) -> dict:
    """What each term is divided by, over the whole batch: tokens, or rows that have any."""
    chex.assert_equal_shape([batch.tokens, batch.sampled])
    by_token = settings.aggregation == 'token'
    counts = {}
    for term in batch.terms:
        tokens = term_tokens(batch, term)
        whole = by_token or term in ('supervised', 'language')
        count = tokens.sum() if whole else tokens.any(axis=1).sum()
        counts[term] = jnp.maximum(count, 1).astype(jnp.float32)
    return counts


def term_values(logprob, entropy, batch: Batch, settings: LossSettings, value=None) -> dict:
    """Each term's loss at each token, f32 [row, token]; finite, whatever the padding holds.

    `value` is the critic's, f32 [row, token]; a batch that has targets needs it.
    """
    chex.assert_equal_shape([logprob, entropy, batch.advantage, batch.behaviour_logprob])
    sampled = batch.sampled & (batch.token_kind != LEFT_OUT)
    logprob, entropy = jnp.where(sampled, logprob, 0.0), jnp.where(sampled, entropy, 0.0)
    acting = term_tokens(batch, 'policy')
    behaviour = jnp.where(acting, batch.old_logprob, jax.lax.stop_gradient(logprob))
    reference = jnp.where(term_tokens(batch, 'kl'), batch.reference_logprob, 0.0)
    advantage = jnp.where(acting, batch.advantage * sampler_weight(batch, settings), 0.0)
    fresh = dual_clipped_objective(jnp.exp(log_ratio(logprob, behaviour)), advantage, settings)
    cached = cached_objective(logprob, behaviour, advantage, settings)
    critic = {}
    if batch.value_target is not None:
        tokens = term_tokens(batch, 'value')
        error = jnp.where(tokens, value, 0.0) - jnp.where(tokens, batch.value_target, 0.0)
        critic = {'value': 0.5 * jnp.square(error)}
    return critic | {
        'policy': -jnp.where(batch.token_kind == CACHED, cached, fresh),
        'kl': KL[settings.kl](logprob, reference),
        'entropy': -entropy,
        'supervised': -logprob,
        'language': -logprob,
    }


def numerators(values: dict, batch: Batch, settings: LossSettings) -> dict:
    """Weighted sums of the terms over their tokens."""
    sums = {}
    for term, value in values.items():
        tokens = term_tokens(batch, term)
        weight = token_weight(tokens, term, settings, batch.segment)
        sums[term] = jnp.sum(value * weight, where=tokens)
    return sums


def total(sums: dict, divisors: dict, settings: LossSettings):
    """sum over terms of weight * numerator / denominator."""
    return sum(getattr(settings, f'{t}_weight') * sums[t] / divisors[t] for t in KINDS if t in sums)
