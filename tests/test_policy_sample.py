"""Laws of the distribution that tokens are drawn from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.policy.sample import (
    DRAW_BLOCK,
    FORBIDDEN,
    SamplingSettings,
    by_row,
    draw,
    forbid,
    shaped_logprobs,
)

DRAWS = 20_000
SETTINGS = [
    SamplingSettings(),
    SamplingSettings(temperature=0.5),
    SamplingSettings(temperature=2.0, top_k=3),
    SamplingSettings(top_k=1),
    SamplingSettings(top_k=100),
    SamplingSettings(top_p=0.6),
    SamplingSettings(top_p=1e-6),
    SamplingSettings(min_p=0.2),
    SamplingSettings(min_p=1.0),
    SamplingSettings(temperature=0.7, top_k=5, top_p=0.9, min_p=0.05),
]


@functools.cache
def logits(vocab):
    return np.random.default_rng(vocab).normal(size=(5, vocab)).astype(np.float32) * 2


shaped = jax.jit(shaped_logprobs, static_argnums=1)
drawn = jax.jit(draw)


def plain(row, settings):
    """Probabilities of one row, by sorting and looking, in f64."""
    weight = np.exp(row.astype(np.float64) / settings.temperature)
    probability, kept, mass = weight / weight.sum(), [], 0.0
    for token in np.argsort(-row, kind='stable'):
        few = len(kept) < (settings.top_k or len(row))
        likely = probability[token] >= settings.min_p * probability.max()
        if few and likely and (mass < settings.top_p or settings.top_p == 1):
            kept.append(token)
        mass += probability[token]
    wanted = np.isin(np.arange(len(row)), kept)
    return np.where(wanted, probability, 0) / probability[wanted].sum()


@pytest.mark.parametrize(
    ('settings', 'vocab'),
    [(s, 7) for s in SETTINGS if s.top_p > 0.001] + [(SETTINGS[-1], 3), (SETTINGS[-1], 16)],
)
def test_shaping_equals_sorting_and_looking(settings, vocab):
    expected = [plain(row, settings) for row in logits(vocab)]
    found = np.exp(shaped(logits(vocab), settings))
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize('vocab', [3, 16])
def test_rows_with_settings_of_their_own_are_shaped_as_each_would_be_alone(vocab):
    choices = (*SETTINGS, SamplingSettings(temperature=0.0, top_k=2))
    rows = np.resize(logits(vocab), (2 * len(choices), vocab))
    found = shaped_logprobs(rows, by_row(choices, jnp.arange(len(rows))))
    for number, settings in enumerate(choices * 2):
        alone = shaped(rows[number : number + 1], settings)[0]
        np.testing.assert_allclose(found[number], alone, atol=2e-6, err_msg=str(settings))


def test_what_all_rows_have_in_common_is_no_array():
    """So that a filter that nobody uses costs nothing."""
    found = by_row((SamplingSettings(), SamplingSettings(temperature=0.5)), jnp.arange(3))
    assert found.temperature.tolist() == [[1.0], [0.5], [1.0]]
    assert found[1:] == (0, 1.0, 0.0, 0)


@pytest.mark.parametrize('settings', SETTINGS)
def test_probabilities_are_many_or_one_but_never_none(settings):
    sums = np.exp(shaped(logits(7), settings)).sum(-1)
    np.testing.assert_allclose(sums, 1, atol=1e-5)


def test_of_equal_logits_top_k_keeps_as_many_as_it_says():
    found = shaped_logprobs(jnp.zeros((2, 7)), SamplingSettings(top_k=3))
    assert (np.exp(found) > 0).sum(-1).tolist() == [3, 3]


def test_greedy_is_the_likeliest_with_certainty():
    chosen = shaped(logits(16), SamplingSettings(temperature=0))
    token, logprob = drawn(chosen, jax.random.split(jax.random.key(1), 5))
    np.testing.assert_array_equal(token, logits(16).argmax(-1))
    np.testing.assert_array_equal(logprob, 0)


@pytest.mark.parametrize('vocab', [16, 2 * DRAW_BLOCK + 7])
@pytest.mark.parametrize('settings', [SETTINGS[0], SETTINGS[2], SETTINGS[-1]])
def test_frequencies_are_the_probabilities(settings, vocab):
    logprob = shaped(logits(vocab)[:1], settings)
    rows = jnp.broadcast_to(logprob, (DRAWS, vocab))
    token, told = drawn(rows, jax.random.split(jax.random.key(7), DRAWS))
    np.testing.assert_array_equal(told, np.asarray(logprob)[0, token])
    expected = np.exp(logprob[0]) * DRAWS
    counts = np.bincount(token, minlength=vocab)
    possible = expected > 0
    squares = (counts - expected)[possible] ** 2 / expected[possible]
    assert squares.sum() < possible.sum() + 5 * np.sqrt(2 * possible.sum())
    assert counts[~possible].sum() == 0


@pytest.mark.parametrize('vocab', [3, 16])
def test_a_forbidden_token_is_never_drawn(vocab):
    where = jnp.arange(4000) % 2 == 0
    row = jnp.zeros(vocab).at[0].set(20.0)  # the likeliest by far is the one forbidden
    banned = forbid(jnp.broadcast_to(row, (4000, vocab)), (0, vocab - 1), where)
    token, logprob = drawn(
        shaped_logprobs(banned, SETTINGS[0]), jax.random.split(jax.random.key(3), 4000)
    )
    assert not np.isin(token[where], [0, vocab - 1]).any() and (token[~where] == 0).mean() > 0.99
    assert (logprob > FORBIDDEN / 2).all()


@pytest.mark.parametrize('row', [[FORBIDDEN, 0.0, FORBIDDEN], [0.0, FORBIDDEN, FORBIDDEN]])
def test_one_that_is_certain_is_drawn_by_every_key(row):
    token, logprob = drawn(jnp.asarray([row] * 500), jax.random.split(jax.random.key(2), 500))
    assert (token == np.argmax(row)).all() and (logprob == 0).all()


@pytest.mark.parametrize(
    'wrong', [{'top_p': 1.1}, {'top_p': 0.0}, {'min_p': -0.1}, {'temperature': -1}]
)
def test_settings_that_are_no_distribution_are_refused(wrong):
    with pytest.raises(ValueError, match=f'{next(iter(wrong))} must .* got'):
        SamplingSettings(**wrong)
