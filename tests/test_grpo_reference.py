"""Loss, gradient and advantage against a float64 reference: 200 random cases of each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loss_reference import EVERY_TERM, VOCAB, gradient_of, loss_reference, random_batch

from cacherl_jax.grpo.advantage import AdvantageSettings, group_advantage
from cacherl_jax.grpo.loss import LossSettings

# Each way to make the loss with a size of its own, so that what is compiled is shared.
WAYS = [
    ({}, (7, 16)),
    ({'kl': 'k2', 'aggregation': 'sequence', 'cached_ratio': 'shaped'}, (3, 7)),
    ({'kl': 'k1', 'aggregation': 'constant', 'dual_clip': 1.5, 'clip_high': 0.28}, (16, 5)),
    ({'kl': 'k1', 'dual_clip': 3.0, 'clip_low': 0.6}, (1, 16)),
    ({'kl': 'k2', 'aggregation': 'constant', 'constant_tokens': 7, 'shaping': 0.5}, (5, 11)),
    ({'aggregation': 'sequence', 'truncation': 1.3, 'policy_weight': 2.5}, (8, 3)),
    ({'kl_weight': 0.0, 'entropy_weight': 0.0, 'cached_ratio': 'shaped'}, (7, 13)),
    ({'policy_weight': 0.0, 'supervised_weight': 0.2}, (6, 16)),
    ({'sampler_truncation': 1.5, 'dual_clip': 2.0}, (7, 9)),
    ({'value_weight': 0.7, 'aggregation': 'sequence'}, (9, 16)),
]
OF_EACH = 20  # cases


def case(seed, size, way):
    """Rows of random kinds, lengths and masks; ratios from hardly moved to far off; any signs."""
    random = np.random.default_rng(seed)
    rows, columns = size
    kinds = random.integers(0, 5, rows)
    fields, table = random_batch(seed, rows, columns, kinds)
    share = random.choice([0.1, 0.5, 0.95])
    fields['sampled'] &= random.random(size) < share
    fields['sampled'][0, 1] = True
    fields['kind'][0] = random.integers(0, 3)  # somebody must have something to teach
    sampled, spread = fields['sampled'], random.choice([0.05, 0.5, 4.0])
    sign = random.choice([-1.0, 0.0, 1.0])
    drawn = {name: random.normal(0, 1, size) for name in ('behaviour', 'reference', 'advantage')}
    logprob = np.log(1 / VOCAB)
    for name in ('behaviour', 'reference'):
        given = logprob + spread * drawn[name]
        fields[f'{name}_logprob'] = np.where(sampled, given, np.nan)
    if 'sampler_truncation' in way:
        given = logprob + 0.5 * spread * random.normal(0, 1, size)
        fields['trainer_logprob'] = np.where(sampled, given, np.nan)
    if 'value_weight' in way:
        fields['value_target'] = np.where(sampled, random.normal(0, 1, size), np.nan)
        table = np.concatenate([table, random.normal(0, 1, (VOCAB, 1))], axis=1)
    advantage = drawn['advantage'] if not sign else sign * np.abs(drawn['advantage'])
    fields['advantage'] = np.where(sampled, advantage, np.nan)
    return fields, table


@pytest.mark.parametrize(('way', 'size'), WAYS)
def test_the_update_follows_the_formulas(way, size):
    loss = EVERY_TERM | way
    for seed in range(OF_EACH):
        fields, table = case(1000 * size[0] + seed, size, way)
        gradient, metrics = gradient_of(fields, table, widths=(size[1],), **loss)
        value, slope = loss_reference(fields, table, LossSettings(**loss))
        assert metrics['loss/total'] == pytest.approx(value, rel=1e-5, abs=1e-5), seed
        largest = np.abs(slope).max()
        np.testing.assert_allclose(
            gradient, slope, rtol=1e-4, atol=1e-5 * largest, err_msg=f'case {seed}'
        )


def advantage_reference(reward, group, fresh, counted, s):
    """A row against the rows of its group that count, in float64."""
    found = np.zeros(len(reward))
    for row in np.flatnonzero(counted):
        near = counted & (group == group[row])
        near &= fresh if s.baseline == 'fresh' else True
        if s.leave_one_out:
            near[row] = False
        paid = reward[near].astype(np.float64)
        if not paid.size or np.ptp([*paid, reward[row]]) < 1e-5:
            continue
        std = paid.std() if s.std and np.ptp(paid) >= 1e-5 else 1.0
        found[row] = (reward[row] - paid.mean()) / std
    return found


@functools.cache
def compared(settings):
    return jax.jit(functools.partial(group_advantage, settings=settings))


@pytest.mark.parametrize('baseline', ['union', 'fresh'])
@pytest.mark.parametrize('leave_one_out', [False, True])
@pytest.mark.parametrize('std', [False, True])
def test_an_advantage_follows_its_formula(baseline, leave_one_out, std):
    settings = AdvantageSettings(baseline=baseline, leave_one_out=leave_one_out, std=std)
    for seed in range(25):
        random = np.random.default_rng(seed)
        rows = (3, 7, 16)[seed % 3]
        # Few different rewards, so that some groups agree, and some but for one row.
        reward = random.choice([0.0, 0.1, 0.35, 0.7, 1.0], rows).astype(np.float32)
        reward += np.float32(random.choice([0.0, 1.0])) * random.normal(size=rows).astype('f4')
        group = random.integers(0, random.integers(1, rows), rows)
        fresh, counted = (random.random(rows) < share for share in (0.7, 0.9))
        told = tuple(map(jnp.asarray, (reward, group, fresh, counted)))
        expected = advantage_reference(reward, group, fresh, counted, settings)
        result = np.asarray(compared(settings)(*told))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=f'{seed}')
        assert (result[expected == 0] == 0).all()
