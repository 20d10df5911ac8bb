"""What is asked before an update, and what comes of it: a critic that learns, weights for bf16."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from cacherl_jax import keys
from cacherl_jax.compose.scoring import own_of, reference_of
from cacherl_jax.compose.step import Own, batch_of, with_text
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.grpo.advantage import AdvantageSettings
from cacherl_jax.grpo.loss import FRESH, LossSettings
from cacherl_jax.grpo.update import UpdateSettings, as_it_is, make_update
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.lora import LoraSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params
from cacherl_jax.rewards.hybrid import Rewards, Weights
from cacherl_jax.rollout_cache.mix import MixSettings, mix
from cacherl_jax.trajectory import Trajectory

SHAPE = Shape(layers=1, embed=16, heads=2, kv_heads=1, head_dim=8, hidden=24, vocab=32)
ROWS, TOKENS = 6, 12
WEIGHTS = Weights(*map(jnp.float32, (0.5, 0.5, 1.0)))
GAE = AdvantageSettings(estimator='gae', std=False)


def scored(params, tokens, length, sampled, position=None, segment=None, critic=None):
    return score(params, SHAPE, tokens, sampled, position=position, segment=segment, critic=critic)


@functools.cache
def params():
    return init_params(SHAPE, jax.random.key(0))


@functools.cache
def fresh():
    """Two turns with a forced token between them."""
    draws = np.random.default_rng(0)
    turn = jnp.broadcast_to(jnp.asarray([-1] * 3 + [0] * 5 + [1] * 4), (ROWS, TOKENS))
    sampled = (turn >= 0) & (jnp.arange(TOKENS) != 7)
    tokens = jnp.asarray(draws.integers(0, SHAPE.vocab, (ROWS, TOKENS)), jnp.int32)
    logprob = scored(params(), tokens, None, sampled)[0]
    return Trajectory(tokens, jnp.full(ROWS, TOKENS, jnp.int32), sampled, logprob, turn)


def rewards():
    """Rows are paid by their first token; one row of them does not count."""
    final = (fresh().tokens[:, 0] > 15).astype(jnp.float32)
    turn = jnp.tile(jnp.asarray([[0.1, 0.0]]), (ROWS, 1))
    total = final + turn.sum(axis=1)
    parts = {name: jnp.zeros(ROWS) for name in ('micro', 'macro', 'penalty')} | {'final': final}
    counted = jnp.arange(ROWS) != 2
    nothing: dict = {}
    return Rewards(total, turn, parts, nothing, nothing, nothing, nothing, counted)


def mixed():
    paid = rewards()
    return mix(fresh(), jnp.zeros(ROWS, jnp.int32), paid.total, paid.counted, None, MixSettings())


def batch(own, settings=GAE):
    played = jnp.ones((ROWS, 2), bool)
    told = (played, jnp.ones(ROWS, jnp.int32), jnp.zeros((ROWS, TOKENS)), WEIGHTS, None)
    return batch_of(mixed(), None, rewards(), *told, settings, own)


def learning(rank=0, **loss):
    """What trains with a critic, and its scoring before an update."""
    cut = UpdateSettings(micro_rows=4, widths=(TOKENS,), loss=LossSettings(**loss))
    tuning = Tuning(settings=LoraSettings(rank=rank), params=params(), critic=SHAPE)
    learned = tuning.score(Partial(scored))
    update = make_update(learned, optax.adam(3e-2), cut)
    return tuning, update, own_of(learned, cut, GAE, as_it_is)


@pytest.mark.parametrize('rank', [0, 2])
def test_a_critic_learns_what_rows_are_paid_and_is_no_part_of_the_policy(rank):
    tuning, update, own = learning(rank, policy_weight=0.0, kl_weight=0.0)
    learner, errors = update.init(tuning.init(keys.root(0))), []
    for _ in range(12):
        made = batch(own(learner.params, mixed()))
        learner, metrics = update.update(learner, made, np.full(ROWS, TOKENS))
        errors.append(float(metrics['loss/value']))
    assert errors[-1] < 0.5 * errors[0]
    assert jax.tree.structure(tuning.merged(learner.params)) == jax.tree.structure(params())
    assert learner.params['value']['bias'] != 0


def test_before_it_has_learned_a_critic_expects_nothing_and_credit_is_what_is_still_paid():
    tuning, _, own = learning()
    found = own(tuning.init(keys.root(0)), mixed())
    assert found.logprob is None and not found.value.any()
    settings = dataclasses.replace(GAE, trace=1.0)
    made, paid = batch(found, settings), rewards()
    for row in range(ROWS):
        counts = float(paid.counted[row])
        expected = counts * np.asarray([paid.total[row], paid.terms['final'][row]])
        # The first turn is paid .1 at its last sampled token, the row at its end.
        np.testing.assert_allclose(made.advantage[row, [3, 8]], expected, atol=1e-6)
    assert not made.advantage[~made.sampled].any()
    np.testing.assert_array_equal(made.advantage, made.value_target)


def test_only_what_settings_ask_for_is_scored():
    cut = UpdateSettings(micro_rows=4, widths=(TOKENS,))
    plain = own_of(None, cut, AdvantageSettings(), as_it_is)
    assert plain(None, mixed()) == Own()
    weighed = dataclasses.replace(cut, loss=LossSettings(sampler_truncation=2.0))
    found = own_of(Partial(scored), weighed, AdvantageSettings(), as_it_is)(params(), mixed())
    assert found.value is None
    counted = np.asarray(rewards().counted)
    np.testing.assert_allclose(found.logprob[counted], fresh().logprob[counted], atol=1e-5)
    assert not found.logprob[~counted].any()  # a row that teaches nothing is not scored


def test_where_sampler_and_trainer_agree_their_weight_changes_no_step():
    cut = UpdateSettings(micro_rows=4, widths=(TOKENS,), loss=LossSettings(sampler_truncation=2.0))
    own = own_of(Partial(scored), cut, AdvantageSettings(), as_it_is)(params(), mixed())
    steps = []
    for told in (own, Own()):
        update = make_update(scored, optax.sgd(1.0), cut)
        made = batch(told, AdvantageSettings(turn_weight=0.0))
        learner, _ = update.update(update.init(params()), made, np.full(ROWS, TOKENS))
        steps.append(jax.tree.leaves(learner.params))
    for one, other in zip(*steps, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_text_rows_have_no_credit_from_a_critic():
    tuning, _, own = learning()
    made = with_text(batch(own(tuning.init(keys.root(0)), mixed())), fresh())
    assert made.value_target.shape == made.advantage.shape == (2 * ROWS, TOKENS)
    assert not made.value_target[ROWS:].any() and (made.kind[:2] == FRESH).all()


def test_a_reference_that_weighs_nothing_is_not_asked():
    cut = UpdateSettings(micro_rows=4, widths=(TOKENS,))
    told = reference_of(Partial(scored), params(), cut, as_it_is)(fresh())
    np.testing.assert_allclose(told, fresh().logprob, atol=1e-5)
    without = dataclasses.replace(cut, loss=LossSettings(kl_weight=0.0))
    assert not reference_of(None, None, without, as_it_is)(fresh()).any()
