"""Alarms sound for a policy that is paid for missing the cache, and not for one that learns."""

import dataclasses

import pytest
from rewards_episodes import ask, find, make_task, play, say

from cacherl_jax.rewards.alarms import AlarmSettings, alarms
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.hybrid import HybridSettings, Weights, hybrid_reward
from cacherl_jax.rewards.metrics import reward_metrics
from cacherl_jax.tools.tool import Tier

SETTINGS = AlarmSettings(window=7)
WEIGHTS = Weights(micro=0.0, macro=0.0, final=1.0)
MISSED, PADDED = 'paid_for_missing_the_cache', 'micro_without_success'


def measure(*played, mode='worst', weights=WEIGHTS):
    facts = gather_facts(played, FactSettings())
    found = reward_metrics(hybrid_reward(facts, weights, HybridSettings(tier_aware=mode)), facts)
    return {name: float(value) for name, value in found.items()}


def answer(score, tier, calls=1):
    task = make_task(score=lambda episode: score)
    return play(*[ask(find(f'q{n}'), tier=tier) for n in range(calls)], say(), task=task)


def sounding(history, settings=SETTINGS):
    return [alarm.name for alarm in alarms(history, settings)]


def paying(share):
    """A step that pays a bad answerer for missing the cache, which it does in this share of ten."""
    missed = round(10 * share)
    return measure(*[answer(0.0, Tier.BEST_EFFORT)] * missed, *[answer(0.0, Tier.EXACT)] * 5)


def test_a_policy_sounds_that_goes_after_what_a_miss_is_paid_and_not_one_that_stays():
    """The pay itself is a setting of the run: it is measured, and worth no alarm."""
    assert paying(0.1)['rewards/best_effort_premium'] == pytest.approx(0.5, abs=1e-6)
    levelled = [step | {'rewards/total': 0.0} for step in map(paying, [0.1] * 3 + [0.5] * 4)]
    assert sounding(levelled) == [MISSED]
    assert not sounding([paying(0.5)] * 7) and MISSED not in sounding(levelled[::-1])


@pytest.mark.parametrize('score', [0.0, 1.0])
def test_without_tier_awareness_or_with_right_answers_nothing_is_paid_for_a_miss(score):
    mode = 'off' if score == 0 else 'worst'
    record = measure(
        *[answer(score, tier) for tier in (Tier.LIVE, Tier.FUZZY, Tier.MISS)], mode=mode
    )
    assert not sounding([record] * 7)


def drift(tiers):
    return [measure(*[answer(0.0, tier)] * 3) for tier in tiers]


def test_a_policy_that_drifts_off_the_cache_sounds_and_one_that_comes_back_does_not():
    tiers = [Tier.EXACT] * 3 + [Tier.BEST_EFFORT] * 4
    assert sounding(drift(tiers)) == [MISSED]
    assert MISSED not in sounding(drift(tiers[::-1]))
    assert not sounding(drift(tiers)[1:])  # shorter than the window: no trend yet


@pytest.mark.parametrize('late, names', [(0.0, [PADDED]), (1.0, [])])
def test_micro_reward_may_rise_only_with_success(late, names):
    weights = dataclasses.replace(WEIGHTS, micro=1.0)
    early = [measure(*[answer(0.0, Tier.LIVE)] * 3, weights=weights)] * 3
    then = [measure(*[answer(late, Tier.LIVE, calls=4)] * 3, weights=weights)] * 4
    assert sounding(early + then) == names


def test_steps_without_a_verdict_are_passed_over():
    unheard = measure(*[answer(None, Tier.MISS, calls=5)] * 3)
    assert not sounding([]) and not sounding([unheard] * 7)


@pytest.mark.parametrize('wrong', [{'window': 1}, {'premium': -1.0}, {'micro_rise': float('nan')}])
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AlarmSettings(**wrong)
