"""Laws of rows that share a prompt: the same update and the same scores, for one prompt's price."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_grpo_packing import SHAPE, assert_same, params

from cacherl_jax.grpo.cutting import minibatches, plan_micro_batches
from cacherl_jax.grpo.loss import CACHED, FRESH, SUPERVISED, TEXT, Batch, LossSettings
from cacherl_jax.grpo.reference import make_scoring
from cacherl_jax.grpo.sharing import plan_shared, prompts_of
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.policy.logprob import score
from cacherl_jax.trajectory import Trajectory

COLUMNS = 48
WIDTHS = (8, 16, 32)
# (prompt, its tokens, all tokens): groups of four and three, rows alone, one of another length.
ROWS = [(0, 9, 20), (0, 9, 33), (0, 9, 12), (0, 9, 25), (1, 14, 30), (2, 1, 22), (1, 14, 17),
        (3, 20, 40), (1, 14, 29), (4, 5, 0), (4, 5, 11)]  # fmt: skip
KINDS = (FRESH, FRESH, FRESH, CACHED, FRESH, TEXT, FRESH, SUPERVISED, CACHED, FRESH, FRESH)
LENGTHS = np.array([length for *_, length in ROWS])
LOSS = {'entropy_weight': 0.3, 'language_weight': 0.7, 'kl_weight': 0.15}


@functools.cache
def batch():
    """Rows of every kind, half of what follows their prompts sampled."""
    draws, size = np.random.default_rng(2), (len(ROWS), COLUMNS)
    place = np.arange(COLUMNS)
    begins = draws.integers(0, SHAPE.vocab, (5, COLUMNS))
    tokens, sampled = draws.integers(0, SHAPE.vocab, size), draws.random(size) < 0.5
    for row, (prompt, start, length) in enumerate(ROWS):
        tokens[row, :start] = begins[prompt, :start]
        tokens[row, length:] = 0
        sampled[row, start] = True
        sampled[row] &= (place >= start) & (place < length)
    numbers = {
        name: jnp.asarray(draws.normal(centre, 1, size), jnp.float32)
        for name, centre in (('behaviour_logprob', -4), ('reference_logprob', -4), ('advantage', 0))
    }
    return Batch(
        tokens=jnp.asarray(tokens, jnp.int32),
        length=jnp.asarray(LENGTHS, jnp.int32),
        sampled=jnp.asarray(sampled),
        kind=jnp.asarray(KINDS, jnp.int32),
        **numbers,
    )


def prompts():
    return prompts_of(np.asarray(batch().tokens), np.asarray(batch().sampled))


def scored(params, tokens, length, sampled, **apart):
    return score(params, SHAPE, tokens, sampled, **apart)


def sizes(shared, **fields):
    return UpdateSettings(micro_rows=4, widths=(48,), shared_widths=shared, **fields)


def updated(shared, **loss):
    cut = sizes(shared, minibatches=2, loss=LossSettings(**LOSS, **loss))
    update = make_update(scored, optax.sgd(1.0), cut)
    learner, metrics = update.update(update.init(params()), batch(), LENGTHS, prompts())
    step = jax.tree.map(lambda x, y: np.asarray(x - y), params(), learner.params)
    return step, {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize('aggregation', ['token', 'sequence'])
def test_sharing_prompts_changes_no_gradient_and_no_metric(aggregation):
    (step, said), (shared_step, shared_said) = (
        updated(shared, aggregation=aggregation) for shared in ((), WIDTHS)
    )
    assert_same(step, shared_step)
    for share in minibatches(LENGTHS, 2):
        assert plan_shared(share, prompts(), 4, (48,), WIDTHS)[0]
    assert shared_said == pytest.approx(said, rel=1e-5, abs=1e-5)


def test_sharing_prompts_changes_no_score():
    rows = Trajectory(
        tokens=batch().tokens,
        length=batch().length,
        sampled=batch().sampled,
        logprob=jnp.zeros(batch().tokens.shape),
        turn=jnp.zeros(batch().tokens.shape, jnp.int32),
    )
    alone, shared = (
        make_scoring(scored, sizes(widths), which=(0, 1))(params(), rows, LENGTHS, prompts())
        for widths in ((), WIDTHS)
    )
    assert np.count_nonzero(alone[0]) == batch().sampled.sum()
    assert_same(alone, shared)


def test_what_stands_before_the_first_sampled_token_is_the_prompt():
    told = prompts()
    assert told.tokens.tolist() == [start if length else 0 for _, start, length in ROWS]
    same = told.number[:, None] == told.number
    number = np.array([prompt if length else -1 for prompt, _, length in ROWS])
    np.testing.assert_array_equal(same, number[:, None] == number)


rows_of = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(rows_of, st.sampled_from([(4, 1), (8, 1), (8, 2), (6, 3), (3, 1)]))
def test_every_row_stands_once_whole_and_behind_its_prompt(drawn, division):
    micro_rows, beside = division
    start = np.array([2 + 3 * number for number, _ in drawn])
    told = prompts_of(  # a row of which nothing is sampled has no prompt to share
        np.repeat(np.array([[number] for number, _ in drawn], np.int32), COLUMNS, axis=1),
        np.arange(COLUMNS) == start[:, None],
    )
    lengths = np.array([s + more if more else 0 for s, (_, more) in zip(start, drawn, strict=True)])
    plan, left = plan_shared(lengths, told, micro_rows, (40,), WIDTHS, beside)
    found = np.where(left > 0, left, 0)
    for (row, position, segment), (wide, each) in plan:
        assert len(row) % beside == 0 and row.shape[1] == wide + micro_rows // len(row) * each
        for place in range(len(row)):
            prompt = segment[place, :wide] >= 0
            for begin in range(wide, row.shape[1], each):
                here = slice(begin, begin + each)
                held = segment[place, here] >= 0
                if not held.any():
                    continue
                number, last = row[place, begin], prompt.sum()
                assert last == start[number] - 1
                assert told.number[row[place, 0]] == told.number[number]
                assert position[place, :last].tolist() == list(range(last))
                ends = last + held.sum()
                assert position[place, here][held].tolist() == list(range(last, ends))
                assert found[number] == 0
                found[number] = ends
    np.testing.assert_array_equal(found, lengths)

    def alone(lengths):
        plan = plan_micro_batches(lengths, micro_rows, (40,)) if lengths.any() else []
        return sum(rows.size * width for rows, width in plan)

    computed = sum(shared.packing.row.size for shared in plan)
    assert computed + alone(left) <= alone(lengths)


def test_a_group_costs_one_prompt():
    told = prompts_of(np.zeros((8, 48), np.int32), np.arange(48) == np.full((8, 1), 33))
    ((packing, split),), left = plan_shared(np.full(8, 48), told, 8, (48,), (16, 32))
    assert packing.row.shape == (1, 32 + 8 * 16) and split == (32, 16) and not left.any()


def test_a_policy_that_does_not_know_of_the_split_would_read_its_neighbours():
    (packing, split), *_ = plan_shared(LENGTHS, prompts(), 4, (48,), WIDTHS)[0]
    row = np.minimum(packing.row, len(ROWS) - 1)
    tokens = batch().tokens[row, packing.position]
    asked = batch().sampled[row, packing.position] & (packing.segment >= 0)
    named = {'position': packing.position, 'segment': packing.segment}
    shared = scored(params(), tokens, None, asked, split=split, **named)[0]
    apart = scored(params(), tokens, None, asked, **named)[0]
    assert np.abs(shared - apart).max() > 1e-1
