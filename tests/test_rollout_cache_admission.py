"""Who comes in: every refusal has its reason and is counted."""

import pytest
from rollout_cache_rows import episode, record

from cacherl_jax.rollout_cache.admission import AdmissionSettings, Door, Outcome
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import Tier


def right(played):
    return played.answer == '3'


def called(played):
    return bool(played.turns[0].calls)


def door(flags=None, instructive=lambda played: False, **settings):
    judges = {'right': right, 'called': called}
    return Door(AdmissionSettings(**settings), judges, flags or {}, instructive)


def consider(door, seed=0, known=None, **played):
    played = episode(**played)
    return door.consider(record(played, seed, **(known or {})), played)


def test_a_good_episode_comes_in_once():
    entrance = door()
    assert consider(entrance).outcome is Outcome.ADMITTED
    assert consider(entrance).reason == 'duplicate'
    assert entrance.metrics() == {
        'rollout_cache/admitted/good': 1,
        'rollout_cache/refused/duplicate': 1,
        'rollout_cache/waiting': 0,
    }


@pytest.mark.parametrize(
    ('played', 'known', 'reason'),
    [
        ({'split': 'test'}, {}, 'split'),
        ({'split': 'validation'}, {}, 'split'),
        ({'termination': Termination.TOOL_INFRASTRUCTURE}, {}, 'infrastructure'),
        ({}, {'episode_return': float('nan')}, 'not_finite'),
        ({'tier': Tier.FUZZY}, {}, 'tier'),
        ({}, {'episode_return': 0.4}, 'return'),
    ],
)
def test_a_refusal_has_its_reason_and_is_counted(played, known, reason):
    entrance = door()
    verdict = consider(entrance, known=known, **played)
    assert (verdict.outcome, verdict.reason) == (Outcome.REFUSED, reason) and verdict.detail
    assert entrance.counts == {f'refused/{reason}': 1}


def test_a_refused_record_may_come_again():
    entrance = door()
    consider(entrance, known={'episode_return': 0.0})
    assert consider(entrance).outcome is Outcome.ADMITTED


def test_one_flag_is_enough_to_refuse():
    verdict = consider(door(flags={'fine': lambda _: False, 'gaming': called}))
    assert (verdict.reason, verdict.detail) == ('flag', 'gaming')


def test_a_less_trusted_answer_comes_in_where_it_is_allowed():
    assert consider(door(worst_tier=Tier.FUZZY), tier=Tier.FUZZY).outcome is Outcome.ADMITTED


@pytest.mark.parametrize('approve', [True, False])
def test_where_judges_disagree_a_person_decides(approve):
    entrance = door()
    waits = consider(entrance, answer='4')
    assert waits.outcome is Outcome.QUARANTINED and 'right' in waits.detail
    identity = waits.record.identity
    decided = entrance.review(identity, approve)
    assert decided.outcome is (Outcome.ADMITTED if approve else Outcome.REFUSED)
    assert (decided.record is waits.record) == approve and not entrance.waiting
    with pytest.raises(KeyError, match='waits'):
        entrance.review(identity, approve)


def test_a_decisive_no_sends_nothing_to_a_person():
    judges = {'right': right, 'called': called}
    entrance = Door(AdmissionSettings(), judges, {}, decisive=['right'])
    assert consider(entrance, answer='4').reason == 'judges' and not entrance.waiting
    with pytest.raises(ValueError, match='strange'):
        Door(AdmissionSettings(), judges, {}, decisive=['strange'])


def test_a_judge_without_a_say_has_none():
    judges = {'right': right, 'silent': lambda played: None}
    assert consider(Door(AdmissionSettings(), judges, {})).outcome is Outcome.ADMITTED
    assert consider(Door(AdmissionSettings(), judges, {}), answer='4').reason == 'judges'
    unheard = consider(Door(AdmissionSettings(), {'silent': lambda played: None}, {}))
    assert unheard.outcome is Outcome.QUARANTINED
    assert unheard.record.note == unheard.detail == 'no judge had anything to say'


def test_decisions_settle_what_waits_and_nothing_else():
    entrance = door()
    waits = [consider(entrance, seed, answer='4').record.identity for seed in range(3)]
    settled = entrance.settle({waits[0]: True, waits[1]: False, 'unknown': True})
    assert sorted(verdict.reason for verdict in settled) == ['approved', 'rejected']
    assert list(entrance.waiting) == [waits[2]] and entrance.settle({waits[0]: True}) == []


def test_a_full_quarantine_says_so():
    assert consider(door(maximum_waiting=0), answer='4').reason == 'quarantine_full'


def test_failures_are_kept_for_contrast_up_to_their_share():
    entrance = door(instructive=lambda played: True, failures_fraction=0.25)
    for seed in range(16):
        low = {'episode_return': 0.0 if seed % 2 else 1.0}
        verdict = consider(entrance, seed, known=low)
        if verdict.reason == 'failure':
            assert verdict.record.source is Source.FAILURE
    assert entrance.counts['admitted/failure'] == 2 and entrance.counts['admitted/good'] == 8


def test_a_door_goes_on_where_it_was():
    one, other = door(), door()
    consider(one)
    consider(one, seed=1, answer='4')
    other.restore(one.state(), one.waiting)
    assert consider(other).reason == consider(one).reason == 'duplicate'
    assert other.metrics() == one.metrics()


@pytest.mark.parametrize(
    'wrong', [{'failures_fraction': 1.0}, {'maximum_waiting': -1}, {'worst_tier': 9}]
)
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AdmissionSettings(**wrong)
