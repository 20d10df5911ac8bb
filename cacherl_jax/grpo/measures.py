"""What an update reports besides its loss: clipping, ratios, divergence.  Sums, then means.

Fresh and cached tokens are counted apart, since their ratios say different things.  The quantiles
of the cached ratio are read off a histogram of its logarithm, which adds up over micro-batches.
"""

import jax.numpy as jnp
import numpy as np

from cacherl_jax.grpo.loss import (
    CACHED,
    FRESH,
    KINDS,
    KL,
    LEFT_OUT,
    TEXT,
    Batch,
    LossSettings,
    k3,
    log_ratio,
    term_tokens,
)

BINS = 80
BIN_EDGES = np.linspace(-4.0, 4.0, BINS + 1)  # of log ratio; the rest is counted in the end bins
QUANTILES = {'p10': 0.1, 'p50': 0.5, 'p90': 0.9}


def clip_acts(ratio, advantage, settings: LossSettings):
    """True where the clip takes a token's gradient away."""
    above = (advantage > 0) & (ratio > 1 + settings.clip_high)
    return above | ((advantage < 0) & (ratio < 1 - settings.clip_low))


def token_sums(logprob, entropy, batch: Batch, settings: LossSettings) -> dict:
    """Sums over the sampled tokens of fresh and of cached rows."""
    acting = term_tokens(batch, 'policy')
    logprob = jnp.where(acting, logprob, 0.0)
    behaviour = jnp.where(acting, batch.old_logprob, 0.0)
    log = log_ratio(logprob, behaviour)
    clipped = clip_acts(jnp.exp(log), batch.advantage, settings)
    sums = {}
    for name, kind in (('policy', FRESH), ('cached', CACHED)):
        tokens = acting & (batch.token_kind == kind)
        sums |= {
            f'{name}/tokens': tokens.sum().astype(jnp.float32),
            f'{name}/clip_fraction': jnp.sum(clipped, where=tokens).astype(jnp.float32),
            f'{name}/ratio_mean': jnp.sum(jnp.exp(log), where=tokens),
            f'{name}/ratio_square': jnp.sum(jnp.exp(2 * log), where=tokens),
        }
    fresh, cached = term_tokens(batch, 'kl'), acting & (batch.token_kind == CACHED)
    reference = jnp.where(fresh, batch.reference_logprob, 0.0)
    return sums | {
        'policy/entropy': jnp.sum(entropy, where=fresh),
        'policy/kl': jnp.sum(KL[settings.kl](logprob, reference), where=fresh),
        'policy/approx_kl': jnp.sum(k3(behaviour, logprob), where=fresh),
        'policy/ratio_deviation': jnp.sum(jnp.abs(log), where=fresh),
        'cached/histogram': _histogram(log, cached),
    }


def term_means(sums: dict, divisors: dict) -> dict:
    """Each term of the loss before its weight."""
    return {f'loss/{term}': sums[term] / divisors[term] for term in KINDS if term in sums}


def token_means(sums: dict) -> dict:
    """Means and quantiles from the sums of all micro-batches; 0 where there was no token."""
    sums = dict(sums)
    counts = sums.pop('cached/histogram')
    squares = {name: sums.pop(f'{name}/ratio_square') for name in ('policy', 'cached')}
    means = {name: sums[name] for name in ('policy/tokens', 'cached/tokens')}
    for name in sums.keys() - means.keys():
        tokens = sums[f'{name.split("/")[0]}/tokens']
        means[name] = sums[name] / jnp.maximum(tokens, 1)
    for name, square in squares.items():
        # (sum w)^2 / (tokens sum w^2): 1 where all weigh alike, 1 / tokens where one weighs all.
        whole = sums[f'{name}/ratio_mean'] * means[f'{name}/ratio_mean']
        means[f'{name}/effective_fraction'] = jnp.where(square > 0, whole / square, 0.0)
    reached = jnp.cumsum(counts)
    middle = jnp.asarray((BIN_EDGES[1:] + BIN_EDGES[:-1]) / 2)
    for name, share in QUANTILES.items():
        place = jnp.searchsorted(reached, share * reached[-1])
        ratio = jnp.exp(middle[jnp.minimum(place, BINS - 1)])
        means[f'cached/ratio_{name}'] = jnp.where(reached[-1] > 0, ratio, 0.0)
    return means


def batch_facts(batch: Batch) -> dict:
    """What is known before any scoring: rows, tokens, rows with nothing to teach, whose credit."""
    acting = term_tokens(batch, 'policy')
    rows = acting.any(axis=1)
    silent = rows & ~jnp.any((batch.advantage != 0) & acting, axis=1)
    mass = jnp.where(acting, jnp.abs(batch.advantage), 0.0).sum(axis=1)
    cached = jnp.sum(mass, where=batch.kind == CACHED)
    used = batch.sampled & ((batch.kind != LEFT_OUT) & (batch.kind != TEXT))[:, None]
    return {
        'update/tokens': used.sum().astype(jnp.float32),
        'update/rows': used.any(axis=1).sum().astype(jnp.float32),
        'update/zero_advantage_rows': silent.sum() / jnp.maximum(rows.sum(), 1),
        'cached/advantage_share': jnp.where(cached > 0, cached / mass.sum(), 0.0),
    }


def _histogram(log, tokens):
    place = jnp.clip(jnp.searchsorted(BIN_EDGES, log) - 1, 0, BINS - 1)
    return jnp.zeros(BINS).at[place].add(jnp.where(tokens, 1.0, 0.0))
