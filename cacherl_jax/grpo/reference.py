"""What rows are scored under parameters that rest meanwhile, cut into micro-batches as updates are.

The frozen reference says log-probabilities; the policy that an update begins from says its own by
the trainer's numerics, and its critic's values.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from cacherl_jax.grpo.update import UpdateSettings, as_it_is, plan_micro_batches
from cacherl_jax.trajectory import Trajectory


def make_scoring(
    score: Callable,
    settings: UpdateSettings,
    place: Callable = as_it_is,
    which: tuple[int, ...] = (0,),
) -> Callable:
    """scoring(params, rows: Trajectory, lengths) -> tuple of f32 [row, token]; 0 where length is 0.

    `score(params, tokens, length, sampled)` is the update's own, and `which` of its results are
    wanted: 0 log-probability, 1 entropy, 2 a critic's value.  `place` is the update's too.
    """
    score = score if isinstance(score, Partial) else Partial(score)

    @jax.jit
    def begin(tokens):
        return tuple(jnp.zeros(tokens.shape, jnp.float32) for _ in which)

    def one(found, score, params, rows: Trajectory, chosen, width):
        """A place past the last row is no row: it is scored nowhere and written nowhere."""
        sampled = rows.sampled[chosen, :width] & (chosen < rows.length.shape[0])[:, None]
        cut = place((rows.tokens[chosen, :width], rows.length[chosen], sampled))
        told = score(params, *cut)
        return tuple(
            old.at[chosen, :width].set(told[number], mode='drop')
            for old, number in zip(found, which, strict=True)
        )

    one = jax.jit(one, donate_argnums=0, static_argnums=5)

    def scoring(params, rows: Trajectory, lengths: np.ndarray):
        found = begin(rows.tokens)
        for chosen, width in plan_micro_batches(lengths, settings.micro_rows, settings.widths):
            width = min(width, rows.tokens.shape[1])
            found = one(found, score, params, rows, jnp.asarray(chosen), width)
        return found

    return scoring


def make_reference(
    score: Callable, settings: UpdateSettings, place: Callable = as_it_is
) -> Callable:
    """reference(params, rows: Trajectory, lengths) -> log-probabilities, f32 [row, token]."""
    scoring = make_scoring(score, settings, place)
    return lambda params, rows, lengths: scoring(params, rows, lengths)[0]
