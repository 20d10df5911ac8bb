"""Randomness by address: one root key, a stream for each purpose and place.  None is passed on."""

import zlib

import jax


def root(seed: int) -> jax.Array:
    """The one key of a run."""
    return jax.random.key(seed)


def stream(root: jax.Array, purpose: str, *index) -> jax.Array:
    """The key for one purpose and place; the same call gives the same key for ever.

    `index` are integers or i32 scalars, such as step, task, rollout, position.
    """
    key = jax.random.fold_in(root, zlib.crc32(purpose.encode()))
    for place in index:
        key = jax.random.fold_in(key, place)
    return key


def name_number(name: str) -> int:
    """A number in 0..2^31-1 for a task id; stable over processes and versions of Python."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF
