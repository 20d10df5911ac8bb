"""What episodes did, call after call, as numbers; and how alike two of them are."""

import json
import zlib
from collections.abc import Iterable

import chex
import jax.numpy as jnp
import numpy as np

from cacherl_jax.tasks.task import Turn
from cacherl_jax.tools.tool import Call, ParseError

ACTIONS = 16  # different ones of an episode that tell it from others; later ones do not count


def actions_of(turns: Iterable[Turn]) -> np.ndarray:
    """i32 [ACTIONS]: a number for each call together with the one before it, -1 where none is left.

    So the same calls in another order are other actions, and a call that comes again after the same
    one is none.
    """
    said = ['', *(_written(call) for turn in turns for call in turn.calls)]
    pairs = [json.dumps(pair) for pair in zip(said, said[1:], strict=False)]
    numbers = list(dict.fromkeys(zlib.crc32(pair.encode()) & 0x7FFFFFFF for pair in pairs))
    found = np.full(ACTIONS, -1, np.int32)
    found[: len(numbers)] = numbers[:ACTIONS]
    return found


def _written(call: Call | ParseError) -> str:
    """Equal for calls that mean the same; one that could not be read is no other than the next."""
    if isinstance(call, ParseError):
        return ''
    return json.dumps([call.name, call.arguments], sort_keys=True)


def likeness(one, other):
    """Actions that both have, of all that either has, f32 [row, row of other]; 1 of none and none.

    i32 [row, action] and [row of other, action] as `actions_of` gives them.
    """
    chex.assert_rank([one, other], 2)
    held, others = one >= 0, other >= 0
    both = jnp.zeros((one.shape[0], other.shape[0]), jnp.int32)
    for place in range(one.shape[1]):  # at once it would be [row, row, action, action]
        found = jnp.any((one[:, None, place, None] == other) & others, axis=2)
        both += found & held[:, None, place]
    either = held.sum(axis=1)[:, None] + others.sum(axis=1) - both
    return jnp.where(either > 0, both / jnp.maximum(either, 1), 1.0)
