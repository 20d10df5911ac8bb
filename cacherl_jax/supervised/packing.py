"""Several conversations in one row, so that little is computed for padding.  Host arrays only.

Each keeps to itself: attention stays within a `segment`, and positions begin anew.  `segment` is
what `policy.logprob.score` takes; log-probabilities of packed and of padded rows agree, so the
loss, whose denominator counts tokens, is the same loss.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from cacherl_jax.supervised.dataset import Arrays


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Rows of whole conversations, one behind the other."""

    tokens: np.ndarray  # i32  [row, token]  0 past length
    sampled: np.ndarray  # bool [row, token]  what is learned; never the first of a segment
    turn: np.ndarray  # i32  [row, token]  of its conversation; -1 in prompts and padding
    segment: np.ndarray  # i32  [row, token]  number of the conversation in its row; -1: padding
    position: np.ndarray  # i32  [row, token]  place in the conversation; 0 in padding
    length: np.ndarray  # i32  [row]
    row: np.ndarray  # i32  [conversation]  where each one stands
    start: np.ndarray  # i32  [conversation]  its first token there

    @property
    def padding_fraction(self) -> float:
        """How much of the rows holds nothing."""
        return 1.0 - float(self.length.sum()) / self.tokens.size


def first_fit_decreasing(lengths: Sequence[int], context_tokens: int) -> np.ndarray:
    """The row of each length, i32: from long to short, each in the first row that has room.

    At most 11/9 of the fewest rows possible, and 6/9 (doi.org/10.1007/978-3-540-74450-4_1).
    """
    lengths = np.asarray(lengths, np.int64)
    rows, used, opened = np.zeros(len(lengths), np.int32), np.zeros(len(lengths) + 1, np.int64), 0
    for place in np.argsort(-lengths, kind='stable'):
        # The row behind those opened holds nothing and always has room, so there is a first one.
        row = int(np.argmax(used[: opened + 1] + lengths[place] <= context_tokens))
        rows[place], opened = row, max(opened, row + 1)
        used[row] += lengths[place]
    return rows


def pack(arrays: Sequence[Arrays], context_tokens: int) -> Packed:
    """The conversations in rows of `context_tokens`; in a row they stand in their order.

    Raises ValueError for none, for one that is empty or longer than a row, and for one whose first
    token is learned: nothing stands before it to predict it from.
    """
    lengths = np.array([len(each['tokens']) for each in arrays], np.int64)
    _check(arrays, lengths, context_tokens)
    row = first_fit_decreasing(lengths, context_tokens)
    size = (int(row.max()) + 1, context_tokens)
    kinds = {'tokens': (0, np.int32), 'sampled': (False, bool), 'turn': (-1, np.int32)}
    fields = {name: np.full(size, fill, kind) for name, (fill, kind) in kinds.items()}
    segment, position = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    used, held = np.zeros(size[0], np.int32), np.zeros(size[0], np.int32)
    start = np.zeros(len(arrays), np.int32)
    for place, each in enumerate(arrays):
        home, length = row[place], lengths[place]
        start[place] = used[home]
        span = slice(used[home], used[home] + length)
        for name, field in fields.items():
            field[home, span] = each[name]
        segment[home, span], position[home, span] = held[home], np.arange(length)
        used[home] += length
        held[home] += 1
    return Packed(**fields, segment=segment, position=position, length=used, row=row, start=start)


def _check(arrays, lengths, context_tokens):
    if not len(arrays):
        raise ValueError('there is no conversation to pack')
    if lengths.min() < 1 or lengths.max() > context_tokens:
        raise ValueError(
            f'conversations of 1 to {context_tokens} tokens can be packed, got {lengths.min()} to '
            f'{lengths.max()}; leave longer ones out or raise context_tokens'
        )
    opening = [place for place, each in enumerate(arrays) if each['sampled'][0]]
    if opening:
        raise ValueError(f'the first token of conversation {opening[0]} is learned; it needs a '
                         'prompt before it')  # fmt: skip
