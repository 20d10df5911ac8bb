"""The sizes of the workloads, and that their arithmetic is counted as it is done."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.bench.limits import layer_products, matmul_rate, rate, read_rate
from cacherl_jax.bench.workloads import (
    MODELS,
    RolloutWork,
    UpdateWork,
    block_flops,
    head_flops,
    keys_read,
    layer_weights,
    matrix_weights,
    read_flops,
    rollout_work,
    sample_bytes,
    sample_flops,
    update_flops,
    update_work,
)
from cacherl_jax.policy.transformer import init_params

TINY = MODELS['tiny']


@pytest.mark.parametrize('name', MODELS)
def test_matrices_are_those_of_the_parameters(name):
    shape = MODELS[name]
    params = jax.eval_shape(lambda: init_params(shape, jax.random.key(0)))
    sizes = [leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim > 1]
    assert matrix_weights(shape) == sum(sizes)
    products = layer_products(shape).items()
    assert layer_weights(shape) == sum(
        times * rows * columns for (rows, columns), times in products
    )


def test_model_m_has_the_parameters_of_smollm2_135m():
    params = jax.eval_shape(lambda: init_params(MODELS['M'], jax.random.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 134_515_008


def test_each_token_attends_to_itself_and_what_is_before():
    assert keys_read(0, 4) == 1 + 2 + 3 + 4
    assert keys_read(5, 2) == 6 + 7
    assert keys_read(0, 7) == keys_read(0, 3) + keys_read(3, 4)


def test_flops_are_those_of_the_products():
    """Two for each entry of each matrix and each token; two products with the keys of each head."""
    expected = 2 * TINY.layers * layer_weights(TINY) * 3 + 4 * TINY.layers * 4 * 8 * 6
    assert block_flops(TINY, 3, keys_read(0, 3)) == expected
    assert head_flops(TINY, 5) == 2 * 16 * 64 * 5


def test_a_rollout_reads_a_prompt_once_for_its_group_and_samples_each_row():
    work = rollout_work('tiny')
    larger = dataclasses.replace(work, group=2 * work.group)
    prompts = work.prompts * block_flops(TINY, work.prompt_tokens, keys_read(0, work.prompt_tokens))
    assert read_flops(TINY, larger) - prompts == 2 * (read_flops(TINY, work) - prompts)
    assert sample_flops(TINY, larger) == 2 * sample_flops(TINY, work)
    assert sample_bytes(TINY, work, 2) * 2 == sample_bytes(TINY, work, 4)
    each = work.row_tokens - work.prompt_tokens
    assert work.tokens == work.prompts * (work.prompt_tokens + work.group * each)


def test_an_update_counts_four_forwards():
    work = update_work('tiny')
    twice = dataclasses.replace(work, rows=2 * work.rows)
    assert update_flops(TINY, twice) == 2 * update_flops(TINY, work)
    alone = dataclasses.replace(work, group=1)
    keys = work.rows * keys_read(0, work.row_tokens)
    forward = block_flops(TINY, work.tokens, keys) + head_flops(TINY, work.sampled_tokens)
    assert update_flops(TINY, alone) == 4 * forward
    prompt = block_flops(TINY, work.prompt_tokens, keys_read(0, work.prompt_tokens))
    saved = update_flops(TINY, alone) - update_flops(TINY, work)
    assert saved == 4 * prompt * (work.rows - work.rows // work.group)


@pytest.mark.parametrize('work', [UpdateWork(), update_work('tiny'), update_work('M')])
def test_the_update_s_sampled_tokens_are_those_of_its_mask(work):
    ids, sampled, reward = work.inputs(64)
    assert sampled.sum() == work.sampled_tokens and not sampled[:, : work.prompt_tokens].any()
    assert ids.shape == sampled.shape and ids.size == work.tokens and ids.min() >= 2
    assert reward.shape == (work.rows,) and work.rows % work.group == 0
    prompts = ids[:, : work.prompt_tokens]
    same = (prompts[:, None] == prompts).all(-1)
    group = np.arange(work.rows) // work.group
    np.testing.assert_array_equal(same, group[:, None] == group)


def test_a_rollout_s_rows_hold_prompt_turns_and_answers():
    work = RolloutWork()
    assert (work.rows, work.row_tokens, work.turn_starts) == (32, 528, [256, 368, 480])
    prompts, tools = work.inputs(64)
    assert prompts.shape == (4, 256) and tools.shape == (2, 32, 64)
    assert work.row_tokens == work.turn_starts[-1] + work.turn_tokens


def test_rates_are_numbers_of_a_machine():
    slow = rate(lambda x: jnp.sin(x).sum(), (jnp.ones(1000),), 1000)
    assert 0 < slow < 1e15
    assert 1e6 < matmul_rate(TINY, 8) < 1e16
    assert 1e6 < read_rate(2**16) < 1e15


def test_the_same_inputs_come_again():
    one, other = (rollout_work('tiny').inputs(64) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second)
