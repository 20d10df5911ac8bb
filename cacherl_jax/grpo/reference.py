"""Log-probabilities of rows under frozen parameters, cut into micro-batches as the update is."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cacherl_jax.grpo.update import UpdateSettings, as_it_is, plan_micro_batches
from cacherl_jax.trajectory import Trajectory


def make_reference(
    score: Callable, settings: UpdateSettings, place: Callable = as_it_is
) -> Callable:
    """reference(params, rows: Trajectory, lengths) -> f32 [row, token]; 0 where length is 0.

    `score(params, tokens, length, sampled)` is the update's own; `place` is too.
    """

    @jax.jit
    def begin(tokens):
        return jnp.zeros(tokens.shape, jnp.float32)

    def one(found, params, rows: Trajectory, chosen, width):
        """A place past the last row is no row: it is scored nowhere and written nowhere."""
        sampled = rows.sampled[chosen, :width] & (chosen < rows.length.shape[0])[:, None]
        cut = place((rows.tokens[chosen, :width], rows.length[chosen], sampled))
        logprob, _ = score(params, *cut)
        return found.at[chosen, :width].set(logprob, mode='drop')

    one = jax.jit(one, donate_argnums=0, static_argnums=4)

    def reference(params, rows: Trajectory, lengths: np.ndarray):
        found = begin(rows.tokens)
        for chosen, width in plan_micro_batches(lengths, settings.micro_rows, settings.widths):
            width = min(width, rows.tokens.shape[1])
            found = one(found, params, rows, jnp.asarray(chosen), width)
        return found

    return reference
