"""Several rows of a batch in one, so that little is computed for padding.  Host arrays only.

Rows keep to themselves: attention stays within a `segment`, and positions begin anew.  So a token
has the log-probability that it has alone, and the loss, whose denominators are counted before
anything is cut or packed, is the same loss.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Packing(NamedTuple):
    """Where each token of a packed micro-batch comes from; i32 [micro_row, width]."""

    row: np.ndarray  # of the batch; the number of its rows: padding
    position: np.ndarray  # in that row; 0 in padding
    segment: np.ndarray  # number of that row among those of its packed row; -1 in padding


def longest_row(lengths: np.ndarray, widths: Sequence[int]) -> int:
    """Tokens of the longest row; ValueError where no row has any, or no width holds it."""
    longest = int(lengths.max(initial=0))
    if longest < 1:
        raise ValueError(f'an update needs a row with tokens, got {lengths.size} rows of length 0')
    if longest > widths[-1]:
        raise ValueError(f'a row has {longest} tokens; widths end at {widths[-1]}')
    return longest


def first_fit_decreasing(lengths: Sequence[int], width: int) -> np.ndarray:
    """The packed row of each length, i32: from long to short, each in the first that has room.

    At most 11/9 of the fewest rows possible, and 6/9 (doi.org/10.1007/978-3-540-74450-4_1).
    """
    lengths = np.asarray(lengths, np.int64)
    rows, used, opened = np.zeros(len(lengths), np.int32), np.zeros(len(lengths) + 1, np.int64), 0
    for place in np.argsort(-lengths, kind='stable'):
        # The row behind those opened holds nothing and always has room, so there is a first one.
        row = int(np.argmax(used[: opened + 1] + lengths[place] <= width))
        rows[place], opened = row, max(opened, row + 1)
        used[row] += lengths[place]
    return rows


def plan_packed(lengths, micro_rows: int, widths: Sequence[int]) -> list[Packing]:
    """Micro-batches of `micro_rows` packed rows; rows of length 0 are left out.

    Of the ways to pack into rows of one of the widths, and of leaving each row alone, the one that
    computes the fewest tokens; of equal ones the narrowest, whose attention costs least.
    """
    lengths = np.asarray(lengths)
    longest = longest_row(lengths, widths)
    rows = np.flatnonzero(lengths).astype(np.int32)
    homes = [np.arange(len(rows))]
    homes += [first_fit_decreasing(lengths[rows], most) for most in widths if most >= longest]
    ways = [_plan(rows, home, lengths, micro_rows, widths) for home in homes]
    return min(ways, key=lambda plan: sum(packing.row.size for packing in plan))


def _plan(rows, home, lengths, micro_rows, widths) -> list[Packing]:
    """The rows at their homes, full ones first, each micro-batch as narrow as may be."""
    used = np.bincount(home, lengths[rows])
    full_first = np.argsort(-used, kind='stable')
    plan = []
    for start in range(0, len(used), micro_rows):
        homes = full_first[start : start + micro_rows]
        width = next(width for width in widths if width >= used[homes[0]])
        plan.append(_laid([rows[home == one] for one in homes], lengths, (micro_rows, width)))
    return plan


def _laid(held: Sequence[np.ndarray], lengths, size: tuple[int, int]) -> Packing:
    """The rows that each packed row holds, one behind the other."""
    row = np.full(size, len(lengths), np.int32)
    position, segment = np.zeros(size, np.int32), np.full(size, -1, np.int32)
    for place, rows in enumerate(held):
        tokens = lengths[rows]
        stop = tokens.sum()
        row[place, :stop] = np.repeat(rows, tokens)
        segment[place, :stop] = np.repeat(np.arange(len(rows)), tokens)
        position[place, :stop] = np.concatenate([np.arange(count) for count in tokens])
    return Packing(row, position, segment)
