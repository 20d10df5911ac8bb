"""Laws of a batch: which tokens are credited, and what cached and text rows add to it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rewards_episodes import ask, find, goal, make_task, play, say

from cacherl_jax.compose.agent import rl_rate
from cacherl_jax.compose.step import (
    TERMS,
    batch_of,
    fresh_entries,
    task_numbers,
    term_weights,
    with_text,
)
from cacherl_jax.config import SMALL
from cacherl_jax.grpo.advantage import AdvantageSettings
from cacherl_jax.grpo.loss import CACHED, FRESH, LEFT_OUT, SUPERVISED, TEXT
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.hybrid import HybridSettings, WeightSettings, hybrid_reward, weights_at
from cacherl_jax.rollout_cache.buffer import Draw
from cacherl_jax.rollout_cache.mix import MixSettings, mix
from cacherl_jax.tasks.task import Termination
from cacherl_jax.trajectory import Trajectory

TOKENS = 12
WEIGHTS = weights_at(0, WeightSettings())


def rows(count):
    """Prompt of 3, a turn of 3 sampled tokens, 2 forced, a turn of 3 sampled, padding of 1."""
    turn = jnp.asarray([-1] * 3 + [0] * 5 + [1] * 4, jnp.int32)
    sampled = jnp.asarray([0] * 3 + [1] * 3 + [0] * 2 + [1] * 3 + [0], bool)
    return Trajectory(
        tokens=jnp.arange(count * TOKENS, dtype=jnp.int32).reshape(count, TOKENS),
        length=jnp.full(count, TOKENS - 1, jnp.int32),
        sampled=jnp.broadcast_to(sampled, (count, TOKENS)),
        logprob=jnp.where(sampled, -1.0, 0.0) * jnp.ones((count, 1)),
        turn=jnp.broadcast_to(turn, (count, TOKENS)),
    )


def episodes():
    """Two that agree, then two of which one fails, then one spoiled by infrastructure beside it."""
    tasks = [make_task(goal('red', 'find'), number=number) for number in (0, 1)]
    good = [ask(find(), text='red'), say('It is red.')]
    bad = [ask(find(), text='grey'), say('It is red.')]
    spoiled = Termination.TOOL_INFRASTRUCTURE
    return [
        *(play(*good, task=tasks[0], sample=sample) for sample in range(3)),
        *(play(*turns, task=tasks[1], sample=sample) for sample, turns in enumerate([good, bad])),
        play(*good, task=tasks[1], sample=2, ending=spoiled),
    ]


@functools.cache
def paid():
    facts = gather_facts(episodes(), FactSettings())
    return facts, hybrid_reward(facts, WEIGHTS, HybridSettings())


def drawn(has_behaviour=(True, False, True), kept=(True, True, False)):
    """Three rows of the second task out of the cache."""
    _, rewards = paid()
    entries = fresh_entries(rows(6), episodes(), rewards, 0)
    entries = jax.tree.map(lambda x: x[3:6], entries)
    return Draw(
        entries.replace(has_behaviour=jnp.asarray(has_behaviour)),
        jnp.asarray(kept),
        jnp.arange(3),
    )


def batch(draw=None, settings=AdvantageSettings()):
    facts, rewards = paid()
    fresh, told = rows(6), jnp.full((6, TOKENS), -2.0)
    numbers = task_numbers(episodes())
    mixed = mix(fresh, numbers, rewards.total, rewards.counted, draw, MixSettings())
    return batch_of(
        mixed, draw, rewards, facts.played, facts.answer_turn, told, WEIGHTS, None, settings
    )


@pytest.mark.parametrize('with_cached', [False, True])
def test_components_without_a_deviation_are_the_sum(with_cached):
    """Two ways to one number: compared and summed, summed and compared."""
    draw = drawn() if with_cached else None
    one, other = (
        batch(draw, AdvantageSettings(std=False, components=components)).advantage
        for components in (False, True)
    )
    assert np.any(one)
    np.testing.assert_allclose(other, one, atol=1e-6)


def test_components_weigh_what_they_are_told_to():
    made = np.asarray(batch(settings=AdvantageSettings(components=True, turn_weight=0.0)).advantage)
    # The two rows differ in their sub-goal alone, by one deviation either way.
    step = float(WEIGHTS.macro)
    np.testing.assert_allclose(made[3:5, 3:6], [[step] * 3, [-step] * 3], rtol=1e-5)


def test_forced_positions_have_no_advantage():
    made = batch(drawn())
    assert not np.any(np.asarray(made.advantage)[~np.asarray(made.sampled)])
    assert np.any(made.advantage)


def test_an_undecided_group_teaches_at_most_which_of_its_turns_was_worth_more():
    assert not np.any(batch(settings=AdvantageSettings(turn_weight=0.0)).advantage[:3])
    assert not np.any(batch().advantage[:3, 6:])  # the answer has nothing of single turns


def test_a_better_row_is_credited_and_a_worse_one_is_not():
    advantage = np.asarray(batch().advantage)
    assert (advantage[3, 3:6] > 0).all() and (advantage[4, 3:6] < 0).all()


def test_a_spoiled_row_is_left_out():
    made = batch()
    assert made.kind.tolist() == [FRESH] * 5 + [LEFT_OUT] and not np.any(made.advantage[5])


def test_without_a_draw_there_are_the_fresh_rows_and_no_others():
    made = batch()
    jax.tree.map(np.testing.assert_array_equal, made.tokens, rows(6).tokens)
    assert (made.reference_logprob == -2.0).all()


def test_drawn_rows_come_after_fresh_ones_and_have_no_reference():
    made = batch(drawn())
    assert made.kind.tolist() == [FRESH] * 5 + [LEFT_OUT, CACHED, SUPERVISED, LEFT_OUT]
    assert not np.any(made.reference_logprob[6:])
    np.testing.assert_array_equal(made.tokens[6:], rows(6).tokens[3:])


def test_rows_keep_the_log_probabilities_of_the_policy_that_sampled_them():
    made, sampler = batch(drawn()), rows(6).logprob
    np.testing.assert_array_equal(made.behaviour_logprob[:6], sampler)
    np.testing.assert_array_equal(made.behaviour_logprob[6:], sampler[3:])


def test_a_draw_that_came_up_empty_changes_no_advantage():
    empty = batch(drawn(kept=(False, False, False)))
    np.testing.assert_array_equal(empty.advantage[:6], batch().advantage)
    assert not np.any(empty.advantage[6:]) and (empty.kind[6:] == LEFT_OUT).all()


@pytest.mark.parametrize('count', [1, 3])
def test_text_rows_teach_every_token_but_the_first_and_the_padding(count):
    plain = batch()
    made = with_text(plain, rows(count))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[:6], y), made, plain)
    assert made.kind[6:].tolist() == [TEXT] * count and not np.any(made.advantage[6:])
    expected = [place not in (0, TOKENS - 1) for place in range(TOKENS)]
    assert made.sampled[6:].tolist() == [expected] * count


def test_weighed_components_are_the_return():
    _, rewards = paid()
    entries = fresh_entries(rows(6), episodes(), rewards, 7)
    np.testing.assert_allclose(
        (entries.reward * term_weights(WEIGHTS)).sum(axis=1), rewards.total, rtol=1e-6
    )
    assert entries.reward.shape == (6, len(TERMS)) and (entries.version == 7).all()


def test_the_rate_of_rl_warms_up_and_falls_only_where_it_is_asked_to():
    update = dataclasses.replace(SMALL.update, minibatches=1)
    config = dataclasses.replace(SMALL, learning_rate=1.0, decay_steps=10, update=update)
    falling = [float(rl_rate(config)(step)) for step in (0, 5, 10, 15, 99)]
    np.testing.assert_allclose(falling, [0.2, 1.0, 0.55, 0.1, 0.1], rtol=1e-6)
    level = rl_rate(dataclasses.replace(config, decay_steps=0))
    np.testing.assert_allclose([float(level(step)) for step in (0, 5, 99)], [0.2, 1.0, 1.0])
    often = dataclasses.replace(config, update=dataclasses.replace(update, minibatches=3, epochs=2))
    found = [float(rl_rate(often)(6 * step)) for step in (0, 5, 10, 15)]
    np.testing.assert_allclose(found, falling[:4], rtol=1e-6)
