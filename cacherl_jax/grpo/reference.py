"""What rows are scored under parameters that rest meanwhile, cut into micro-batches as updates are.

The frozen reference says log-probabilities; the policy that an update begins from says its own by
the trainer's numerics, and its critic's values.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from cacherl_jax.grpo.cutting import plan_micro_batches
from cacherl_jax.grpo.sharing import Prompts, plan_shared
from cacherl_jax.grpo.update import UpdateSettings, as_it_is
from cacherl_jax.trajectory import Trajectory


def make_scoring(
    score: Callable,
    settings: UpdateSettings,
    place: Callable = as_it_is,
    which: tuple[int, ...] = (0,),
    beside: int = 1,
) -> Callable:
    """scoring(params, rows, lengths, prompts=None) -> tuple of f32 [row, token]; 0 at length 0.

    `score(params, tokens, length, sampled)` is the update's own, and `which` of its results are
    wanted: 0 log-probability, 1 entropy, 2 a critic's value.  `place` and `beside` are the update's
    too, as are `prompts`.
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

    def together(found, score, params, rows: Trajectory, packing, split):
        """Rows behind shared prompts; padding is scored nowhere and written nowhere."""
        number, position, segment = packing
        row = jnp.minimum(number, rows.length.shape[0] - 1)
        sampled = rows.sampled[row, position] & (segment >= 0)
        length = (segment >= 0).sum(1)
        cut = place((rows.tokens[row, position], length, sampled, position, segment))
        told = score(params, *cut[:3], position=cut[3], segment=cut[4], split=split)
        # A prompt's last token stands before every row behind it; none of them says a thing of it.
        return tuple(
            old.at[jnp.where(sampled, number, rows.length.shape[0]), position].set(
                told[which_one], mode='drop'
            )
            for old, which_one in zip(found, which, strict=True)
        )

    one = jax.jit(one, donate_argnums=0, static_argnums=5)
    together = jax.jit(together, donate_argnums=0, static_argnums=5)

    def scoring(params, rows: Trajectory, lengths: np.ndarray, prompts: Prompts | None = None):
        found = begin(rows.tokens)
        if prompts is not None and settings.shared_widths:
            sizes = settings.micro_rows, settings.widths, settings.shared_widths
            shared, lengths = plan_shared(lengths, prompts, *sizes, beside)
            for packing, split in shared:
                found = together(found, score, params, rows, packing, split)
            if not lengths.any():
                return found
        for chosen, width in plan_micro_batches(lengths, settings.micro_rows, settings.widths):
            width = min(width, rows.tokens.shape[1])
            found = one(found, score, params, rows, jnp.asarray(chosen), width)
        return found

    return scoring


def make_reference(
    score: Callable, settings: UpdateSettings, place: Callable = as_it_is, beside: int = 1
) -> Callable:
    """reference(params, rows, lengths, prompts=None) -> log-probabilities, f32 [row, token]."""
    scoring = make_scoring(score, settings, place, beside=beside)
    return lambda *what: scoring(*what)[0]
