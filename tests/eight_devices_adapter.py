"""An adapter on eight devices learns what it learns on one; test_mesh.py runs this apart."""

import jax
import numpy as np
import optax
from eight_devices_update import SHAPE, TOKENS, batch, scoring

from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.mesh import MeshSettings, make_mesh, row_placement, shard_params
from cacherl_jax.policy.lora import LoraSettings, load_adapter, save_adapter
from cacherl_jax.policy.transformer import init_params

LORA = LoraSettings(rank=3)


def begun(data, fsdp, tensor):
    """Parameters that rest on a mesh of this layout, an adapter beside them, and its update."""
    devices = jax.devices()[: data * fsdp * tensor]
    mesh = make_mesh(MeshSettings(data=data, fsdp=fsdp, tensor=tensor), devices)
    params = shard_params(init_params(SHAPE, jax.random.key(1)), mesh)
    tuning = Tuning(settings=LORA, params=params)
    settings = UpdateSettings(micro_rows=8, widths=(16, TOKENS))
    score = tuning.score(scoring(mesh))
    update = make_update(score, optax.adam(1e-2), settings, row_placement(mesh))
    return tuning, update


def learned(*layout):
    """The adapter and the numbers after two updates."""
    tuning, update = begun(*layout)
    learner = update.init(tuning.init(jax.random.key(2)))
    rows, length = batch()
    for _ in range(2):
        learner, metrics = update.update(learner, rows, length)
    return jax.device_get((learner.params, metrics))


def test_an_adapter_learns_beside_parameters_that_are_shared_out():
    alone, spread = jax.tree.leaves(learned(1, 1, 1)), jax.tree.leaves(learned(2, 2, 2))
    for one, other in zip(alone, spread, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_an_adapter_that_was_read_lies_where_a_new_one_does(tmp_path):
    tuning, _ = begun(2, 2, 2)
    new = tuning.init(jax.random.key(2))
    save_adapter(tmp_path, jax.device_get(new), LORA)
    read, _ = load_adapter(tmp_path, tuning.params)
    for one, other in zip(jax.tree.leaves(new), jax.tree.leaves(read), strict=True):
        assert one.sharding == other.sharding and one.sharding.is_fully_replicated
        np.testing.assert_array_equal(one, other)
