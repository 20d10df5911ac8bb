"""Laws of packed rows: every conversation whole and to itself, and the same loss as padded."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacherl_jax.policy import transformer
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.shape import Shape
from cacherl_jax.supervised.packing import first_fit_decreasing, pack

SHAPE = Shape(layers=1, embed=32, heads=4, kv_heads=2, head_dim=8, hidden=48, vocab=97)
CONTEXT = 64
LENGTHS = (40, 3, 17, 64, 2, 30, 16, 7, 23, 21)


def conversations(lengths=LENGTHS, seed=0):
    """Arrays of made-up conversations; about half of all tokens are learned, never the first."""
    draws = np.random.default_rng(seed)
    made = []
    for length in lengths:
        sampled = draws.random(length) < 0.5
        sampled[0], sampled[-1] = False, length > 1
        tokens = draws.integers(0, SHAPE.vocab, length, dtype=np.int32)
        turn = np.cumsum(sampled, dtype=np.int32) - 1
        made.append({'tokens': tokens, 'sampled': sampled, 'turn': turn})
    return made


@functools.cache
def params():
    """Large enough that what stands elsewhere in a row would change what is likely."""
    init = jax.jit(transformer.init_params, static_argnums=0)
    made = init(SHAPE, jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf * 16 if leaf.ndim > 1 else leaf, made)


def padded(rows):
    """tokens, sampled [row, token] with a conversation in each."""
    size = (len(rows), CONTEXT)
    tokens, sampled = np.zeros(size, np.int32), np.zeros(size, bool)
    for place, each in enumerate(rows):
        tokens[place, : len(each['tokens'])] = each['tokens']
        sampled[place, : len(each['tokens'])] = each['sampled']
    return tokens, sampled


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def learn(params, tokens, sampled, segment):
    """Cross-entropy with one denominator, as the update counts it, and the log-probabilities."""
    logprob, _ = score(params, SHAPE, tokens, sampled, segment=segment)
    return -jnp.sum(logprob, where=sampled) / sampled.sum(), logprob


@functools.cache
def learned():
    """Packed rows, then loss, log-probabilities and gradient: padded, packed, and not kept apart.

    Rows that hold nothing are added to the packed ones, so that fewer programs are compiled.
    """
    packed, (tokens, sampled) = pack(conversations(), CONTEXT), padded(conversations())
    empty = ((0, len(tokens) - len(packed.tokens)), (0, 0))
    told = [np.pad(x, empty) for x in (packed.tokens, packed.sampled)]
    segment = np.pad(packed.segment, empty, constant_values=-1)
    alone, together, mixed = (
        learn(params(), *given) for given in ((tokens, sampled, None), (*told, segment),
                                              (*told, None))
    )  # fmt: skip
    return packed, alone, together, mixed


def test_packed_loss_and_gradients_equal_padded_ones():
    packed, ((a, _), one), ((b, _), two), _ = learned()
    assert len(packed.tokens) == 4 and packed.sampled.sum() == padded(conversations())[1].sum()
    np.testing.assert_allclose(a, b, rtol=1e-5)
    for x, y in zip(*map(jax.tree.leaves, (one, two)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5 * float(jnp.abs(x).max()))


def test_each_token_has_the_log_probability_it_has_alone():
    packed, ((_, alone), _), ((_, together), _), _ = learned()
    for place, length in enumerate(LENGTHS):
        here = slice(packed.start[place], packed.start[place] + length)
        both = alone[place, :length], together[packed.row[place], here]
        np.testing.assert_allclose(*both, atol=2e-5)


def test_without_segments_neighbours_would_be_read():
    _, _, ((apart, _), _), ((mixed, _), _) = learned()
    assert abs(float(apart - mixed)) > 1e-2


@jax.jit
def hidden(tokens, position, segment):
    attend, past = transformer.causal(segment), (None,) * SHAPE.layers
    return transformer.forward(params(), SHAPE, tokens, position, attend, past)[0]


def test_positions_that_begin_anew_give_the_hidden_states_of_a_row_alone():
    rows = conversations((40, 3, 17))
    packed, (tokens, _) = pack(rows, CONTEXT), padded(rows)
    place = np.broadcast_to(np.arange(CONTEXT), tokens.shape)
    alone = hidden(tokens, place, np.zeros_like(tokens))
    told = (np.repeat(x, 3, axis=0) for x in (packed.tokens, packed.position, packed.segment))
    together = hidden(*told)
    for number, each in enumerate(rows):
        here = slice(packed.start[number], packed.start[number] + len(each['tokens']))
        np.testing.assert_allclose(
            alone[number, : len(each['tokens'])], together[0, here], atol=1e-5
        )


@settings(max_examples=30)
@given(st.lists(st.integers(2, CONTEXT), min_size=1, max_size=12), st.integers(0, 9))
def test_every_conversation_stands_once_and_whole(lengths, seed):
    rows = conversations(lengths, seed)
    packed = pack(rows, CONTEXT)
    for place, each in enumerate(rows):
        row, start = packed.row[place], packed.start[place]
        here = packed.segment[row] == packed.segment[row, start]
        assert np.flatnonzero(here)[0] == start and here.sum() == len(each['tokens'])
        assert packed.position[row, here].tolist() == list(range(len(each['tokens'])))
        for name, field in each.items():
            assert getattr(packed, name)[row, here].tolist() == field.tolist()
    padding = np.arange(CONTEXT) >= packed.length[:, None]
    assert packed.length.sum() == sum(lengths) and (packed.segment[padding] == -1).all()
    assert not packed.sampled[padding].any() and not packed.tokens[padding].any()
    assert packed.padding_fraction == pytest.approx(padding.mean())


@settings(max_examples=50)
@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=40))
def test_no_conversation_would_have_fitted_an_earlier_row(lengths):
    rows = first_fit_decreasing(lengths, CONTEXT)
    used = np.bincount(rows, lengths)
    longest = [max(n for n, row in zip(lengths, rows, strict=True) if row == r) for r in
               range(len(used))]  # fmt: skip
    assert (used <= CONTEXT).all() and sorted(set(rows.tolist())) == list(range(len(used)))
    for later in range(1, len(used)):
        assert (used[:later] + longest[later] > CONTEXT).all()


@pytest.mark.parametrize(
    ('rows', 'why'),
    [
        ([], 'no conversation to pack'),
        (conversations((65, 3)), 'of 1 to 64 tokens can be packed, got 3 to 65'),
        (conversations((3,)) + [dict.fromkeys(('tokens', 'sampled'), np.zeros(0))], 'got 0 to 3'),
        ([{'tokens': np.ones(2), 'sampled': np.ones(2, bool)}], 'first token of conversation 0 is'),
    ],
)
def test_what_cannot_be_packed_is_refused(rows, why):
    with pytest.raises(ValueError, match=why):
        pack(rows, CONTEXT)
