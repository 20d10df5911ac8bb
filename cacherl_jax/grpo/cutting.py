"""A batch cut into micro-batches: which rows are scored together, how wide, and those taken out.

Rows go alone, ordered by length and padded to a width; or several stand in one (grpo/packing.py),
or several stand behind the prompt that they share (grpo/sharing.py).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cacherl_jax.grpo.loss import LEFT_OUT, Batch
from cacherl_jax.grpo.packing import Packing, longest_row


def minibatches(lengths: np.ndarray, count: int) -> list[np.ndarray]:
    """Lengths of the rows of each optimizer step, 0 for those of the others.

    Neighbours go to different steps, so that each step sees rows of every group.  A share without a
    row is left out.
    """
    turn = np.cumsum(lengths > 0) % count
    shares = [np.where(turn == number, lengths, 0) for number in range(count)]
    return [share for share in shares if share.any()] or [lengths]


class MicroBatch(NamedTuple):
    """Which rows are scored together, and how wide."""

    rows: np.ndarray  # i32 [micro_row]; the number of rows of the batch says: no row
    width: int  # tokens


def plan_micro_batches(lengths, micro_rows: int, widths) -> list[MicroBatch]:
    """Rows from long to short, `micro_rows` at a time; rows of length 0 are left out."""
    lengths = np.asarray(lengths)
    longest_row(lengths, widths)
    order = np.argsort(-lengths, kind='stable')
    order = order[lengths[order] > 0].astype(np.int32)
    filled = np.full(-(-order.size // micro_rows) * micro_rows, lengths.size, np.int32)
    filled[: order.size] = order
    plan = []
    for rows in filled.reshape(-1, micro_rows):
        width = next(width for width in widths if width >= lengths[rows[0]])
        plan.append(MicroBatch(rows, int(width)))
    return plan


def take(batch: Batch, rows, width: int) -> Batch:
    """The rows named, cut to `width`; a row that is none is left out of every term."""
    number = batch.tokens.shape[0]
    none = rows >= number
    rows = jnp.minimum(rows, number - 1)
    cut = jax.tree.map(lambda x: x[rows, :width] if x.ndim == 2 else x[rows], batch)
    return cut.replace(kind=jnp.where(none, LEFT_OUT, cut.kind))


def take_packed(batch: Batch, packing: Packing, split: tuple[int, int] | None = None) -> Batch:
    """The tokens named, those of several rows in one; padding is left out of every term.

    `split` says how rows stand behind prompts that they share (grpo/sharing.py).
    """
    number = batch.tokens.shape[0]
    none = packing.row >= number
    row = jnp.minimum(packing.row, number - 1)

    def pick(x):
        return x[row, packing.position] if x.ndim == 2 else x[row]

    packed = jax.tree.map(pick, batch)
    return packed.replace(
        length=(~none).sum(axis=1, dtype=jnp.int32),
        sampled=packed.sampled & ~none,
        kind=jnp.where(none, LEFT_OUT, packed.kind),
        position=packing.position,
        segment=packing.segment,
        split=split,
    )
