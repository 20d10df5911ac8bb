"""Several processes that run one program: what the first does alone, and how the others hear of it.

All of them go through the same lines with the same settings and seeds, so what each works out by
itself is equal.  What the world says is asked by the first process and told to the others.  Whoever
calls a function of this file calls it on all processes.  Without `jax.distributed` there is one,
and nothing here touches a device then.
"""

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

FIRST_BYTES = 1 << 14  # what is told in one message; more goes into a second
HEAD_BYTES = 8  # of a message: how much follows; all ones where the first process failed
FAILED = (1 << 8 * HEAD_BYTES) - 1


def several() -> bool:
    """More than one process runs this program."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """This process asks tools and writes files; true of a process that is alone."""
    return not several() or jax.process_index() == 0


def from_first(make: Callable[[], bytes]) -> bytes:
    """What `make` gives on the first process, on every process; the others do not call it.

    Where it raises, the first raises that and the others RuntimeError: nobody waits for ever.
    """
    if not several():
        return make()
    if not is_first():
        return _message(None)
    made, finished = b'', False
    try:
        made = make()
        finished = True
    finally:
        _message(made if finished else None)
    return made


def told(make: Callable[[], Any]) -> Any:
    """The same for what JSON holds, which is not written where one process is alone."""
    if not several():
        return make()
    return json.loads(from_first(lambda: json.dumps(make()).encode('ascii')))


def any_says(flag: bool) -> bool:
    """Whether the flag is set on some process; the same answer on all."""
    if not several():
        return flag
    return bool(multihost_utils.process_allgather(np.asarray(flag)).any())


def whole(tree: Any) -> Any:
    """The tree with every array such that this process holds all of it; other leaves as they are.

    Nothing is done for arrays of one process, so one process never pays for this.
    """
    leaves, structure = jax.tree.flatten(tree)
    parted = [number for number, leaf in enumerate(leaves) if _is_parted(leaf)]
    if parted:
        everywhere = [_everywhere(leaves[number]) for number in parted]
        gather = jax.jit(_as_they_are, out_shardings=everywhere)
        for number, leaf in zip(parted, gather([leaves[n] for n in parted]), strict=True):
            leaves[number] = leaf
    return jax.tree.unflatten(structure, leaves)


def _is_parted(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not (
        leaf.is_fully_addressable or leaf.is_fully_replicated
    )


def _everywhere(leaf: jax.Array):
    return NamedSharding(leaf.sharding.mesh, PartitionSpec())


def _as_they_are(leaves):
    """One function for all gatherings, so that arrays of one layout compile once."""
    return leaves


def _message(made: bytes | None) -> bytes:
    """The first process gives what it made, or None for a failure; all get it."""
    size = FAILED if made is None else len(made)
    message = size.to_bytes(HEAD_BYTES, 'big') + (made or b'')
    message = _spread(message[:FIRST_BYTES], FIRST_BYTES) + message[FIRST_BYTES:]
    size = int.from_bytes(message[:HEAD_BYTES], 'big')
    if size == FAILED:
        if is_first():
            return b''
        raise RuntimeError('the first process failed; its message says why')
    if (rest := size + HEAD_BYTES - FIRST_BYTES) > 0:
        # A power of two, so that few lengths are compiled.
        wide = 1 << (rest - 1).bit_length()
        message = message[:FIRST_BYTES] + _spread(message[FIRST_BYTES:], wide)
    return message[HEAD_BYTES : HEAD_BYTES + size]


def _spread(message: bytes, wide: int) -> bytes:
    """The first process's message, padded; those of the others are not looked at."""
    block = np.zeros(wide, np.uint8)
    if is_first():
        block[: len(message)] = np.frombuffer(message, np.uint8)
    return multihost_utils.broadcast_one_to_all(block).tobytes()
