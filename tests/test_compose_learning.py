"""Laws of the supervised stages: each begins anew, and learns what the policy itself got right.

The policy is a small random one that ends its turns soon, for half of its vocabulary are end ids;
the tasks are content with any answer.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_cache_rows import task
from tiny_policy import VOCAB

from cacherl_jax.chat.parse import HERMES
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose import learning
from cacherl_jax.compose.agent import BASE, Agent, make_score
from cacherl_jax.compose.stages import text_rows
from cacherl_jax.config import PRESETS
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.mesh import MeshSettings, make_mesh
from cacherl_jax.policy import transformer
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rollout_cache.buffer import BufferSettings
from cacherl_jax.supervised.dataset import conversation_arrays
from cacherl_jax.supervised.rejection import RejectionSettings
from cacherl_jax.supervised.update import SupervisedSettings

SHAPE = Shape(layers=1, embed=16, heads=2, kv_heads=1, head_dim=8, hidden=24, vocab=VOCAB)
CONTEXT = 64
TASKS = 3


@functools.cache
def agent() -> Agent:
    init = jax.jit(transformer.init_params, static_argnums=0)
    return Agent(
        shape=SHAPE,
        params=init(SHAPE, jax.random.key(0)),
        chat=Chat(tokenizer=load_tokenizer(BASE), end_ids=tuple(range(0, SHAPE.vocab, 2))),
        call_format=HERMES,
        source=BASE,
        mesh=make_mesh(MeshSettings(), jax.devices()[:1]),
    )


def config(**rejection):
    """Small sizes; stages of two steps."""
    return dataclasses.replace(
        PRESETS['small'],
        decode=DecodeSettings(
            slots=4, context_tokens=CONTEXT, turn_tokens=12, episode_tokens=24, widths=(CONTEXT,)
        ),
        update=UpdateSettings(micro_rows=4, widths=(CONTEXT,)),
        buffer=BufferSettings(minimum=1),
        supervised=SupervisedSettings(
            epochs=2, rows=16, optimizer='adamw', rejection=RejectionSettings(**rejection)
        ),
    )


def lessons():
    messages = [{'role': 'user', 'content': 'add'}, {'role': 'assistant', 'content': 'It is 3.'}]
    rows = [conversation_arrays(agent().chat, messages)]
    return learning.lessons_of(rows, [], config())


@pytest.fixture(autouse=True)
def easy_tasks(monkeypatch):
    found = [task(number) for number in range(TASKS)]
    monkeypatch.setattr(learning, 'tasks_of', lambda config, split, count: found)


def stages(settings):
    told = []
    return learning.supervised_stages(agent(), lessons(), settings, told.append), told


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_without_samples_there_is_one_stage():
    started, told = stages(config())
    assert len(told) == 2 and not started.accepted and started.live_calls == 0
    assert_equal(started.params, learning.learned_params(agent(), lessons(), config(), told.append))


@functools.cache
def sampled_twice():
    return stages(config(samples=2, iterations=2, tasks_at_once=2, per_task=1))


def test_what_was_right_is_learned_with_the_lessons_from_the_start():
    started, _ = sampled_twice()
    rows = lessons().arrays
    for accepted in started.accepted:
        rows = accepted.combined(rows)
    assert len(rows) == 1 + 2 * TASKS
    again = learning.learned_params(
        agent(), learning.lessons_of(rows, [], config()), config(), lambda metrics: None
    )
    assert_equal(started.params, again)


def test_samples_are_of_no_step_and_have_the_log_probabilities_of_who_wrote_them():
    started, _ = sampled_twice()
    first = started.accepted[0]
    assert {episode.step for found in started.accepted for episode in found.episodes} == {-1}
    writer = learning.learned_params(agent(), lessons(), config(), lambda metrics: None)
    rows = learning.lessons_of(first.arrays, [], config()).rows
    scored = jax.jit(make_score(agent(), config().sampling))
    found = np.asarray(scored(writer, rows.tokens, rows.length, rows.sampled)[0])
    for row, sample in zip(found, first.arrays, strict=True):
        wrote = sample['sampled']
        assert wrote.any() and (sample['logprob'][wrote] < 0).all()
        np.testing.assert_allclose(row[: len(wrote)][wrote], sample['logprob'][wrote], atol=1e-4)


def test_each_sampling_takes_what_was_not_learned_before_and_tells_its_counts():
    started, told = sampled_twice()
    counts = [metrics for metrics in told if 'rejection/sampled' in metrics]
    assert [c['rejection/accepted'] for c in counts] == [TASKS, TASKS]
    assert all(c['rejection/sampled'] == 2 * TASKS for c in counts)
    assert all(c['rejection/refused/enough_of_its_task'] == TASKS for c in counts)
    rows = [row['tokens'].tobytes() for found in started.accepted for row in found.arrays]
    assert len(set(rows)) == 2 * TASKS
    assert sum('loss/supervised' in metrics for metrics in told) == 3 * 2


def learned(settings):
    """What a stage makes of five conversations, four of them cut short."""
    (whole,) = lessons().arrays
    cut = [{name: x[: 9 + 3 * more] for name, x in whole.items()} for more in range(4)]
    told = learning.lessons_of([whole, *cut], [], settings)
    return learning.learned_params(agent(), told, settings, lambda metrics: None)


def test_packed_stages_are_padded_stages():
    packed = config()
    packed = dataclasses.replace(
        packed, supervised=dataclasses.replace(packed.supervised, pack=True)
    )
    for one, other in zip(*map(jax.tree.leaves, (learned(config()), learned(packed))), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_how_often_rl_steps_over_a_batch_is_nothing_to_the_supervised_stage():
    often = dataclasses.replace(config().update, epochs=2, minibatches=3)
    assert_equal(learned(dataclasses.replace(config(), update=often)), learned(config()))


def rows_with_ends(least):
    """Four rows that are sampled from the fourth token on; the first one ends at once."""
    ended = np.arange(4 * 16).reshape(4, 16) * 2 + 1
    ended[0, 4] = 0
    sampled = np.broadcast_to(np.arange(16) > 3, ended.shape)
    score = jax.jit(make_score(agent(), SamplingSettings(min_tokens=least)))
    return score, (jnp.asarray(ended), jnp.full(4, 16), jnp.asarray(sampled))


def test_a_row_that_ended_before_min_tokens_is_scored_as_free_to():
    least, rows = rows_with_ends(6)
    free, _ = rows_with_ends(0)
    found, plain = (np.asarray(score(agent().params, *rows)[0]) for score in (least, free))
    assert found[0, 4] == plain[0, 4] > -30
    assert (found[1:, 4:10] > plain[1:, 4:10] + 0.1).all()  # half of the vocabulary is forbidden
    np.testing.assert_array_equal(found[:, 10:], plain[:, 10:])


def test_packed_conversations_have_their_own_first_turns():
    score, (tokens, length, sampled) = rows_with_ends(6)
    alone = score(agent().params, tokens, length, sampled)[0]
    place = jnp.arange(64)[None]
    told = {'position': place % 16, 'segment': place // 16}
    packed = score(
        agent().params, tokens.reshape(1, 64), jnp.full(1, 64), sampled.reshape(1, 64), **told
    )[0]
    np.testing.assert_allclose(packed.reshape(4, 16), alone, atol=1e-5)


def test_text_against_forgetting_is_of_no_lesson_and_other_at_every_step():
    """Or it is what the supervised stage learned, where a run asks for that."""
    own = lessons()
    roomy = dataclasses.replace(
        config(),
        text_rows=2,
        decode=DecodeSettings(context_tokens=576, widths=(576,)),
        update=UpdateSettings(widths=(576,)),
    )

    def texts(settings, step):
        rows, lengths = text_rows(agent(), own, settings, jax.random.key(0), step)
        told = zip(np.asarray(rows.tokens).tolist(), lengths, strict=True)
        return [tuple(row[:length]) for row, length in told]

    first, again, other = texts(roomy, 0), texts(roomy, 0), texts(roomy, 1)
    lesson = tuple(np.asarray(own.rows.tokens)[0, : own.lengths[0]].tolist())
    assert first == again and len({*first, *other, lesson}) == 5
    assert texts(dataclasses.replace(roomy, text='lessons', text_rows=1), 0) == [lesson]
    with pytest.raises(ValueError, match="text must be lessons or general, got 'books'"):
        dataclasses.replace(roomy, text='books')
