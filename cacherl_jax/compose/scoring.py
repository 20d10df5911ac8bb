"""What is scored before an update: by the frozen reference, and by the policy about to change."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from cacherl_jax.compose.step import Own, row_lengths
from cacherl_jax.grpo.advantage import AdvantageSettings
from cacherl_jax.grpo.loss import Batch
from cacherl_jax.grpo.reference import make_reference, make_scoring
from cacherl_jax.grpo.sharing import Prompts, prompts_of
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.rollout_cache.mix import Mixed
from cacherl_jax.run.fetch import fetch
from cacherl_jax.trajectory import Trajectory


def prompts_in(rows: Trajectory | Batch, settings: UpdateSettings) -> Prompts | None:
    """What rows begin with, where they may share it."""
    return prompts_of(*fetch((rows.tokens, rows.sampled))) if settings.shared_widths else None


def reference_of(
    score: Partial, params: Any, settings: UpdateSettings, place: Callable, beside: int = 1
) -> Callable[[Trajectory], jax.Array]:
    """reference(fresh) -> log-probabilities under `params`, f32 [row, token].

    Zeros where the divergence weighs nothing: nobody looks at them.
    """
    if not settings.loss.kl_weight:
        return lambda fresh: jnp.zeros(fresh.tokens.shape, jnp.float32)
    scored = make_reference(score, settings, place, beside)
    return lambda fresh: scored(params, fresh, fetch(fresh.length), prompts_in(fresh, settings))


def own_of(
    score: Partial,
    settings: UpdateSettings,
    advantage: AdvantageSettings,
    place: Callable,
    beside: int = 1,
) -> Callable[[Any, Mixed], Own]:
    """own(learned, mixed) -> Own: what it is asked for by these settings, and nothing else."""
    wanted = {}
    if settings.loss.sampler_truncation is not None:
        wanted['logprob'] = 0
    if advantage.estimator == 'gae':
        wanted['value'] = 2
    if not wanted:
        return lambda learned, mixed: Own()
    scored = make_scoring(score, settings, place, tuple(wanted.values()), beside)

    def own(learned, mixed):
        lengths = np.asarray(row_lengths(mixed))
        if not lengths.any():
            nothing = jnp.zeros(mixed.trajectory.tokens.shape, jnp.float32)
            return Own(**dict.fromkeys(wanted, nothing))
        rows = mixed.trajectory
        found = scored(learned, rows, lengths, prompts_in(rows, settings))
        return Own(**dict(zip(wanted, found, strict=True)))

    return own
