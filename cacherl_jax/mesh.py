"""Where arrays live: settings to a device mesh, and one table from logical axes to mesh axes.

Rows are split over `data` and `fsdp`, parameters over `fsdp` and `tensor`.  The table below is the
only place where that is decided; nobody else names a mesh axis.
"""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

MESH_AXES = ('data', 'fsdp', 'tensor')

MESH_AXIS: dict[str, tuple[str, ...]] = {
    'group': ('data', 'fsdp'),  # rows are group-major, so groups lie as their rows do
    'row': ('data', 'fsdp'),
    'sample': (),
    'token': (),
    'context': (),
    'block': (),
    'layer': (),
    'head': ('tensor',),
    'kv_head': ('tensor',),
    'head_dim': (),
    'embed': ('fsdp',),
    'hidden': ('tensor',),
    'vocab': ('tensor',),
    'term': (),
}

PARAMETER_AXES: dict[str, tuple[str, ...]] = {
    'attention_norm': ('embed',),
    'query': ('embed', 'head', 'head_dim'),
    'key': ('embed', 'kv_head', 'head_dim'),
    'value': ('embed', 'kv_head', 'head_dim'),
    'query_norm': ('head_dim',),
    'key_norm': ('head_dim',),
    'query_bias': ('head', 'head_dim'),
    'key_bias': ('kv_head', 'head_dim'),
    'value_bias': ('kv_head', 'head_dim'),
    'output': ('head', 'head_dim', 'embed'),
    'mlp_norm': ('embed',),
    'gate': ('embed', 'hidden'),
    'up': ('embed', 'hidden'),
    'down': ('hidden', 'embed'),
    'embed': ('vocab', 'embed'),
    'norm': ('embed',),
    'head': ('embed', 'vocab'),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshSettings:
    """How many devices stand along each mesh axis; their product is the number of devices."""

    data: int = 1  # devices; each takes its rows, all hold the same parameters
    fsdp: int = 1  # devices; each takes its rows and its part of the parameters' embed axis
    tensor: int = 1  # devices; each takes its part of the heads, hidden units and vocabulary

    def __post_init__(self):
        for name in MESH_AXES:
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise ValueError(f'{name} must be a whole number of at least 1, got {count!r}')


def make_mesh(settings: MeshSettings, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh over `devices`, or over all; a product that is not their number is refused.

    A CPU stands for as many devices as the mesh has places, where JAX was not asked for any yet.
    """
    sizes = tuple(getattr(settings, name) for name in MESH_AXES)
    if devices is None:
        _divide_cpu(math.prod(sizes))
    devices = jax.devices() if devices is None else list(devices)
    if math.prod(sizes) != len(devices):
        product = ' x '.join(f'{name} {size}' for name, size in zip(MESH_AXES, sizes, strict=True))
        raise ValueError(
            f'{product} is {math.prod(sizes)}, but the number of devices is {len(devices)}; '
            f'valid (data, fsdp, tensor): {_products(len(devices))}'
        )
    # jax.make_mesh makes Explicit axes unless told otherwise, and ragged scatters raise on those.
    types = (AxisType.Auto,) * len(MESH_AXES)
    return jax.make_mesh(sizes, MESH_AXES, axis_types=types, devices=devices)


def partition(*axes: str) -> PartitionSpec:
    """The mesh axes of an array whose logical axes are `axes`, in order.

    An array can be split over a mesh axis only once: the first logical axis gets it, and a later
    one stays whole.  So [row, token, embed] is split by rows alone, [vocab, embed] by both.
    """
    for axis in axes:
        if axis not in MESH_AXIS:
            raise ValueError(f'no axis named {axis!r}; there are {sorted(MESH_AXIS)}')
    taken, entries = set(), []
    for axis in axes:
        names = () if taken & set(MESH_AXIS[axis]) else MESH_AXIS[axis]
        taken |= set(names)
        entries.append(names[0] if len(names) == 1 else names or None)
    return PartitionSpec(*entries)


def parameter_sharding(name: str, dimensions: Sequence[int], mesh: Mesh) -> NamedSharding:
    """Where the parameter leaf `name` lives.

    An axis whose length is not a multiple of its mesh axis stays whole on every device of that mesh
    axis; the other axes are split all the same.  (3 kv heads on tensor 2: each device holds all 3.)
    """
    if name not in PARAMETER_AXES:
        raise ValueError(f'no parameter named {name!r}; there are {sorted(PARAMETER_AXES)}')
    axes = PARAMETER_AXES[name]
    if len(axes) != len(dimensions):
        raise ValueError(f'{name} has the axes {list(axes)}, got dimensions {tuple(dimensions)}')
    entries = [
        entry if entry is None or length % mesh.shape[entry] == 0 else None
        for entry, length in zip(partition(*axes), dimensions, strict=True)
    ]
    return NamedSharding(mesh, PartitionSpec(*entries))


def shard_params(params: Any, mesh: Mesh) -> Any:
    """The parameters (policy/shape.py) on the mesh, each leaf as its name in the table says."""
    shardings = jax.tree.map_with_path(
        lambda path, leaf: parameter_sharding(path[-1].key, leaf.shape, mesh), params
    )
    return _put(params, shardings)


def row_shares(mesh: Mesh) -> int:
    """Over how many devices rows are split."""
    return math.prod(mesh.shape[name] for name in MESH_AXIS['row'])


def shard_rows(tree: Any, mesh: Mesh, second: str = 'token') -> Any:
    """Arrays [row, ...] on the mesh, split by rows; rows that do not divide are refused.

    Where `second` names the axis after them, by that as well if it divides.
    """
    shares = row_shares(mesh)
    for path, leaf in jax.tree.leaves_with_path(tree):
        if leaf.ndim == 0 or leaf.shape[0] % shares:
            raise ValueError(
                f'rows must be a multiple of data x fsdp = {shares}, '
                f'got dimensions {leaf.shape} at {jax.tree_util.keystr(path) or "the root"}'
            )

    def sharding(leaf):
        rows, after = partition('row', second)
        whole = after is None or leaf.ndim < 2 or leaf.shape[1] % mesh.shape[after]
        return NamedSharding(mesh, PartitionSpec(rows, *() if whole else (after,)))

    return _put(tree, jax.tree.map(sharding, tree))


def parameter_placement(mesh: Mesh) -> Callable[[Sequence, np.ndarray], jax.Array]:
    """place(path, array): a parameter of the host straight into its shards.

    No device holds more than its part at any time, so a model may be larger than one device.
    """

    def place(path, array):
        sharding = parameter_sharding(path[-1], array.shape, mesh)
        return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])

    return place


def whole_beside(tree: Any, params: Any) -> Any:
    """The tree, all of it on every device that the parameters are laid out over."""
    home = getattr(jax.tree.leaves(params)[0], 'sharding', None)
    if not isinstance(home, NamedSharding):
        return tree
    return _put(tree, NamedSharding(home.mesh, PartitionSpec()))


def held_once(params: Any, mesh: Mesh | None) -> Any:
    """The parameters in one buffer for all devices, where those are the cores of one CPU.

    Reading one copy, the cores find in their common cache what another has just read.  It is a copy
    that nobody else knows of, so the parameters may be donated while it is in use.
    """
    alone = mesh is None or mesh.size == 1 or mesh.size != mesh.shape['data']
    if alone or mesh.devices.flat[0].platform != 'cpu' or jax.process_count() > 1:
        return params
    everywhere, (first, *others) = NamedSharding(mesh, PartitionSpec()), mesh.devices.flat

    def share(leaf):
        own = jnp.copy(jax.device_put(leaf, first))
        seen = np.asarray(own)  # no copy, and on a CPU no second one for the others
        parts = [own, *(jax.device_put(seen, other, may_alias=True) for other in others)]
        return jax.make_array_from_single_device_arrays(own.shape, everywhere, parts)

    return jax.tree.map(share, params)


def laid_out_like(array: Any, other: Any) -> jax.Array:
    """An array that every process has whole, laid out as `other` is over the devices of all."""
    if isinstance(other, jax.Array) and not other.is_fully_addressable:
        return _put(array, other.sharding)
    return jnp.asarray(array)


def _put(tree: Any, shardings: Any) -> Any:
    """The tree laid out; of several processes each has all of it and keeps its part."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree)):
        # device_put in a compiled function decides nothing: every device would do all rows.
        return jax.lax.with_sharding_constraint(tree, shardings)
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)
    # device_put refuses random keys here, and compares all other arrays between the processes.
    return jax.jit(_as_it_is, out_shardings=shardings)(tree)


def _as_it_is(tree: Any) -> Any:
    return tree


def by_rows(function: Callable, mesh: Mesh | None) -> Callable:
    """function(whole, *rows) -> rows, run by each device on its own rows alone where it can be.

    Where parameters are split too the devices need each other, and the compiler sees to it.
    """
    if mesh is None or mesh.size == 1 or mesh.size != mesh.shape['data']:
        return function
    rows = partition('row')

    def spread(whole, *rest):
        specs = (PartitionSpec(), *[rows] * len(rest))
        alone = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False)
        return alone(whole, *rest)

    return spread


def _divide_cpu(count: int) -> None:
    """Have the CPU counted as `count` devices, unless several processes are to have one each."""
    asked = 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', '')
    if count > 1 and not asked and not jax.distributed.is_initialized():
        with contextlib.suppress(RuntimeError):
            jax.config.update('jax_num_cpu_devices', count)


@functools.cache
def row_placement(mesh: Mesh) -> Callable[[Any], Any]:
    """place(rows) for compiled functions: `shard_rows` on this mesh, or nothing on one device.

    The same function for the same mesh, so that what is compiled with it is shared.
    """
    return (lambda rows: rows) if mesh.size == 1 else functools.partial(shard_rows, mesh=mesh)


def _products(count: int) -> list[tuple[int, int, int]]:
    divisors = [size for size in range(1, count + 1) if count % size == 0]
    return [
        (data, fsdp, count // (data * fsdp))
        for data in reversed(divisors)
        for fsdp in reversed(divisors)
        if count % (data * fsdp) == 0
    ]
