"""With an adapter it alone is trained, and what is played, scored and saved is one policy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from cacherl_jax import keys
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.grpo.loss import FRESH, Batch
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.lora import LoraSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params

SHAPE = Shape(layers=1, embed=16, heads=2, kv_heads=1, head_dim=8, hidden=24, vocab=32)
ROWS, TOKENS = 4, 12


def scored(params, tokens, length, sampled):
    return score(params, SHAPE, tokens, sampled)


def batch():
    draws = np.random.default_rng(1)
    size = (ROWS, TOKENS)
    return Batch(
        tokens=jnp.asarray(draws.integers(0, SHAPE.vocab, size), jnp.int32),
        length=jnp.full(ROWS, TOKENS, jnp.int32),
        sampled=jnp.ones(size, bool).at[:, 0].set(False),
        behaviour_logprob=jnp.full(size, -3.4),
        reference_logprob=jnp.full(size, -3.4),
        advantage=jnp.asarray(draws.normal(size=size), jnp.float32),
        kind=jnp.full(ROWS, FRESH, jnp.int32),
    )


@pytest.mark.parametrize('rank', [0, 2])
def test_what_is_trained_is_what_is_played_and_saved(rank):
    params = init_params(SHAPE, jax.random.key(0))
    before = jax.tree.map(np.asarray, params)
    tuning = Tuning(settings=LoraSettings(rank=rank), params=params)
    learned_score = tuning.score(Partial(scored))
    update = make_update(
        learned_score, optax.adam(1e-2), UpdateSettings(micro_rows=4, widths=(TOKENS,))
    )
    learner = update.init(tuning.init(keys.root(0)))
    rows = batch()
    for _ in range(2):
        learner, _ = update.update(learner, rows, np.full(ROWS, TOKENS))
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(params))
    assert (jax.tree.structure(learner.params) == jax.tree.structure(params)) == (not rank)
    row = (rows.tokens, rows.length, rows.sampled)
    trained, _ = learned_score(learner.params, *row)
    for weights in (tuning.policy(learner.params), tuning.merged(learner.params)):
        np.testing.assert_allclose(scored(weights, *row)[0], trained, atol=1e-5)
    assert np.abs(trained - scored(params, *row)[0]).max() > 1e-3


def test_the_score_with_an_adapter_is_one_function_for_one_setting():
    params = init_params(SHAPE, jax.random.key(0))
    made = [
        Tuning(settings=LoraSettings(rank=2), params=params).score(Partial(scored)) for _ in 'ab'
    ]
    assert made[0].func is made[1].func
