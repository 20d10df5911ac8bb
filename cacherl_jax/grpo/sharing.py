"""Rows behind the prompt that they share, so that it is computed once for its group.  Host arrays.

A packed row holds a prompt but for its last token, then a few rows from that token on, each in a
place of its own.  Every token sees what it sees alone, so the loss is the same loss, for the price
of one prompt in place of one for each attempt (arxiv.org/abs/2506.05433).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cacherl_jax.grpo.cutting import plan_micro_batches
from cacherl_jax.grpo.packing import Packing

Split = tuple[int, int]  # tokens for the prompt, and for each row behind it


class Prompts(NamedTuple):
    """What rows begin with; i32 [row] each."""

    number: np.ndarray  # rows with the same number begin with the same tokens
    tokens: np.ndarray  # how many


class Shared(NamedTuple):
    """A micro-batch of packed rows [prompt | row | row ...], all divided alike."""

    packing: Packing
    split: Split


def prompts_of(tokens: np.ndarray, sampled: np.ndarray) -> Prompts:
    """Of rows i32 and bool [row, token]: what stands before the first sampled token of each."""
    count = np.where(sampled.any(axis=1), sampled.argmax(axis=1), 0).astype(np.int32)
    known: dict[bytes, int] = {}
    number = [
        known.setdefault(row[:end].tobytes(), len(known))
        for row, end in zip(np.ascontiguousarray(tokens), count, strict=True)
    ]
    return Prompts(np.asarray(number, np.int32), count)


def plan_shared(
    lengths,
    prompts: Prompts,
    micro_rows: int,
    widths: Sequence[int],
    shared_widths: Sequence[int],
    beside: int = 1,
) -> tuple[list[Shared], np.ndarray]:
    """Micro-batches of rows that share prompts, and the lengths of the rows that are left (or 0).

    `micro_rows` rows go into each; prompts and what follows them are padded to a shared width, rows
    that go alone to one of `widths`, and the packed rows of a micro-batch divide over `beside`
    devices.  Of the numbers of rows behind one prompt the one that computes the fewest tokens; all
    go alone where that is fewer still.
    """
    lengths = np.asarray(lengths)
    own = lengths - prompts.tokens + 1  # a row begins with the last token of its prompt
    longest = np.maximum(prompts.tokens - 1, own)
    fits = (lengths > 0) & (prompts.tokens > 1) & (longest <= shared_widths[-1])
    groups = [np.flatnonzero(fits & (prompts.number == n)) for n in set(prompts.number[fits])]
    sizes = [n for n in range(2, micro_rows + 1) if micro_rows % (n * beside) == 0]
    ways = [_plan(groups, size, own, prompts, micro_rows, shared_widths) for size in sizes]
    choices = [(plan, _left(plan, lengths)) for plan in [[], *ways]]
    return min(choices, key=lambda choice: _computed(*choice, micro_rows, widths))


def _plan(groups, size, own, prompts, micro_rows, widths) -> list[Shared]:
    """Lots of `size` rows behind one prompt, those with the longest rows first."""
    lots = [
        rows[start : start + size]
        for rows in (group[np.argsort(-own[group], kind='stable')] for group in groups)
        for start in range(0, len(rows) - 1, size)  # nobody shares with the last of odd ones
    ]
    lots.sort(key=lambda lot: -own[lot[0]])
    each = micro_rows // size
    return [
        _laid(lots[start : start + each], (each, size), own, prompts, widths)
        for start in range(0, len(lots), each)
    ]


def _laid(lots, shape, own, prompts, widths) -> Shared:
    """`shape`: packed rows, and rows behind each prompt."""
    count, size = shape
    wide = _width(max(prompts.tokens[lot[0]] - 1 for lot in lots), widths)
    each = _width(max(own[lot[0]] for lot in lots), widths)
    columns = (count, wide + size * each)
    row, position = np.full(columns, len(own), np.int32), np.zeros(columns, np.int32)
    segment = np.full(columns, -1, np.int32)

    def put(place, start, number, tokens, first, part):
        here = place, slice(start, start + tokens)
        row[here], segment[here] = number, part
        position[here] = first + np.arange(tokens)

    for place, lot in enumerate(lots):
        prompt = prompts.tokens[lot[0]] - 1
        put(place, 0, lot[0], prompt, 0, size)
        for part, number in enumerate(lot):
            put(place, wide + part * each, number, own[number], prompt, part)
    return Shared(Packing(row, position, segment), (wide, each))


def _width(tokens, widths) -> int:
    return next(width for width in widths if width >= tokens)


def _left(plan: list[Shared], lengths) -> np.ndarray:
    taken = [shared.packing.row.ravel() for shared in plan]
    left = lengths.copy()
    for rows in taken:
        left[rows[rows < len(lengths)]] = 0
    return left


def _computed(plan: list[Shared], left, micro_rows, widths) -> int:
    """Tokens of these micro-batches, and of those of the rows left, padding too."""
    alone = plan_micro_batches(left, micro_rows, widths) if left.any() else []
    shared = sum(shared.packing.row.size for shared in plan)
    return shared + sum(rows.size * width for rows, width in alone)
