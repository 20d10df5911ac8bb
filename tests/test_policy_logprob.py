"""Laws of scoring: what the trainer computes is the plain softmax, whatever the packing."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.bench.memory import memory_of
from cacherl_jax.policy import logprob, transformer
from cacherl_jax.policy.logprob import first_turn_start, hidden_states, score
from cacherl_jax.policy.sample import FORBIDDEN, SamplingSettings
from cacherl_jax.policy.shape import Shape

SHAPE = Shape(layers=1, embed=16, heads=4, kv_heads=2, head_dim=4, hidden=24, vocab=37, tied=False)


@functools.cache
def params():
    made = jax.jit(transformer.init_params, static_argnums=0)(SHAPE, jax.random.key(0))
    return jax.tree.map(lambda leaf: leaf * 12 if leaf.ndim > 1 else leaf, made)


@functools.cache
def rows(width, count=3):
    """Tokens and which of them are scored, some at every second place."""
    chance = np.random.default_rng(width)
    tokens = chance.integers(0, SHAPE.vocab, (count, width))
    return jnp.asarray(tokens, jnp.int32), jnp.asarray(chance.random((count, width)) < 0.5)


@functools.partial(jax.jit, static_argnames=('sampling', 'end_ids', 'remat'))
def ours(params, tokens, scored, **others):
    return score(params, SHAPE, tokens, scored, **others)


@jax.jit
def direct(params, tokens, scored):
    """The whole [row, token, vocab] softmax."""
    hidden = hidden_states(params, SHAPE, tokens)
    told = jax.nn.log_softmax(transformer.logits_of(params, SHAPE, hidden))[:, :-1]
    chosen = jnp.take_along_axis(told, tokens[:, 1:, None], -1)[..., 0]
    entropy = -jnp.sum(jnp.exp(told) * told, -1)
    return tuple(
        jnp.pad(jnp.where(scored[:, 1:], x, 0.0), ((0, 0), (1, 0))) for x in (chosen, entropy)
    )


def assert_close(found, expected, atol=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), found, expected)


@pytest.mark.parametrize('width', [3, 7, 16])
def test_scores_are_the_plain_softmax(width):
    tokens, scored = rows(width)
    assert_close(ours(params(), tokens, scored), direct(params(), tokens, scored))


def test_arrays_of_the_host_are_scored_without_jit_too():
    tokens, scored = rows(7)
    found = score(params(), SHAPE, np.asarray(tokens), np.asarray(scored))
    assert_close(found, direct(params(), tokens, scored))


@pytest.mark.parametrize('width', [3, 16])
def test_gradients_are_those_of_the_plain_softmax(width):
    tokens, scored = rows(width)

    def total(params, scorer):
        chosen, entropy = scorer(params, tokens, scored)
        return jnp.sum(chosen * jnp.arange(1.0, width + 1)) + 0.3 * jnp.sum(entropy)

    gradient = jax.jit(jax.grad(total), static_argnums=1)
    expected = gradient(params(), direct)
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    assert_close(gradient(params(), ours), expected, atol=1e-5 * max(1.0, scale))


@pytest.mark.parametrize('padding', [0, 5, 50])
def test_padding_changes_no_score(padding):
    tokens, scored = rows(16)
    wide = jnp.pad(tokens, ((0, 0), (0, padding)), constant_values=5)
    found = ours(params(), wide, jnp.pad(scored, ((0, 0), (0, padding))))
    assert_close(tuple(x[:, :16] for x in found), ours(params(), tokens, scored))
    assert not any(np.any(x[:, 16:]) for x in found)


@pytest.mark.parametrize('fill', [0, 36])
def test_what_stands_in_the_padding_changes_no_score(fill):
    tokens, scored = rows(16)
    behind = jnp.arange(16) >= 11
    cut = scored & ~behind
    other = ours(params(), jnp.where(behind, fill, tokens), cut)
    assert_close(other, ours(params(), tokens, cut), atol=0)


@pytest.mark.parametrize('chunk', [1, 7, 1000])
def test_the_chunk_changes_no_score(chunk, monkeypatch):
    tokens, scored = rows(16)
    monkeypatch.setattr(logprob, 'CHUNK_ENTRIES', chunk * SHAPE.vocab)
    found = jax.jit(lambda p: score(p, SHAPE, tokens, scored))(params())
    assert_close(found, direct(params(), tokens, scored))


def test_the_gradient_keeps_the_head_once_however_many_chunks_there_are(monkeypatch):
    """One head for each chunk would be larger than the logits that chunks are there to avoid."""
    shape = dataclasses.replace(SHAPE, vocab=700)
    tokens, scored = rows(16)
    monkeypatch.setattr(logprob, 'CHUNK_ENTRIES', 2 * shape.vocab)
    made = transformer.init_params(shape, jax.random.key(0))
    total = jax.grad(lambda p: sum(x.sum() for x in score(p, shape, tokens, scored)))
    held = memory_of(jax.jit(total).lower(made).compile())
    assert held.largest_bytes <= made['head'].nbytes


@pytest.mark.parametrize('kept', [False, True])
def test_none_and_all_may_be_scored(kept):
    tokens, _ = rows(7)
    found, entropy = ours(params(), tokens, jnp.full(tokens.shape, kept))
    assert np.all(np.asarray(found)[:, 1:] < 0) if kept else not np.any(found)
    assert not np.any(found[:, 0]) and not np.any(entropy[:, 0])


def test_recomputing_layers_changes_no_score():
    tokens, scored = rows(7)
    again = ours(params(), tokens, scored, remat=True)
    assert_close(again, ours(params(), tokens, scored))


@pytest.mark.parametrize('packed', [False, True])
def test_the_attention_of_jax_gives_the_same_scores_and_gradients(packed):
    """cuDNN's, which needs a GPU, is called in the same way."""
    tokens, scored = rows(7)
    place = jnp.broadcast_to(jnp.arange(7), tokens.shape)
    apart = {'segment': place // 4, 'position': place % 4} if packed else {}

    def learned(attention):
        def objective(params):
            return score(params, SHAPE, tokens, scored, attention=attention, **apart)[0].sum()

        return jax.value_and_grad(objective)(params())

    for one, other in zip(*map(jax.tree.leaves, map(learned, ('xla', 'chunked'))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_conversations_packed_in_a_row_do_not_see_each_other():
    tokens, _ = rows(7, 2)
    packed, place = tokens.reshape(1, 14), jnp.arange(14)[None]
    told = {'segment': place // 7, 'position': place % 7}
    everything = jnp.ones(packed.shape, bool)
    found, _ = ours(params(), packed, everything, **told)
    alone, _ = ours(params(), tokens, everything.reshape(2, 7))
    np.testing.assert_allclose(found.reshape(2, 7), alone, atol=2e-5)
    assert not found[0, 7] and np.all(found[0, 8:])  # the first of each is never scored


def test_positions_that_begin_anew_give_the_hidden_states_of_a_row_alone():
    tokens, _ = rows(7, 2)
    place = jnp.arange(14)[None]
    told = {'segment': place // 7, 'position': place % 7}
    hidden = jax.jit(hidden_states, static_argnums=1)
    packed = hidden(params(), SHAPE, tokens.reshape(1, 14), **told)
    alone = hidden(params(), SHAPE, tokens)
    np.testing.assert_allclose(packed.reshape(alone.shape), alone, atol=1e-5)


def test_where_ending_was_forbidden_the_end_had_no_share():
    tokens, _ = rows(16)
    ends, all_scored = (0, 1, 2), jnp.ones(tokens.shape, bool)
    early = jnp.broadcast_to(jnp.arange(16) < 8, tokens.shape)
    found, _ = ours(params(), tokens, all_scored, end_ids=ends, no_end=early)
    free, _ = ours(params(), tokens, all_scored)
    ended = np.isin(tokens, ends)
    place = np.arange(16)
    assert np.all(np.where(ended & (place > 0) & (place < 8), found < FORBIDDEN / 2, True))
    assert np.all(np.where(~ended & (place > 0) & (place < 8), found > free, True))
    np.testing.assert_array_equal(found[:, 8:], free[:, 8:])


def test_only_the_first_turns_start_may_not_end_it():
    sampled = jnp.asarray([[0, 0, 1, 1, 1, 0, 1, 1]], bool)
    early = first_turn_start(sampled, 2)
    assert early.astype(int).tolist() == [[0, 0, 1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize('least', [1, 2, 9])
def test_each_packed_conversation_has_a_first_turn_of_its_own(least):
    sampled = np.random.default_rng(least).random((2, 11)) < 0.6
    sampled[:, 0] = False
    segment = jnp.asarray([0] * 11 + [1] * 11 + [-1] * 2)[None]  # and padding of two
    packed = jnp.asarray([*sampled.reshape(-1), False, False])[None]
    early = first_turn_start(packed, least, segment)
    alone = first_turn_start(jnp.asarray(sampled), least)
    assert early[0, :22].tolist() == alone.reshape(-1).tolist() and not early[0, 22:].any()


def test_greedy_scores_are_nothing_or_impossible():
    tokens, scored = rows(7)
    found, entropy = score(
        params(), SHAPE, tokens, scored, sampling=SamplingSettings(temperature=0)
    )
    assert set(np.unique(found).tolist()) <= {0.0, np.float32(FORBIDDEN)}
    assert not np.any(entropy)
