"""Laws of packed rows: every row whole and to itself, and the same update as one of padded rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.tree_util import Partial

from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.grpo.cutting import plan_micro_batches, take_packed
from cacherl_jax.grpo.loss import CACHED, FRESH, SUPERVISED, TEXT, Batch, LossSettings
from cacherl_jax.grpo.packing import first_fit_decreasing, plan_packed
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.policy import transformer
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.lora import LoraSettings, init_adapter
from cacherl_jax.policy.shape import Shape

SHAPE = Shape(layers=1, embed=32, heads=4, kv_heads=2, head_dim=8, hidden=48, vocab=97)
COLUMNS = 40
LENGTHS = (40, 3, 17, 0, 2, 30, 16, 7, 23, 21)
WIDTHS = (16, 40, 64)
WEIGHTS = {'entropy_weight': 0.3, 'language_weight': 0.7, 'kl_weight': 0.15}
lengths_of = st.lists(st.integers(0, COLUMNS), min_size=1, max_size=12).filter(any)


@functools.cache
def params():
    """Large enough that what stands elsewhere in a row would change what is likely."""
    init = jax.jit(transformer.init_params, static_argnums=0)
    made = init(SHAPE, jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf * 12 if leaf.ndim > 1 else leaf, made)


@functools.cache
def rows():
    """Ragged rows of every kind; about half of all tokens are sampled, never the first."""
    draws, count = np.random.default_rng(0), len(LENGTHS)
    size = (count, COLUMNS)
    inside = np.arange(COLUMNS) < np.array(LENGTHS)[:, None]
    sampled = inside & (draws.random(size) < 0.5) & (np.arange(COLUMNS) > 0)
    numbers = {
        name: jnp.asarray(draws.normal(centre, 1, size), jnp.float32)
        for name, centre in (('behaviour_logprob', -4), ('reference_logprob', -4), ('advantage', 0))
    }
    return Batch(
        tokens=jnp.asarray(draws.integers(0, SHAPE.vocab, size) * inside, jnp.int32),
        length=jnp.asarray(LENGTHS, jnp.int32),
        sampled=jnp.asarray(sampled),
        kind=jnp.asarray(np.resize((FRESH, CACHED, SUPERVISED, TEXT, FRESH), count), jnp.int32),
        **numbers,
    )


def apart(params, tokens, length, sampled, position=None, segment=None):
    return score(params, SHAPE, tokens, sampled, position=position, segment=segment)


def bigram(table, tokens, length, sampled, position=None, segment=None):
    """A policy that looks one token back; NaN wherever it was not asked."""
    told = jax.nn.log_softmax(table[jnp.roll(tokens, 1, axis=1)])
    logprob = jnp.take_along_axis(told, tokens[..., None], axis=2)[..., 0]
    entropy = -jnp.sum(jnp.exp(told) * told, axis=2)
    return jnp.where(sampled, logprob, jnp.nan), jnp.where(sampled, entropy, jnp.nan)


def updated(pack, scored, learned, **loss):
    """The gradient, as the step that plain descent takes, and the metrics."""
    told = LossSettings(**WEIGHTS, **loss)
    sizes = UpdateSettings(micro_rows=4, widths=(64,), pack=pack, loss=told)
    update = make_update(scored, optax.sgd(1.0), sizes)
    learner, metrics = update.update(update.init(learned), rows(), np.array(LENGTHS))
    step = jax.tree.map(lambda x, y: np.asarray(x - y), learned, learner.params)
    return step, {name: float(value) for name, value in metrics.items()}


def assert_same(one, other, tolerance=1e-5):
    for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance * max(1.0, np.abs(x).max()))


@pytest.mark.parametrize('aggregation', ['token', 'sequence', 'constant'])
def test_packing_changes_no_term_and_no_metric(aggregation):
    table = np.random.default_rng(1).normal(0, 1, (SHAPE.vocab, SHAPE.vocab)).astype(np.float32)
    (step, said), (packed_step, packed_said) = (
        updated(pack, bigram, table, aggregation=aggregation) for pack in (False, True)
    )
    assert_same(step, packed_step)
    assert packed_said == pytest.approx(said, rel=1e-5, abs=1e-5)


def test_packed_loss_and_gradients_equal_padded_ones():
    """Of a policy that reads its whole conversation: it must not read another's."""
    (step, said), (packed_step, packed_said) = (
        updated(pack, apart, params()) for pack in (False, True)
    )
    assert_same(step, packed_step)
    assert packed_said == pytest.approx(said, rel=1e-5, abs=1e-5)


def test_without_segments_neighbours_would_be_read():
    (packing,) = plan_packed(np.array(LENGTHS), 4, (64,))
    packed = take_packed(rows(), packing)
    told = (params(), packed.tokens, packed.length, packed.sampled)
    alone, _ = jax.jit(apart)(*told, packed.position, packed.segment)
    assert np.abs(jax.jit(apart)(*told)[0] - alone).max() > 1e-1


def test_an_adapter_scores_packed_rows_as_what_it_is_merged_into():
    lora = LoraSettings(rank=2)
    adapter = init_adapter(params(), lora, jax.random.key(3))
    tuning = Tuning(settings=lora, params=params())
    (packing,) = plan_packed(np.array(LENGTHS), 4, (64,))
    packed = take_packed(rows(), packing)
    told, named = (packed.tokens, packed.length, packed.sampled), packing._asdict()
    del named['row']
    found, _ = jax.jit(tuning.score(Partial(apart)))(adapter, *told, **named)
    merged, _ = jax.jit(apart)(tuning.merged(adapter), *told, **named)
    np.testing.assert_allclose(found, merged, atol=1e-5)


def test_every_token_is_taken_with_all_that_belongs_to_it():
    (packing,) = plan_packed(np.array(LENGTHS), 8, (64,))
    packed = jax.jit(take_packed)(rows(), packing)
    for place, length in enumerate(LENGTHS):
        here = packing.row == place
        for name in ('tokens', 'sampled', 'behaviour_logprob', 'reference_logprob', 'advantage'):
            whole = getattr(rows(), name)[place, :length]
            np.testing.assert_array_equal(getattr(packed, name)[here], whole)
        assert (np.asarray(packed.kind)[here] == int(rows().kind[place])).all()
    assert not np.asarray(packed.sampled)[packing.segment < 0].any()
    assert packed.length.sum() == sum(LENGTHS)


@settings(max_examples=50)
@given(lengths_of, st.integers(1, 5))
def test_every_row_stands_once_and_whole(lengths, micro_rows):
    plan = plan_packed(lengths, micro_rows, WIDTHS)
    found = {}
    for number, packing in enumerate(plan):
        assert packing.row.shape[0] == micro_rows and packing.row.shape[1] in WIDTHS
        for line in range(micro_rows):
            for segment in set(packing.segment[line]) - {-1}:
                here = packing.segment[line] == segment
                (row,) = set(packing.row[line, here])
                assert np.ptp(np.flatnonzero(here)) == lengths[row] - 1
                assert packing.position[line, here].tolist() == list(range(lengths[row]))
                found.setdefault(row, []).append((number, line))
        empty = packing.segment < 0
        assert (packing.row[empty] == len(lengths)).all() and not packing.position[empty].any()
    assert sorted(found) == np.flatnonzero(lengths).tolist()
    assert all(len(places) == 1 for places in found.values())


@settings(max_examples=300)
@given(lengths_of, st.integers(1, 5))
@example([21, 21, 21, 21, 16, 4], 2)  # pairs that leave one packed row for a batch of its own
def test_packing_computes_no_more_tokens_than_padding(lengths, micro_rows):
    padded = plan_micro_batches(lengths, micro_rows, WIDTHS)
    packed = plan_packed(lengths, micro_rows, WIDTHS)
    computed = sum(one.rows.size * one.width for one in padded)
    assert sum(packing.row.size for packing in packed) <= computed


@settings(max_examples=50)
@given(st.lists(st.integers(1, COLUMNS), min_size=1, max_size=40))
def test_no_row_would_have_fitted_an_earlier_packed_row(lengths):
    home = first_fit_decreasing(lengths, COLUMNS)
    used = np.bincount(home, lengths)
    longest = [max(n for n, row in zip(lengths, home, strict=True) if row == r) for r in
               range(len(used))]  # fmt: skip
    assert (used <= COLUMNS).all() and sorted(set(home.tolist())) == list(range(len(used)))
    for later in range(1, len(used)):
        assert (used[:later] + longest[later] > COLUMNS).all()


@pytest.mark.parametrize(
    ('lengths', 'why'),
    [([0, 0], 'a row with tokens, got 2 rows of length 0'), ([65, 1], 'a row has 65 tokens')],
)
def test_what_cannot_be_packed_is_refused(lengths, why):
    with pytest.raises(ValueError, match=why):
        plan_packed(lengths, 2, WIDTHS)


def test_rows_that_are_packed_already_are_refused():
    (packing,) = plan_packed(np.array(LENGTHS), 8, (64,))
    packed = take_packed(rows(), packing)
    update = make_update(apart, optax.sgd(1.0), UpdateSettings(widths=WIDTHS))
    with pytest.raises(ValueError, match='set pack, which does it'):
        update.update(update.init(params()), packed, np.full(8, 64))
