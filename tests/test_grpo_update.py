"""The public update: the laws of masks, cutting and padding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial
from loss_reference import EVERY_TERM, VOCAB, bigram, on_device, random_batch, run

from cacherl_jax.grpo.cutting import minibatches, plan_micro_batches
from cacherl_jax.grpo.loss import (
    CACHED,
    FRESH,
    LEFT_OUT,
    SUPERVISED,
    TEXT,
    LossSettings,
    denominators,
    numerators,
    term_values,
    total,
)
from cacherl_jax.grpo.update import UpdateSettings, make_update, raise_if_refused


@pytest.mark.parametrize(
    ('aggregation', 'micro_rows'),
    [('token', 2), ('token', 1), ('sequence', 3), ('constant', 2)],
)
def test_cutting_into_micro_batches_changes_nothing(aggregation, micro_rows):
    fields, table = random_batch(3)
    loss = EVERY_TERM | {'aggregation': aggregation}
    whole, said = run(fields, table, **loss)
    cut, said_cut = run(fields, table, micro_rows=micro_rows, widths=(8, 16), **loss)
    np.testing.assert_allclose(cut, whole, atol=1e-6)
    assert said_cut == pytest.approx(said, abs=2e-6, rel=1e-5)


@pytest.mark.parametrize('aggregation', ['token', 'sequence', 'constant'])
def test_ten_more_padding_columns_change_nothing(aggregation):
    fields, table = random_batch(4)
    wider = {k: np.pad(v, [(0, 0), (0, 10)]) if v.ndim == 2 else v for k, v in fields.items()}
    narrow = run(fields, table, **EVERY_TERM, aggregation=aggregation)
    wide = run(wider, table, widths=(26,), **EVERY_TERM, aggregation=aggregation)
    np.testing.assert_allclose(wide[0], narrow[0], atol=1e-6)
    assert wide[1] == pytest.approx(narrow[1], abs=1e-6, rel=1e-5)


def table_by_place(logits, tokens, length, sampled):
    """One row of logits for every position; the first token of a row is its number."""
    logits = jax.nn.log_softmax(logits[tokens[:, 0]])[:, : tokens.shape[1]]
    logprob = jnp.take_along_axis(logits, tokens[..., None], axis=2)[..., 0]
    return logprob, -jnp.sum(jnp.exp(logits) * logits, axis=2)


def test_forced_positions_get_no_gradient_and_sampled_ones_do():
    fields, _ = random_batch(5, rows=6, kinds=(FRESH, CACHED, SUPERVISED, TEXT))
    fields['tokens'][:, 0] = np.arange(6)
    logits = np.random.default_rng(5).normal(0, 1, (6, 16, VOCAB))
    loss = EVERY_TERM | {'cached_ratio': 'shaped'}
    gradient, _ = run(fields, logits, score=table_by_place, **loss)
    moved = np.abs(gradient).max(axis=2)
    assert (moved[~fields['sampled']] == 0).all()
    assert (moved[fields['sampled']] > 0).all()


def test_no_cached_rows_is_plain_grpo_bit_for_bit():
    fields, table = random_batch(6, rows=4, kinds=(FRESH,))
    more, _ = random_batch(7, rows=3, kinds=(LEFT_OUT,))
    both = {name: np.concatenate([fields[name], more[name]]) for name in fields}
    both['length'][4:] = 0
    plain, said = run(fields, table)
    mixed, said_mixed = run(both, table)
    assert (plain == mixed).all() and said == said_mixed


def stale(ratio, advantage, **loss):
    """The slope of one cached token's loss in its log-probability, for a given ratio."""
    fields, table = random_batch(8, kinds=(CACHED,))
    fields['sampled'][:] = False
    fields['sampled'][0, 1] = True
    table[:] = 0
    fields['behaviour_logprob'][0, 1] = -np.log(VOCAB) - np.log(ratio)
    fields['advantage'][0, 1] = advantage
    gradient, _ = run(fields, table, **loss)
    before, here = fields['tokens'][0, :2]
    return gradient[before, here] / (1 - 1 / VOCAB)


@pytest.mark.parametrize(
    ('ratio', 'advantage', 'mode', 'expected'),
    [
        (1.5, 1.0, 'behaviour', 0.0),  # far enough
        (0.01, 1.0, 'behaviour', -0.01),  # a stale good example is hardly learned ...
        (0.01, 1.0, 'shaped', -0.1 * 0.01 / 0.11**2),  # ... unless its ratio is shaped
        (50.0, -1.0, 'behaviour', 2.0),  # truncated, and still learned from
        (0.5, -1.0, 'behaviour', 0.0),
    ],
)
def test_what_a_stale_token_teaches(ratio, advantage, mode, expected):
    assert stale(ratio, advantage, cached_ratio=mode) == pytest.approx(expected, abs=1e-5)


def table_logprob(fields, table):
    """float64 log-probability of every token after the first, f64 [row, token]."""
    log = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    tokens = fields['tokens']
    return np.pad(log[tokens[:, :-1], tokens[:, 1:]], [(0, 0), (1, 0)])


def test_the_ratio_is_one_before_an_update_and_not_after():
    fields, table = random_batch(9, kinds=(FRESH,))
    fields['behaviour_logprob'] = table_logprob(fields, table)
    _, once = run(fields, table)
    _, twice = run(fields, table, epochs=2)
    assert once['policy/ratio_deviation'] < 1e-5 < twice['policy/ratio_deviation']


@pytest.mark.parametrize(('kl', 'signed'), [('k1', True), ('k2', False), ('k3', False)])
def test_an_estimate_of_the_divergence_is_negative_where_it_is_k1_alone(kl, signed):
    fields, table = random_batch(17, kinds=(FRESH,))
    given = table_logprob(fields, table)
    for side in (-1, 1):
        fields['reference_logprob'] = given - 0.5 * side
        _, metrics = run(fields, table, kl=kl)
        assert (
            np.sign(metrics['loss/kl']) == np.sign(metrics['policy/kl']) == (side if signed else 1)
        )


def test_a_token_far_from_the_reference_owns_no_more_gradient_than_one_at_the_bound():
    fields, table = random_batch(16, kinds=(FRESH,))
    found = []
    for reference in (5.0, 1e4):  # in nats, of tokens whose own are below 0
        fields['reference_logprob'][:] = reference
        found.append(run(fields, table, policy_weight=0.0, kl_weight=0.1))
    (near, _), (far, metrics) = found
    np.testing.assert_allclose(far, near, rtol=1e-5, atol=1e-6)
    assert np.abs(near).max() > 0.1 and np.isfinite(metrics['loss/kl'])


@pytest.mark.parametrize(
    'change',
    [
        {'policy_weight': 0.5},
        {'kl_weight': 0.0},
        {'entropy_weight': 0.1},
        {'supervised_weight': 0.0},
        {'language_weight': 0.1},
        {'clip_low': 0.5},
        {'clip_high': 0.5},
        {'dual_clip': 1.01},
        {'cached_ratio': 'shaped'},
        {'cached_ratio': 'shaped', 'shaping': 0.5},
        {'truncation': 1.3},
        {'sampler_truncation': 1.5},
        {'value_weight': 0.1},
        {'kl': 'k1'},
        {'kl': 'k2'},
        {'aggregation': 'sequence'},
        {'aggregation': 'constant'},
        {'aggregation': 'constant', 'constant_tokens': 7},
    ],
)
def test_every_setting_changes_the_loss(change):
    fields, table = random_batch(10)
    given = table_logprob(fields, table).astype(np.float32)
    trainer = fields['behaviour_logprob'] + 0.7
    beside = {'trainer_logprob': trainer, 'value_target': given * 2}
    batch = on_device(fields | beside)

    def loss(**settings):
        settings = LossSettings(**settings)
        values = term_values(given, given * given, batch, settings, given)
        divisors = denominators(batch, settings)
        return total(numerators(values, batch, settings), divisors, settings)

    before = {'cached_ratio': 'shaped'} if 'shaping' in change else {}
    before |= {'aggregation': 'constant'} if 'constant_tokens' in change else {}
    assert abs(loss(**change) - loss(**before)) > 1e-5


def test_rate_and_epochs_change_the_step_and_a_rate_of_zero_takes_none():
    fields, table = random_batch(11)
    once, twice = run(fields, table)[0], run(fields, table, epochs=2)[0]
    assert np.abs(twice - once).max() > 1e-3
    assert (run(fields, table, rate=0.0)[0] == 0).all()


def test_minibatches_are_one_update_after_the_other_each_over_its_share_of_the_rows():
    fields, table = random_batch(11)
    lengths, batch = fields['length'], on_device(fields)
    shares = minibatches(lengths, 3)
    assert (sum(shares) == lengths).all() and all(0 < np.sum(s > 0) < 4 for s in shares)
    settings = UpdateSettings(widths=(16,))
    whole, part = (
        make_update(bigram, optax.adam(0.1), dataclasses.replace(settings, minibatches=count))
        for count in (3, 1)
    )
    at_once, _ = whole.update(whole.init(table), batch, lengths)
    learner = part.init(table)
    for share in shares:
        learner, _ = part.update(learner, batch, share)
    assert (np.asarray(at_once.params) == np.asarray(learner.params)).all()
    assert at_once.step == learner.step == 3


def test_more_minibatches_than_rows_leave_no_step_empty():
    lengths = np.array([0, 5, 0, 7])
    assert [share.tolist() for share in minibatches(lengths, 9)] == [[0, 5, 0, 0], [0, 0, 0, 7]]


def test_nothing_sampled_is_refused_and_leaves_no_trace():
    fields, table = random_batch(12)
    fields['sampled'][:] = False
    update = make_update(bigram, optax.adamw(0.1, weight_decay=0.1), UpdateSettings(widths=(16,)))
    learner, metrics = update.update(update.init(table), on_device(fields), fields['length'])
    assert (np.asarray(learner.params) == table.astype(np.float32)).all() and learner.step == 0
    with pytest.raises(ValueError, match='0 tokens were sampled'):
        raise_if_refused(metrics)
    with pytest.raises(ValueError, match='a row with tokens'):
        update.update(learner, on_device(fields), np.zeros(7, int))


def test_the_number_of_programs_is_the_number_of_widths(caplog):
    # A loss of its own: programs are shared by all updates with the same one.
    settings = UpdateSettings(micro_rows=3, widths=(8, 16), loss=LossSettings(kl_weight=0.0123))
    update = make_update(bigram, optax.adam(0.1), settings)
    learner = update.init(jnp.zeros((VOCAB, VOCAB)))
    with jax.log_compiles():
        for seed in range(5):
            fields, _ = random_batch(seed)
            learner, _ = update.update(learner, on_device(fields), fields['length'])
    said = [record.getMessage() for record in caplog.records]
    for name, count in (('begin', 1), ('accumulate', 2), ('add_sums', 1), ('apply', 1)):
        assert sum(f'Finished XLA compilation of jit({name})' in line for line in said) == count


def test_what_is_bound_to_the_score_is_not_learned_and_not_recompiled():
    traces = []

    def shifted(base, table, *rest):
        traces.append(1)
        return bigram(base + table, *rest)

    fields, table = random_batch(13)
    base, learned = jnp.asarray(table, jnp.float32), np.zeros_like(table)
    gradient, _ = run(fields, learned, score=Partial(shifted, base), widths=(16,))
    np.testing.assert_allclose(gradient, run(fields, table, widths=(16,))[0], atol=1e-6)
    assert len(traces) == 1


@pytest.mark.parametrize('micro_rows', [1, 3, 7, 16])
def test_a_plan_holds_every_row_once_in_a_width_that_fits(micro_rows):
    lengths = np.random.default_rng(micro_rows).integers(0, 17, 13)
    plan = plan_micro_batches(lengths, micro_rows, (4, 8, 16))
    rows = np.concatenate([micro.rows for micro in plan])
    assert sorted(rows[rows < 13]) == list(np.flatnonzero(lengths))
    for micro in plan:
        longest = lengths[micro.rows[micro.rows < 13]].max()
        assert micro.width == min(width for width in (4, 8, 16) if width >= longest)


def test_a_row_wider_than_every_width_is_refused():
    with pytest.raises(ValueError, match='17 tokens; widths end at 16'):
        plan_micro_batches([3, 17], 2, (8, 16))


def test_the_cached_ratios_quantiles_are_those_of_the_tokens():
    fields, table = random_batch(14, kinds=(CACHED,))
    _, metrics = run(fields, table)
    log = (table_logprob(fields, table) - fields['behaviour_logprob'])[fields['sampled']]
    for name, share in (('p10', 0.1), ('p50', 0.5), ('p90', 0.9)):
        said = np.log(metrics[f'cached/ratio_{name}'])
        assert said == pytest.approx(np.quantile(log, share, method='inverted_cdf'), abs=0.06)
    assert metrics['cached/ratio_mean'] == pytest.approx(np.exp(log).mean(), rel=1e-4)


def test_few_tokens_that_weigh_all_are_told_as_a_small_effective_share():
    fields, table = random_batch(14, kinds=(CACHED, FRESH))
    _, metrics = run(fields, table)
    log = table_logprob(fields, table) - fields['behaviour_logprob']
    for name, kind in (('cached', CACHED), ('policy', FRESH)):
        w = np.exp(log[fields['sampled'] & (fields['kind'] == kind)[:, None]])
        expected = w.sum() ** 2 / (len(w) * (w**2).sum())
        assert metrics[f'{name}/effective_fraction'] == pytest.approx(expected, rel=1e-4)


def test_the_share_of_the_credit_that_cached_rows_have_is_told():
    fields, table = random_batch(18, kinds=(FRESH, CACHED, SUPERVISED))
    size = np.where(fields['sampled'], np.abs(fields['advantage']), 0.0).sum(axis=1)
    fresh, cached = (size[fields['kind'] == kind].sum() for kind in (FRESH, CACHED))
    _, metrics = run(fields, table)
    assert metrics['cached/advantage_share'] == pytest.approx(cached / (fresh + cached), rel=1e-5)
    _, alone = run(*random_batch(18, kinds=(FRESH,)))
    assert alone['cached/advantage_share'] == 0 and alone['cached/effective_fraction'] == 0


def test_rows_with_nothing_to_teach_are_announced():
    fields, table = random_batch(15, kinds=(FRESH, CACHED))
    fields['sampled'][:, 1] = fields['length'] > 1
    fields = {name: np.nan_to_num(field) for name, field in fields.items()}
    fields['advantage'][:, 1] = 1.0
    fields['advantage'][[0, 3]] = 0.0
    assert run(fields, table)[1]['update/zero_advantage_rows'] == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    'wrong',
    [
        {'kl_weight': -1},
        {'clip_low': 1.0},
        {'dual_clip': 1.0},
        {'truncation': 1.1},
        {'sampler_truncation': 0.9},
        {'value_weight': -1},
        {'kl': 'k4'},
        {'aggregation': 'batch'},
        {'shaping': 0},
        {'constant_tokens': 0},
    ],
)
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LossSettings(**wrong)


@pytest.mark.parametrize(
    'wrong', [{'micro_rows': 0}, {'epochs': 0}, {'minibatches': 0}, {'widths': (8, 4)}]
)
def test_a_cut_that_cannot_be_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        UpdateSettings(**wrong)
