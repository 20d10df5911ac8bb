"""Rows of one task that the cache served differently are compared with their like, where asked."""

import dataclasses

import pytest
from rewards_episodes import ask, find, make_task, play, say

from cacherl_jax.compose.step import compared_within, task_numbers
from cacherl_jax.config import PRESETS
from cacherl_jax.grpo.advantage import AdvantageSettings, group_advantage
from cacherl_jax.rewards.facts import FactSettings, gather_facts, stratified_group
from cacherl_jax.rewards.hybrid import HybridSettings, WeightSettings, hybrid_reward, weights_at
from cacherl_jax.rollout_cache.admission import AdmissionSettings
from cacherl_jax.tools.tool import Tier

PLAIN, STRATIFIED = AdvantageSettings(std=False), AdvantageSettings(std=False, stratified=True)
TIERS = (Tier.LIVE, Tier.EXACT, Tier.FUZZY, Tier.BEST_EFFORT, Tier.MISS)


def episodes(task, tiers):
    """Attempts at a task that answer wrongly and behave well; the tiers of their answers differ."""
    return [
        play(ask(find(), tier=tier), say(), task=task, sample=sample)
        for sample, tier in enumerate(tiers)
    ]


def attempts(number=0, tiers=TIERS):
    return episodes(make_task(number=number, score=lambda episode: 0.0), tiers)


def test_strata_are_those_of_the_rewards():
    two_tasks = attempts(0) + attempts(1)
    numbers = compared_within(two_tasks, STRATIFIED).tolist()
    known = stratified_group(gather_facts(two_tasks, FactSettings())).tolist()
    assert len(dict.fromkeys(zip(numbers, known, strict=True))) == len(set(numbers)) == 6


def test_trusted_rows_keep_the_number_of_their_task():
    numbers, tasks = compared_within(attempts(), STRATIFIED), task_numbers(attempts())
    assert (numbers[:2] == tasks[:2]).all() and not (numbers[2:] == tasks[2:]).any()
    assert (compared_within(attempts(), PLAIN) == tasks).all()


def test_an_episode_without_answers_is_trusted():
    silent = play(say(), task=make_task())
    assert compared_within([silent], STRATIFIED).tolist() == task_numbers([silent]).tolist()


@pytest.mark.parametrize(('settings', 'gains'), [(PLAIN, True), (STRATIFIED, False)])
def test_drifting_off_the_cache_gains_nothing_where_the_baseline_is_stratified(settings, gains):
    rows = attempts(tiers=(Tier.EXACT, Tier.FUZZY, Tier.BEST_EFFORT))
    facts = gather_facts(rows, FactSettings())
    aware = HybridSettings(tier_aware='worst')
    rewards = hybrid_reward(facts, weights_at(0, WeightSettings()), aware)
    assert rewards.raw['final'].tolist() == pytest.approx([0.4, 0.7, 0.9])
    fresh = facts.counted
    group = compared_within(rows, settings)
    advantage = group_advantage(rewards.raw['final'], group, fresh, rewards.counted, settings)
    assert bool(advantage[2] > 0) == gains and (gains or not advantage.any())


def test_cached_rows_must_be_as_trusted_as_those_they_are_compared_with():
    guessing = dataclasses.replace(
        PRESETS['small'], admission=AdmissionSettings(worst_tier=Tier.FUZZY)
    )
    with pytest.raises(ValueError, match='worst_tier must be 1 or less, got 2'):
        dataclasses.replace(guessing, advantage=STRATIFIED)
    with pytest.raises(ValueError, match='one history'):
        AdvantageSettings(stratified=True, baseline='running')
