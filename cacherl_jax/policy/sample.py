"""From logits to a token and its log-probability, by the same code for sampler and trainer."""

import dataclasses
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

FORBIDDEN = -1e30
DRAW_BLOCK = 256  # tokens of the vocabulary that are drawn among together


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """The distribution that tokens are drawn from."""

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # keep the k likeliest tokens; 0 keeps all
    top_p: float = 1.0  # keep the smallest set of likeliest tokens with at least this mass
    min_p: float = 0.0  # keep tokens at least this share of the likeliest one's probability
    min_tokens: int = 0  # the first turn may not end before this many tokens

    def __post_init__(self):
        if not 0 < self.top_p <= 1:
            raise ValueError(f'top_p must be in (0, 1], got {self.top_p}')
        if not 0 <= self.min_p <= 1:
            raise ValueError(f'min_p must be in [0, 1], got {self.min_p}')
        for name in ('temperature', 'top_k', 'min_tokens'):
            if getattr(self, name) < 0:
                raise ValueError(f'{name} must not be negative, got {getattr(self, name)}')


class RowSampling(NamedTuple):
    """The fields of SamplingSettings: one for all rows, or an array [row, 1] where rows differ."""

    temperature: float | jax.Array
    top_k: int | jax.Array
    top_p: float | jax.Array
    min_p: float | jax.Array
    min_tokens: int | jax.Array


def by_row(choices: tuple[SamplingSettings, ...], choice: jax.Array) -> RowSampling:
    """What each row draws by: choice i32 [row] counts through the settings, again and again."""

    def told(name):
        values = [getattr(each, name) for each in choices]
        if len(set(values)) == 1:
            return values[0]
        return jnp.array(values)[choice % len(values)][:, None]

    return RowSampling(*map(told, RowSampling._fields))


def off(setting, neutral) -> bool:
    """Whether a setting does nothing in any row."""
    return not isinstance(setting, jax.Array) and setting == neutral


def shaped_logprobs(logits: jax.Array, settings: SamplingSettings | RowSampling) -> jax.Array:
    """Log-probabilities f32 [..., vocab] of the distribution sampled from.

    log softmax(logits / temperature), then renormalised over what top-k, top-p and min-p keep.
    Greedy is the point mass on the likeliest token.
    """
    logits, temperature = logits.astype(jnp.float32), settings.temperature
    if not isinstance(temperature, jax.Array):
        return _drawn(logits, temperature, settings) if temperature else _greedy(logits)
    drawn = _drawn(logits, jnp.where(temperature == 0, 1.0, temperature), settings)
    return jnp.where(temperature == 0, _greedy(logits), drawn)


def _greedy(logits):
    best = jax.nn.one_hot(jnp.argmax(logits, -1), logits.shape[-1], dtype=bool)
    return jnp.where(best, 0.0, FORBIDDEN)


def _drawn(logits, temperature, settings):
    logprob = jax.nn.log_softmax(logits / temperature)
    keep = _kept(logprob, settings)
    return logprob if keep is None else jax.nn.log_softmax(jnp.where(keep, logprob, FORBIDDEN))


def _kept(logprob, settings):
    """Which tokens the filters keep, bool [..., vocab]; None where no filter is on."""
    vocab, keep = logprob.shape[-1], None
    if not (off(settings.top_k, 0) and off(settings.top_p, 1)):
        order = jnp.argsort(-logprob, axis=-1)
        rank = jnp.argsort(order, axis=-1)
        keep = rank < jnp.where(jnp.equal(settings.top_k, 0), vocab, settings.top_k)
        if not off(settings.top_p, 1):
            mass = jnp.cumsum(jnp.exp(jnp.take_along_axis(logprob, order, -1)), -1)
            before = jnp.take_along_axis(mass, rank, -1) - jnp.exp(logprob)
            keep = keep & ((before < settings.top_p) | jnp.equal(settings.top_p, 1))
    if not off(settings.min_p, 0):
        likely = logprob >= logprob.max(-1, keepdims=True) + jnp.log(settings.min_p)
        keep = likely if keep is None else keep & likely
    return keep


def forbid(logits: jax.Array, token_ids: tuple[int, ...], where: jax.Array) -> jax.Array:
    """Take `token_ids` out of the running where `where` bool [...] holds (for `min_tokens`)."""
    banned = jnp.zeros(logits.shape[-1], bool).at[jnp.array(token_ids)].set(True)
    return jnp.where(where[..., None] & banned, FORBIDDEN, logits)


def draw(logprob: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One token a row by inverse transform: the first whose cumulated probability exceeds u.

    logprob f32 [row, vocab], key [row] of PRNG keys -> token i32 [row], its logprob f32 [row].
    One random number a row, where Gumbel noise would need one for each token of the vocabulary;
    first for a block of the vocabulary, then within it, so that nothing long is cumulated.
    """
    chex.assert_rank([logprob, key], [2, 1])
    padding = (0, 0), (0, -logprob.shape[1] % DRAW_BLOCK)
    mass = jnp.pad(jnp.exp(logprob), padding).reshape(logprob.shape[0], -1, DRAW_BLOCK)
    blocks = mass.sum(-1)
    uniform = jax.vmap(jax.random.uniform)(key)
    block, rest = _first_beyond(blocks, uniform * blocks.sum(-1))
    within = jnp.take_along_axis(mass, block[:, None, None], 1)[:, 0]
    token = block * DRAW_BLOCK + _first_beyond(within, rest)[0]
    return token, jnp.take_along_axis(logprob, token[:, None], -1)[:, 0]


def _first_beyond(mass, target):
    """Of mass [row, n] the first place where the sum exceeds target [row], and what of it is left.

    Rounding may point behind the last mass or before the first: a place without mass is never told.
    """
    reached = jnp.cumsum(mass, -1)
    target = jnp.maximum(target, 0.0)
    last = jnp.max(jnp.where(mass > 0, jnp.arange(mass.shape[-1]), 0), -1)
    place = jnp.minimum(jnp.sum(reached <= target[:, None], -1), last).astype(jnp.int32)
    before = jnp.take_along_axis(reached - mass, place[:, None], -1)[:, 0]
    return place, target - before
