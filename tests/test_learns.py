"""The whole circle turns: episodes, rewards, advantages, an update, and a policy that is better."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from tiny_policy import VOCAB

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.grpo.advantage import AdvantageSettings, group_advantage, token_advantage
from cacherl_jax.grpo.loss import FRESH, Batch, LossSettings
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.policy import transformer
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rollout import make_rollout
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions

BASE = pathlib.Path(__file__).parent.parent / 'cacherl_jax' / 'base'
SHAPE = Shape(layers=2, embed=64, heads=2, kv_heads=1, head_dim=16, hidden=64, vocab=VOCAB)
SIZES = DecodeSettings(
    slots=32, context_tokens=96, turn_tokens=12, episode_tokens=12, segment_tokens=12, widths=(96,)
)
GROUPS, SAMPLES, STEPS = 4, 8, 20


@functools.cache
def chat() -> Chat:
    tokenizer = load_tokenizer(BASE)
    return Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))


def worlds():
    """Small talk: the prompt is a question, no tool is needed."""
    tasks = draw(SUITES[1], 'train', 1, GROUPS)
    return [dataclasses.replace(task, tools=()) for task in tasks]


def wanted_share(rows):
    """The reward: the share of sampled tokens with an even number; chance gives one half."""
    even = (rows.tokens % 2 == 0) & rows.sampled
    return even.sum(axis=1) / jnp.maximum(rows.sampled.sum(axis=1), 1)


def batch_of(rows, reward):
    count = reward.shape[0]
    group, every = jnp.arange(count) // SAMPLES, jnp.ones(count, bool)
    settings = AdvantageSettings()
    advantage = group_advantage(reward, group, every, every, settings)
    nothing = jnp.zeros((count, 1))
    tokens = token_advantage(advantage, nothing, rows, jnp.full(count, -1), settings)
    return Batch(
        tokens=rows.tokens,
        length=rows.length,
        sampled=rows.sampled,
        behaviour_logprob=rows.logprob,
        reference_logprob=rows.logprob,
        advantage=tokens,
        kind=jnp.full(count, FRESH, jnp.int32),
    )


def test_a_small_policy_learns_what_is_rewarded():
    scored = Partial(lambda params, tokens, length, sampled: score(params, SHAPE, tokens, sampled))
    settings = UpdateSettings(micro_rows=32, widths=(96,), loss=LossSettings(kl_weight=0.0))
    update = make_update(scored, optax.adam(0.02), settings)
    decoder = make_decoder(SHAPE, SIZES, SamplingSettings(), chat().end_ids)
    open_session = live_sessions().open_session
    rollout = make_rollout(
        chat(), decoder, open_session, RolloutSettings(samples=SAMPLES), keys.root(1)
    )
    learner = update.init(transformer.init_params(SHAPE, jax.random.key(0)))
    rewards = []
    for step in range(STEPS):
        rows, _ = rollout(learner.params, worlds(), step)
        reward = wanted_share(rows)
        rewards.append(float(reward.mean()))
        learner, _ = update.update(learner, batch_of(rows, reward), np.asarray(rows.length))
    assert 0.4 < rewards[0] < 0.6
    assert np.mean(rewards[-3:]) > 0.85, rewards
