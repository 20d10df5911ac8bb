"""The table of axes and its refusals; what needs eight devices stands in eight_devices_mesh.py."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from cacherl_jax.mesh import (
    MESH_AXES,
    MESH_AXIS,
    PARAMETER_AXES,
    MeshSettings,
    make_mesh,
    parameter_sharding,
    partition,
    shard_params,
    shard_rows,
)
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params


@pytest.mark.parametrize('laws', ['mesh', 'update', 'adapter'])
def test_the_laws_hold_on_eight_devices(on_virtual_devices, laws):
    on_virtual_devices(f'eight_devices_{laws}.py', 8)


@pytest.mark.parametrize(
    ('axes', 'spec'),
    [
        ((), P()),
        (('row', 'token'), P(('data', 'fsdp'), None)),
        (('row', 'token', 'embed'), P(('data', 'fsdp'), None, None)),
        (('row', 'kv_head', 'context', 'head_dim'), P(('data', 'fsdp'), 'tensor', None, None)),
        (('embed', 'hidden'), P('fsdp', 'tensor')),
        (('embed', 'row'), P('fsdp', None)),
        (('vocab', 'hidden'), P('tensor', None)),
    ],
)
def test_an_array_is_split_over_a_mesh_axis_once_and_the_first_axis_gets_it(axes, spec):
    assert partition(*axes) == spec


def test_every_axis_named_anywhere_stands_in_the_table():
    assert {name for names in MESH_AXIS.values() for name in names} == set(MESH_AXES)
    assert {axis for axes in PARAMETER_AXES.values() for axis in axes} <= set(MESH_AXIS)


def test_an_axis_outside_the_table_is_refused_with_the_ones_inside():
    with pytest.raises(ValueError, match="'width'.*'embed'.*'hidden'"):
        partition('row', 'width')


@pytest.mark.parametrize('count', [0, -1, 2.0, True, '2'])
def test_a_count_that_is_no_whole_number_of_devices_is_refused_by_name(count):
    with pytest.raises(ValueError, match='fsdp must be a whole number of at least 1'):
        MeshSettings(fsdp=count)


def test_an_unknown_or_misshapen_parameter_is_refused():
    mesh = make_mesh(MeshSettings())
    with pytest.raises(ValueError, match="'queries'.*'query'"):
        parameter_sharding('queries', (16, 4, 6), mesh)
    with pytest.raises(ValueError, match=r'query has the axes .* got dimensions \(16, 24\)'):
        shard_params({'layers': ({'query': jnp.ones((16, 24))},)}, mesh)


def test_one_device_takes_any_number_of_rows():
    mesh = make_mesh(MeshSettings())
    assert shard_rows(jnp.zeros((7, 3)), mesh).shape == (7, 3)


def test_every_parameter_of_a_policy_stands_in_the_table():
    sizes = {'embed': 8, 'heads': 6, 'kv_heads': 3, 'head_dim': 4, 'hidden': 7, 'vocab': 16}
    shape = Shape(layers=2, tied=False, head_norm=True, qkv_bias=True, **sizes)
    params = jax.eval_shape(lambda key: init_params(shape, key), jax.random.key(0))
    leaves = {path[-1].key: leaf.shape for path, leaf in jax.tree.leaves_with_path(params)}
    assert set(leaves) == set(PARAMETER_AXES)
    sizes |= {'head': sizes['heads'], 'kv_head': sizes['kv_heads']}
    for name, axes in PARAMETER_AXES.items():
        assert leaves[name] == tuple(sizes[axis] for axis in axes)


def test_a_cpu_stands_for_as_many_devices_as_a_mesh_has_places():
    code = (
        'from cacherl_jax.mesh import MeshSettings, make_mesh; '
        'print(make_mesh(MeshSettings(data=2, tensor=2)).devices.size)'
    )
    environment = os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}
    told = subprocess.run(
        [sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ['4']
