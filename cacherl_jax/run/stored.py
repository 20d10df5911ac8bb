"""Named arrays on disk and back, by orbax, in one process or in several.

Of several processes the first writes what it has whole, and each reads all by itself and lays out
its part: none waits for another inside the library.
"""

import contextlib
import logging
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp

from cacherl_jax.mesh import laid_out_like
from cacherl_jax.processes import several
from cacherl_jax.run.fetch import fetch


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The library logs a failure of its threads with a traceback, then raises it: once will do."""
    logger = logging.getLogger('absl')
    former = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(former)


def store_arrays(place: pathlib.Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays that this process has whole; without any there is nothing to write."""
    if arrays:
        with _quiet(), ocp.StandardCheckpointer(**_by_itself()) as writer:
            writer.save(place, dict(arrays))


def load_arrays(place: pathlib.Path, like: Mapping[str, Any]) -> dict[str, Any]:
    """What was stored, each array with the type and over the devices of that of its name."""
    if not like:
        return {}
    with ocp.StandardCheckpointer(**_by_itself()) as reader:
        if not several():
            return reader.restore(place, jax.tree.map(ocp.utils.to_shape_dtype_struct, dict(like)))
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        sizes = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here)
            for name, leaf in like.items()
        }
        found = fetch(reader.restore(place, sizes))
    return {name: laid_out_like(found[name], leaf) for name, leaf in like.items()}


def load_some(place: pathlib.Path, like: Mapping[str, Any]) -> dict[str, Any]:
    """Of all that was stored, the arrays of these names; for one process."""
    sizes = jax.tree.map(ocp.utils.to_shape_dtype_struct, dict(like))
    wanted = ocp.args.PyTreeRestore(
        item=sizes,
        restore_args=ocp.checkpoint_utils.construct_restore_args(sizes),
        partial_restore=True,
    )
    with _quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        return reader.restore(place, args=wanted)


def _by_itself() -> dict[str, Any]:
    """Options with which a process of several reads or writes and waits for no other."""
    if not several():
        return {}
    own = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f'process-{own}'
    )
    return {'multiprocessing_options': options}
