"""An update on eight devices equals the one on a single device; test_mesh.py runs this apart."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from cacherl_jax.grpo.loss import FRESH, Batch, LossSettings
from cacherl_jax.grpo.reference import make_reference
from cacherl_jax.grpo.sharing import plan_shared, prompts_of
from cacherl_jax.grpo.update import UpdateSettings, make_update, programs
from cacherl_jax.mesh import MeshSettings, make_mesh, row_placement, row_shares, shard_params
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params
from cacherl_jax.run.checkpoint import make_checkpoints
from cacherl_jax.trajectory import Trajectory

SHAPE = Shape(layers=2, embed=16, heads=4, kv_heads=2, head_dim=8, hidden=32, vocab=64)
ROWS, TOKENS = 16, 24
LAYOUTS = ((8, 1, 1), (2, 2, 2))


@functools.cache
def scoring(mesh):
    def scored(params, tokens, length, sampled, **apart):
        return score(params, SHAPE, tokens, sampled, mesh=mesh, **apart)

    return Partial(scored)


def batch():
    draws = np.random.default_rng(0)
    length = draws.integers(4, TOKENS, ROWS).astype(np.int32)
    place = np.arange(TOKENS)
    rows = Batch(
        tokens=jnp.asarray(draws.integers(0, SHAPE.vocab, (ROWS, TOKENS)), jnp.int32),
        length=jnp.asarray(length),
        sampled=jnp.asarray((place > 2) & (place < length[:, None])),
        behaviour_logprob=jnp.full((ROWS, TOKENS), -4.0),
        reference_logprob=jnp.full((ROWS, TOKENS), -4.1),
        advantage=jnp.asarray(draws.normal(size=(ROWS, TOKENS)), jnp.float32),
        kind=jnp.full(ROWS, FRESH, jnp.int32),
    )
    return rows, length


def laid_out(layout):
    data, fsdp, tensor = layout
    devices = jax.devices()[: data * fsdp * tensor]
    return make_mesh(MeshSettings(data=data, fsdp=fsdp, tensor=tensor), devices)


@functools.cache
def begun(layout):
    """Parameters on a mesh of this layout, the update and the reference there."""
    mesh = laid_out(layout)
    params = shard_params(init_params(SHAPE, jax.random.key(1)), mesh)
    settings, place = UpdateSettings(micro_rows=8, widths=(16, TOKENS)), row_placement(mesh)
    update = make_update(scoring(mesh), optax.adam(1e-2), settings, place)
    return params, update, make_reference(scoring(mesh), settings, place)


@functools.cache
def run(layout):
    """Parameters, metrics and reference after two updates on a mesh of this layout."""
    params, update, reference = begun(layout)
    rows, length = batch()
    learner = update.init(params)
    for _ in range(2):
        learner, metrics = update.update(learner, rows, length)
    asked = Trajectory(rows.tokens, rows.length, rows.sampled, rows.behaviour_logprob, rows.length)
    found = learner.params, metrics, reference(params, asked, length)
    return jax.device_get(found), learner


@pytest.mark.parametrize('layout', LAYOUTS)
def test_two_updates_and_a_reference_agree_with_one_device(layout):
    (alone, _), (spread, learner) = run((1, 1, 1)), run(layout)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(spread), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
    moments = [leaf for leaf in jax.tree.leaves(learner.optimizer_state) if leaf.ndim > 1]
    split = [not leaf.sharding.is_fully_replicated for leaf in moments]
    assert any(split) == (layout[1:] != (1, 1))


def in_pairs():
    """Rows of which every two share a prompt of twelve tokens."""
    draws, place = np.random.default_rng(4), np.arange(TOKENS)
    tokens = draws.integers(0, SHAPE.vocab, (ROWS, TOKENS))
    tokens[1::2, :12] = tokens[::2, :12]
    length = draws.integers(14, TOKENS, ROWS).astype(np.int32)
    sampled = (place >= 12) & (place < length[:, None])
    rows = batch()[0].replace(
        tokens=jnp.asarray(tokens, jnp.int32),
        length=jnp.asarray(length),
        sampled=jnp.asarray(sampled),
    )
    return rows, length, prompts_of(tokens, sampled)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_rows_share_prompts_over_devices_as_they_do_on_none(layout):
    rows, length, prompts = in_pairs()
    settings = UpdateSettings(micro_rows=ROWS, widths=(TOKENS,), shared_widths=(12, 16))

    def updated(layout, settings):
        mesh = laid_out(layout)
        params = shard_params(init_params(SHAPE, jax.random.key(1)), mesh)
        spread = row_placement(mesh), row_shares(mesh)
        update = make_update(scoring(mesh), optax.sgd(1.0), settings, *spread)
        return jax.device_get(update.update(update.init(params), rows, length, prompts)[0].params)

    assert plan_shared(length, prompts, ROWS, (TOKENS,), (12, 16), beside=8)[0]
    alone = updated((1, 1, 1), dataclasses.replace(settings, shared_widths=()))
    for one, other in zip(*map(jax.tree.leaves, (alone, updated(layout, settings))), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def arithmetic(layout):
    """FLOPs of each device for the gradient of a micro-batch."""
    mesh = laid_out(layout)
    params = shard_params(init_params(SHAPE, jax.random.key(1)), mesh)
    run = programs(LossSettings(), row_placement(mesh))
    micro = jax.tree.map(lambda leaf: leaf[:8], batch()[0])
    divisors, _ = run.begin(micro, True)
    zeros = jax.tree.map(jnp.zeros_like, params)
    lowered = run.accumulate.lower(zeros, params, scoring(mesh), micro, divisors)
    return lowered.compile().cost_analysis()['flops']


@pytest.mark.parametrize('layout', LAYOUTS)
def test_every_device_does_its_share_of_the_arithmetic_and_no_other(layout):
    """Rows that are not split compute the same everywhere: right, and no faster than one device."""
    assert arithmetic(layout) < 1.4 * arithmetic((1, 1, 1)) / 8


@pytest.mark.parametrize(('first', 'then'), [(1, 1), (0, 1), (1, 0)])
def test_what_one_layout_saved_another_goes_on_with(tmp_path, first, then):
    """The learner is laid out as the new mesh wants it, and ends where it would have ended."""
    first, then = (LAYOUTS[place] if place else (1, 1, 1) for place in (first, then))
    rows, length = batch()
    params, update, *_ = begun(first)
    learner, _ = update.update(update.init(params), rows, length)
    make_checkpoints(tmp_path, {}).save(1, learner, {})
    params, update, *_ = begun(then)
    like = update.init(params)
    restored = make_checkpoints(tmp_path, {}).restore(like).tree
    for leaf, wanted in zip(jax.tree.leaves(restored), jax.tree.leaves(like), strict=True):
        assert leaf.sharding == wanted.sharding
    learner, _ = update.update(restored, rows, length)
    ended = jax.device_get(learner.params)
    whole = run((1, 1, 1))[0][0]
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(ended), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
