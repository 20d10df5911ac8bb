"""A folder says how its run stands, whatever code the run ended with."""

import pytest

from cacherl_jax.run.degeneration import Degeneration
from cacherl_jax.run.ending import State, pause_of, reached, state_of
from cacherl_jax.run.watchdog import Decision, WatchdogSettings, save_evidence

ALARM = Degeneration(name='repetition', message='calls made before: 60%', look_at='calls')


def checkpoint(folder, step):
    (folder / 'checkpoints' / f'step-{step:08d}').mkdir(parents=True)


def alarm(folder, step, action):
    decision = Decision(action=action, alarms=(ALARM,))
    return save_evidence(folder, step, decision, [{'loss/total': 1.0}], WatchdogSettings())


def test_a_folder_without_a_checkpoint_is_new(tmp_path):
    (tmp_path / 'checkpoints' / '.unfinished-step-00000003').mkdir(parents=True)
    assert state_of(tmp_path) == State.NEW == state_of(tmp_path / 'nowhere')
    assert reached(tmp_path) is None


def test_a_run_with_a_checkpoint_is_half_done_and_with_a_result_finished(tmp_path):
    checkpoint(tmp_path, 0)
    checkpoint(tmp_path, 8)
    assert state_of(tmp_path) == State.HALF_DONE and reached(tmp_path) == 8
    (tmp_path / 'result.json').write_text('{}')
    assert state_of(tmp_path) == State.FINISHED


def test_a_paused_run_is_neither_finished_nor_merely_half_done(tmp_path):
    checkpoint(tmp_path, 8)
    evidence = alarm(tmp_path, 10, 'pause')
    assert state_of(tmp_path) == State.PAUSED
    found = pause_of(tmp_path)
    assert (found.step, found.evidence) == (10, evidence)
    assert found.alarms == 'repetition: calls made before: 60%'


def test_a_run_that_came_past_its_pause_is_half_done(tmp_path):
    alarm(tmp_path, 10, 'pause')
    checkpoint(tmp_path, 12)
    assert state_of(tmp_path) == State.HALF_DONE and pause_of(tmp_path) is None


def test_a_pause_at_the_step_after_a_checkpoint_is_one(tmp_path):
    checkpoint(tmp_path, 10)  # ten steps are done, step 10 is the next one
    alarm(tmp_path, 10, 'pause')
    assert state_of(tmp_path) == State.PAUSED


@pytest.mark.parametrize('action', ['roll_back', 'warn'])
def test_an_alarm_that_does_not_pause_leaves_a_run_half_done(tmp_path, action):
    checkpoint(tmp_path, 8)
    alarm(tmp_path, 10, action)
    assert state_of(tmp_path) == State.HALF_DONE


def test_the_latest_alarm_decides(tmp_path):
    checkpoint(tmp_path, 8)
    alarm(tmp_path, 9, 'pause')
    alarm(tmp_path, 11, 'roll_back')
    assert state_of(tmp_path) == State.HALF_DONE
