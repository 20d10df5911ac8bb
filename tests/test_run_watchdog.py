"""Each alarm sounds for the degeneration that it is made for, and none for a run that is well."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacherl_jax.run.degeneration import CHECKS, DegenerationSettings, degenerations
from cacherl_jax.run.watchdog import (
    ActionSettings,
    Decision,
    Watch,
    WatchdogSettings,
    save_evidence,
    stronger_kl,
    watch_step,
)

SIGNS = DegenerationSettings(recent=3)
WELL = {
    'rewards/solved': 0.4,
    'rewards/total': 0.5,
    'loss/total': 0.1,
    'update/gradient_norm': 0.5,
    'update/refused': 0.0,
    'update/zero_advantage_rows': 0.25,
    'policy/kl': 0.02,
    'policy/entropy': 0.4,
    'policy/tokens': 900.0,
    'failure/repeated': 0.05,
    'failure/near': 0.0,
    'failure/misused': 0.1,
    'failure/failed': 0.1,
    'failure/tool_infrastructure': 0.0,
    'failure/max_turns': 0.1,
    'failure/max_tokens': 0.0,
    'failure/context_full': 0.0,
}


def names(history, settings=SIGNS):
    return [found.name for found in degenerations(history, settings)]


def turned(change, well=8, ill=3, before=None):
    """Some steps that are well, then some that are not."""
    return [WELL | (before or {})] * well + [WELL | change] * ill


MADE = [
    ('not_finite', {'loss/total': float('nan')}),
    ('not_finite', {'update/gradient_norm': None}),
    ('not_finite', {'update/refused': 1.0}),
    ('kl_explosion', {'policy/kl': 0.9}),
    ('success_collapse', {'rewards/solved': 0.1}),
    ('entropy_collapse', {'policy/entropy': 0.03}),
    ('entropy_explosion', {'policy/entropy': 2.5}),
    ('length_collapse', {'policy/tokens': 100.0}),
    ('repetition', {'failure/repeated': 0.3, 'failure/near': 0.1}),
    ('invalid_calls', {'failure/misused': 0.7}),
    ('broken_tool', {'failure/failed': 0.8}),
    ('broken_tool', {'failure/tool_infrastructure': 0.5}),
    ('zero_variance', {'update/zero_advantage_rows': 1.0}),
    ('cut_by_length', {'failure/max_turns': 0.3, 'failure/max_tokens': 0.3}),
]


ABSOLUTE = ('not_finite', 'kl_explosion', 'zero_variance', 'cut_by_length')  # bad at any time


@pytest.mark.parametrize(('name', 'change'), MADE)
def test_a_degeneration_sounds_its_own_alarm_and_no_other(name, change):
    assert names(turned(change)) == [name]


@pytest.mark.parametrize(('name', 'change'), [made for made in MADE if made[0] != 'not_finite'])
def test_a_single_bad_step_is_no_degeneration(name, change):
    assert not names(turned(change, ill=1))


@pytest.mark.parametrize(('name', 'change'), [made for made in MADE if made[0] not in ABSOLUTE])
def test_a_weak_start_is_no_degeneration(name, change):
    """What was so from the first step on, the run did not do to itself."""
    assert not names(turned(change, before=change))


def test_every_check_is_tested_and_has_an_action():
    actions = {field.name for field in dataclasses.fields(ActionSettings)}
    assert {name for name, _ in MADE} | {'gaming'} == set(CHECKS)
    assert actions == set(CHECKS) | {'micro_without_success', 'paid_for_missing_the_cache'}


def test_a_door_that_refuses_many_for_gaming_sounds():
    def counts(flagged, admitted):
        return {'rollout_cache/refused/flag': flagged, 'rollout_cache/admitted/good': admitted}

    honest = [WELL | {'rollout_cache/admitted/good': 10.0 * n} for n in range(6)]
    gamed = [WELL | counts(4.0 * n, 60.0 + 6.0 * n) for n in range(1, 4)]
    assert not names(honest) and names(honest + gamed) == ['gaming']


@pytest.mark.parametrize(
    'change',
    [
        {'policy/entropy': 0.01, 'rewards/solved': 0.8},
        {'policy/tokens': 100.0, 'rewards/solved': 0.8},
        {'update/zero_advantage_rows': 1.0, 'rewards/solved': 1.0},
    ],
)
def test_a_policy_that_became_good_may_be_sure_and_short(change):
    assert not names(turned(change))


@given(st.lists(st.sampled_from(sorted(WELL)), max_size=6), st.integers(0, 12))
def test_missing_metrics_silence_their_checks_and_break_nothing(missing, steps):
    record = {name: value for name, value in WELL.items() if name not in missing}
    assert not names([record] * steps)


# ---- what is done about it

KL = [WELL] * 8 + [WELL | {'policy/kl': 0.9}] * 3
LONG = [WELL] * 8 + [WELL | {'failure/max_turns': 0.9}] * 3


def settings(**changed):
    return WatchdogSettings(signs=SIGNS, **changed)


def test_a_healthy_step_changes_nothing():
    assert watch_step(Watch(), 7, [WELL] * 8, settings()) == (Watch(), Decision(action='off'))


def test_roll_backs_are_counted_and_the_last_is_followed_by_a_pause():
    watch, actions = Watch(), []
    for step in range(4):
        watch, decision = watch_step(watch, step, KL, settings(most_rollbacks=2))
        actions.append(decision.action)
    assert actions == ['roll_back', 'roll_back', 'pause', 'pause'] and watch.rollbacks == 2
    assert 'kl_explosion' in decision.text and 'look at' in decision.text


def test_a_warning_is_not_repeated_at_every_step():
    watch, actions = Watch(), []
    for step in range(7):
        watch, decision = watch_step(watch, step, LONG, settings(quiet_steps=3))
        actions.append(decision.action)
    assert actions == ['warn', 'off', 'off'] * 2 + ['warn']


def test_the_strongest_action_wins_and_off_is_off():
    both = [WELL] * 8 + [WELL | {'policy/kl': 0.9, 'failure/max_turns': 0.9}] * 3
    decision = watch_step(Watch(), 10, both, settings())[1]
    assert decision.action == 'roll_back' and len(decision.alarms) == 2
    quiet = ActionSettings(kl_explosion='off', cut_by_length='off')
    assert watch_step(Watch(), 10, both, settings(actions=quiet))[1].action == 'off'


def test_the_memory_survives_json():
    watch, _ = watch_step(Watch(), 3, KL, settings())
    assert Watch(**json.loads(json.dumps(watch.state()))) == watch


@pytest.mark.parametrize(
    ('weight', 'rollbacks', 'stronger'),
    [(0.0, 0, 0.0), (0.0, 1, 0.03), (0.02, 0, 0.02), (0.02, 1, 0.06), (0.02, 2, 0.18)],
)
def test_each_roll_back_holds_the_policy_nearer(weight, rollbacks, stronger):
    assert stronger_kl(weight, rollbacks, WatchdogSettings()) == pytest.approx(stronger)


def test_evidence_is_whole_and_readable(tmp_path):
    broken = [*KL, WELL | {'loss/total': float('nan'), 'update/gradient_norm': None}]
    decision = watch_step(Watch(), 11, broken, settings())[1]
    path = save_evidence(tmp_path, 11, decision, broken, settings(), [{'task': 'a'}])
    told = json.loads(path.read_text())
    assert told['action'] == 'roll_back' and told['episodes'] == [{'task': 'a'}]
    assert told['history'][-1]['loss/total'] is None and len(told['history']) == 12
    assert told['alarms'][0]['name'] == 'not_finite' and told['settings']['kl_factor'] == 3.0
    assert path.name == 'step-00000011.json' and [path] == list(path.parent.iterdir())


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (lambda: ActionSettings(repetition='stop'), 'repetition'),
        (lambda: WatchdogSettings(quiet_steps=0), 'quiet_steps'),
        (lambda: WatchdogSettings(kl_factor=1.0), 'kl_factor'),
        (lambda: DegenerationSettings(recent=0), 'recent'),
        (lambda: DegenerationSettings(kl=float('nan')), 'kl'),
    ],
)
def test_nonsense_is_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()
