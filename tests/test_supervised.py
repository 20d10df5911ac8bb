"""Laws of learning from demonstrations: what is learned, in which order, and nothing else."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial
from tiny_policy import VOCAB

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE, demonstrations, tool_specifications
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.policy import transformer
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.shape import Shape
from cacherl_jax.supervised.dataset import demonstration_rows, episode_messages
from cacherl_jax.supervised.update import (
    SupervisedSettings,
    learn,
    orders,
    supervised_batch,
    supervised_optimizer,
)
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions

SHAPE = Shape(layers=2, embed=16, heads=2, kv_heads=1, head_dim=8, hidden=24, vocab=VOCAB)
TURN = re.compile(r'<\|im_start\|>assistant\n(.*?<\|im_end\|>)', re.DOTALL)
SETTINGS = SupervisedSettings(rows=3, epochs=2)


@functools.cache
def chat() -> Chat:
    tokenizer = load_tokenizer(BASE)
    return Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))


@functools.cache
def episodes():
    tasks = [suite.task('train', level, 3) for suite in SUITES for level in (1, 2, 3)]
    return demonstrations(tasks, live_sessions())


@functools.cache
def rows(context_tokens=1024):
    return demonstration_rows(chat(), episodes(), context_tokens)


def runs(ids, sampled) -> list[str]:
    """Texts of the stretches of sampled tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], sampled, [0]])))
    return [chat().decode(ids[a:b]) for a, b in edges.reshape(-1, 2)]


def test_supervised_is_what_the_assistant_wrote_and_nothing_else():
    batch, lengths, fitting = rows()
    assert fitting == list(range(9))
    for row, length, episode in zip(range(9), lengths, episodes(), strict=True):
        tools = tool_specifications(episode.task)
        whole = chat().render(episode_messages(episode), tools)
        ids = batch.tokens[row, :length].tolist()
        assert runs(ids, np.asarray(batch.sampled)[row, :length].astype(int)) == TURN.findall(whole)
        assert chat().decode(ids) == whole.removesuffix('\n')


def test_padding_belongs_to_nobody():
    batch, lengths, _ = rows()
    behind = np.arange(1024) >= lengths[:, None]
    assert not batch.sampled[behind].any() and not batch.tokens[behind].any()
    assert (batch.turn[behind] == -1).all() and (lengths == batch.length).all()


def test_an_episode_longer_than_the_context_is_left_out_whole():
    _, lengths, _ = rows()
    limit = int(np.sort(lengths)[4])
    batch, kept, fitting = demonstration_rows(chat(), episodes(), limit)
    assert fitting == np.flatnonzero(lengths <= limit).tolist()
    np.testing.assert_array_equal(kept, lengths[fitting])
    assert batch.tokens.shape == (len(fitting), limit)


def test_demonstrations_of_which_none_fits_are_refused():
    with pytest.raises(ValueError, match='none of 9 demonstrations fits: context_tokens is 16'):
        demonstration_rows(chat(), episodes(), 16)


@pytest.mark.parametrize('count', [3, 7, 16])
def test_the_order_is_of_the_seed_and_every_epoch_is_whole(count):
    first, again, other = (
        [chosen.tolist() for chosen in orders(SETTINGS, count, keys.root(seed))]
        for seed in (1, 1, 2)
    )
    assert first == again and first != other and len(first) == SETTINGS.steps(count)
    steps = len(first) // SETTINGS.epochs
    for epoch in (first[:steps], first[steps:]):
        assert sorted(sum(epoch, [])) == list(range(count))


def policy_score(params, tokens, length, sampled):
    return score(params, SHAPE, tokens, sampled)


def test_a_step_lowers_the_loss():
    batch, lengths, _ = rows(512)
    settings = SupervisedSettings(rows=len(lengths), epochs=3, learning_rate=3e-2)
    optimizer = supervised_optimizer(settings, settings.steps(len(lengths)))
    update = make_update(Partial(policy_score), optimizer, UpdateSettings(widths=(512,)))
    init = jax.jit(transformer.init_params, static_argnums=0)
    learner, losses = update.init(init(SHAPE, jax.random.key(0))), []
    told = lambda metrics: losses.append(float(metrics['loss/supervised']))  # noqa: E731
    learn(learner, update, batch, lengths, settings, keys.root(0), told)
    assert losses[0] == pytest.approx(np.log(VOCAB), abs=0.1) and losses[0] > losses[1] > losses[2]


def test_prompt_and_results_give_exactly_no_gradient():
    """A number added to each token's log-probability shows what that token gives the gradient."""
    batch, lengths, _ = rows()

    def shifted(params, tokens, length, sampled):
        return params + jnp.where(sampled, -3.0, jnp.nan), jnp.zeros_like(params)

    update = make_update(
        Partial(shifted), optax.sgd(1.0), UpdateSettings(micro_rows=1, widths=(1024,))
    )
    alone = jax.tree.map(lambda x: x[:1], supervised_batch(batch))
    learner, _ = update.update(update.init(jnp.zeros((1, 1024))), alone, lengths[:1])
    sampled = np.asarray(batch.sampled[:1])
    np.testing.assert_allclose(learner.params, sampled / sampled.sum(), atol=1e-7)
    assert not np.any(np.asarray(learner.params)[~sampled])
