"""Laws of the mesh that need eight devices; test_mesh.py runs them in a process of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from cacherl_jax.mesh import (
    MeshSettings,
    by_rows,
    held_once,
    make_mesh,
    parameter_placement,
    shard_params,
    shard_rows,
)
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.policy.transformer import init_params
from cacherl_jax.trajectory import Trajectory


@pytest.fixture
def mesh():
    return make_mesh(MeshSettings(data=2, fsdp=2, tensor=2))


def small_params():
    sizes = {
        'query': (16, 4, 6),
        'key': (16, 3, 6),
        'output': (4, 6, 16),
        'up': (16, 7),
        'down': (7, 16),
    }
    layer = {name: jnp.ones(size) for name, size in sizes.items()}
    return {'embed': jnp.arange(10 * 16.0).reshape(10, 16), 'layers': (layer, layer)}


def test_all_axes_leave_the_splitting_to_the_compiler(mesh):
    assert dict(mesh.shape) == {'data': 2, 'fsdp': 2, 'tensor': 2}
    assert set(mesh.axis_types) == {AxisType.Auto}


@pytest.mark.parametrize('sizes', [(1, 1, 1), (2, 2, 1), (3, 1, 1), (8, 8, 8)])
def test_a_product_that_is_not_the_device_count_is_refused_with_both_and_the_choices(sizes):
    data, fsdp, tensor = sizes
    with pytest.raises(ValueError, match=rf'is {data * fsdp * tensor}, .*is 8; .*\(2, 2, 2\)'):
        make_mesh(MeshSettings(data=data, fsdp=fsdp, tensor=tensor))


def test_fewer_devices_can_be_asked_for_by_name():
    assert make_mesh(MeshSettings(fsdp=3), jax.devices()[:3]).size == 3


def test_parameters_lie_as_their_names_say_and_axes_that_do_not_divide_stay_whole(mesh):
    params = shard_params(small_params(), mesh)
    query, key = (params['layers'][1][name].sharding.spec for name in ('query', 'key'))
    assert params['embed'].sharding.spec == P('tensor', 'fsdp')
    assert (query, key) == (P('fsdp', 'tensor', None), P('fsdp', None, None))
    assert params['layers'][0]['down'].sharding.spec == P(None, 'fsdp')
    assert params['embed'].addressable_shards[0].data.shape == (5, 8)


def test_moving_to_the_mesh_changes_no_number(mesh):
    before = small_params()
    for here, there in zip(
        jax.tree.leaves(before), jax.tree.leaves(shard_params(before, mesh)), strict=True
    ):
        np.testing.assert_array_equal(here, there)


def test_a_parameter_goes_from_the_host_straight_into_its_shards(mesh):
    place, asked = parameter_placement(mesh), []

    class Counted(np.ndarray):
        def __getitem__(self, part):
            asked.append(np.asarray(self)[part].size)
            return np.asarray(self)[part]

    embed = np.arange(10 * 16, dtype=np.float32).reshape(10, 16)
    put = place(('embed',), embed.view(Counted))
    whole = shard_params({'embed': jnp.asarray(embed)}, mesh)['embed']
    assert put.sharding == whole.sharding and set(asked) == {5 * 8}
    np.testing.assert_array_equal(put, embed)


def test_rows_are_shared_out_over_data_and_fsdp(mesh):
    zeros = jnp.zeros((16, 7))
    rows = Trajectory(zeros, zeros[:, 0], zeros, zeros, zeros)
    rows = shard_rows(rows, mesh)
    assert rows.tokens.addressable_shards[0].data.shape == (4, 7)
    assert rows.length.sharding.spec == P(('data', 'fsdp'))


@pytest.mark.parametrize('rows', [3, 7, 18])
def test_rows_that_do_not_divide_are_refused_with_both_numbers(mesh, rows):
    with pytest.raises(ValueError, match=rf'multiple of data x fsdp = 4, .*\({rows}, 5\)'):
        shard_rows({'tokens': jnp.zeros((rows, 5))}, mesh)
    with pytest.raises(ValueError, match='the root'):
        shard_rows(jnp.float32(1), mesh)


def test_a_product_over_the_mesh_equals_the_one_on_a_single_device(mesh):
    x, params = jnp.linspace(-1, 1, 16 * 16).reshape(16, 16), small_params()

    @jax.jit
    def scores(x, params):
        heads = jnp.einsum('re,ehd->rhd', x, params['layers'][0]['query'])
        return jnp.einsum('rhd,hde,ve->rv', heads, params['layers'][0]['output'], params['embed'])

    spread = scores(shard_rows(x, mesh), shard_params(params, mesh))
    np.testing.assert_allclose(scores(x, params), spread, rtol=1e-5, atol=1e-3)


def test_ragged_writes_work_on_arrays_of_the_mesh(mesh):
    rows = shard_rows(jnp.zeros((16, 7)), mesh)
    place = shard_rows(jnp.arange(16) % 9, mesh)  # 7 and 8 write nowhere
    write = jax.jit(lambda rows, place: rows.at[jnp.arange(16), place].set(1.0, mode='drop'))
    assert write(rows, place).sum() == (np.arange(16) % 9 < 7).sum()


@pytest.mark.parametrize(('sizes', 'alone'), [((8, 1, 1), True), ((2, 2, 2), False)])
def test_rows_are_worked_on_without_the_others_where_each_device_has_all_parameters(sizes, alone):
    """Whole parameters and split rows in, split rows out; the result is the same either way."""
    mesh = make_mesh(MeshSettings(**dict(zip(('data', 'fsdp', 'tensor'), sizes, strict=True))))
    rows = jnp.arange(32.0).reshape(16, 2)
    place = (jnp.arange(16) * 5) % 2

    def function(weight, rows, place):
        """Indexed by row numbers: to the compiler, any row may be asked for."""
        return rows.at[jnp.arange(rows.shape[0]), place].set(0.0) @ weight

    weight = jax.device_put(jnp.ones((2, 3)), NamedSharding(mesh, P()))
    spread = shard_rows((rows, place), mesh)
    compiled = jax.jit(by_rows(function, mesh)).lower(weight, *spread).compile()
    assert ('all-' not in compiled.as_text()) == alone
    found = compiled(weight, *spread)
    np.testing.assert_allclose(found, function(jnp.ones((2, 3)), rows, place))
    assert not found.sharding.is_fully_replicated


def test_keys_and_values_are_split_by_heads_where_heads_are():
    """From the beginning, and still when a prompt was read and a turn was written."""
    shape = Shape(layers=1, embed=16, heads=4, kv_heads=2, head_dim=4, hidden=8, vocab=32)
    mesh = make_mesh(MeshSettings(data=2, fsdp=2, tensor=2))
    params = shard_params(init_params(shape, jax.random.key(0)), mesh)
    sizes = DecodeSettings(
        slots=8, share=2, context_tokens=16, widths=(16,), segment_tokens=4, turn_tokens=4
    )
    decoder = make_decoder(shape, sizes, SamplingSettings(), (32,), mesh=mesh)
    state = decoder.init()
    spec = state.cache[0].key.sharding.spec
    assert spec == P(('data', 'fsdp'), 'tensor') and state.rows.tokens.sharding.spec == P(spec[0])
    (prompt,) = decoder.prefill(params, [[3, 4, 5]])
    state = decoder.admit(state, prompt, jnp.arange(2), jax.random.split(jax.random.key(1), 2))
    state, _ = decoder.segment(params, state, 0)
    held = (*jax.tree.leaves(state.cache), *jax.tree.leaves(state.prompts))
    part = {leaf.addressable_shards[0].data.shape[:2] for leaf in held}
    assert part == {(2, 1), (1, 1)}


def test_devices_of_one_cpu_read_one_copy_of_the_parameters_that_outlives_them():
    """Where every device has all of them; else each goes on with its part."""
    weight = np.arange(4096.0).reshape(64, 64)
    mesh = make_mesh(MeshSettings(data=8))
    params = shard_params({'embed': jnp.asarray(weight)}, mesh)
    held = held_once(params, mesh)
    places = {part.data.unsafe_buffer_pointer() for part in held['embed'].addressable_shards}
    assert len(places) == 1 and held['embed'].sharding.is_fully_replicated
    jax.jit(lambda params: jax.tree.map(jnp.negative, params), donate_argnums=0)(params)
    assert params['embed'].is_deleted()
    for part in held['embed'].addressable_shards:
        np.testing.assert_array_equal(part.data, weight)
    split = make_mesh(MeshSettings(data=4, tensor=2))
    params = shard_params({'embed': jnp.asarray(weight)}, split)
    assert held_once(params, split) is params
