"""Half the bytes for arithmetic, float32 for what is learned; layers computed again, or kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_policy import make_policy

from cacherl_jax.bench.memory import memory_of
from cacherl_jax.compose.agent import load_agent, make_score, rollout_of
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.config import RunConfig
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.lora import LoraSettings
from cacherl_jax.policy.numerics import NumericsSettings, cast
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.run.fetch import fetch
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions

HALF = NumericsSettings(dtype='bfloat16')


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    sizes = DecodeSettings(
        slots=4, context_tokens=320, turn_tokens=7, episode_tokens=14, widths=(320,)
    )
    return dataclasses.replace(
        RunConfig(),
        model=str(make_policy(tmp_path_factory.mktemp('model'))),
        decode=sizes,
        rollout=RolloutSettings(samples=2, max_turns=2),
        numerics=HALF,
    )


@pytest.fixture(scope='module')
def agent(config):
    return load_agent(config)


def summed(agent, numerics, tuning=None, size=(3, 16)):
    """learned -> the sum of the log-probabilities of rows of this size."""
    score = make_score(agent, SamplingSettings(), numerics)
    score = score if tuning is None else tuning.score(score)
    tokens = np.random.default_rng(0).integers(0, agent.shape.vocab, size).astype(np.int32)
    row = jnp.asarray(tokens), jnp.full(size[0], size[1]), jnp.ones(size, bool)
    return lambda learned: score(learned, *row)[0].sum()


def test_half_precision_scores_nearly_the_same_and_what_is_learned_stays_whole(agent):
    exact, exact_slope = jax.value_and_grad(summed(agent, NumericsSettings()))(agent.params)
    near, slope = jax.value_and_grad(summed(agent, HALF))(agent.params)
    assert exact != near and abs(exact - near) < 1e-2 * abs(exact)
    assert {leaf.dtype for leaf in jax.tree.leaves(slope)} == {jnp.dtype('float32')}
    apart = optax.tree.norm(jax.tree.map(jnp.subtract, slope, exact_slope))
    assert 0 < apart < 0.05 * optax.tree.norm(exact_slope)


def test_an_adapter_learns_in_half_precision_too(agent):
    tuning = Tuning(settings=LoraSettings(rank=2), params=agent.params)
    slope = jax.grad(summed(agent, HALF, tuning))(tuning.init(jax.random.key(0)))
    assert {leaf.dtype for leaf in jax.tree.leaves(slope)} == {jnp.dtype('float32')}
    assert all(np.abs(pair['lora_b']).max() > 0 for pair in slope['layers'][0].values())


def test_a_rollout_in_half_precision_is_scored_as_it_was_sampled(agent, config):
    """One rounding apart at most: sampler and trainer add in another order."""
    rollout = rollout_of(agent, config, live_sessions().open_session)
    rows, _ = rollout(agent.params, draw(SUITES[1], 'train', 1, 2), 0)
    scored, _ = make_score(agent, config.sampling, HALF)(
        agent.params, rows.tokens, rows.length, rows.sampled
    )
    told, scored, sampled = fetch((rows.logprob, scored, rows.sampled))
    assert sampled.sum() > 20 and np.abs(told - scored)[sampled].max() < 0.1


def test_half_precision_remembers_half_the_bytes(agent, config):
    def kept(dtype):
        made = make_decoder(agent.shape, config.decode, SamplingSettings(), (1,), jnp.dtype(dtype))
        return sum(leaf.nbytes for leaf in jax.tree.leaves(made.init().cache))

    assert 2 * kept('bfloat16') == kept('float32')
    half = cast('bfloat16')(agent.params)
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype('bfloat16')}
    assert cast('float32')(agent.params) is agent.params


def test_layers_that_are_computed_again_take_less_memory(agent):
    def peak(remat):
        slope = jax.jit(jax.grad(summed(agent, NumericsSettings(remat=remat), size=(4, 512))))
        return memory_of(slope.lower(agent.params).compile()).peak_bytes

    assert peak(True) < peak(False)


def test_another_type_is_refused():
    with pytest.raises(ValueError, match="'float32' or 'bfloat16', got 'float16'"):
        NumericsSettings(dtype='float16')


@pytest.mark.parametrize(
    ('wrong', 'told'),
    [({'attention': 'flash'}, 'chunked, xla or cudnn'), ({'attention': 'cudnn'}, 'needs dtype')],
)
def test_an_attention_that_there_is_not_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        NumericsSettings(**wrong)
