"""The watchdog of a run: what it does to the run, and what outlives a roll-back."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from cacherl_jax.compose.watching import Watchdog
from cacherl_jax.grpo.loss import LossSettings
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.run.watchdog import ActionSettings, WatchdogSettings

WELL = {'loss/total': 0.1, 'update/gradient_norm': 1.0}
BROKEN = WELL | {'loss/total': float('nan')}
UPDATE = UpdateSettings(loss=LossSettings(kl_weight=0.02))


ONCE = """
import pathlib, sys
from cacherl_jax.compose.watching import begin_again

told = pathlib.Path('told')
print(sys.flags.optimize, sys.orig_argv[1:], __name__, flush=True)
if not told.exists():
    told.touch()
    begin_again()
"""


def watchdog(folder, new=False, again=lambda: None, **actions):
    settings = WatchdogSettings(actions=ActionSettings(**actions), kl_factor=3.0)
    return Watchdog(settings, folder, new, again)


def test_a_healthy_step_is_kept_and_leaves_nothing_behind(tmp_path):
    dog = watchdog(tmp_path, new=True)
    dog.look(0, WELL, ())
    dog.act()
    assert not list(tmp_path.rglob('*')) and dog.tempered(UPDATE) == UPDATE


def test_a_roll_back_begins_again_with_a_stronger_kl_and_is_counted_beyond_the_checkpoint(tmp_path):
    begun = []
    dog = watchdog(tmp_path, new=True, again=lambda: begun.append(1))
    before = dog.watch.state()  # what the last checkpoint holds
    dog.look(4, BROKEN, [{'answer': 'x'}])
    with pytest.raises(SystemExit):  # a process that was not replaced does not go on
        dog.act()
    evidence = json.loads((tmp_path / 'watchdog' / 'step-00000004.json').read_text())
    assert begun == [1] and evidence['alarms'][0]['name'] == 'not_finite'
    assert evidence['episodes'] == [{'answer': 'x'}]

    again = watchdog(tmp_path)
    again.restore(before, [WELL])
    assert again.watch.rollbacks == 1
    assert again.tempered(UPDATE).loss.kl_weight == pytest.approx(0.06)


def test_beginning_again_is_the_same_command(tmp_path):
    (tmp_path / 'rooms').mkdir()
    (tmp_path / 'rooms' / 'once.py').write_text(ONCE)
    done = subprocess.run(
        [sys.executable, '-O', '-m', 'rooms.once', '--name', 'a b'],
        cwd=tmp_path,
        env=os.environ | {'PYTHONPATH': str(pathlib.Path(__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
    )
    first, second = done.stdout.splitlines()
    assert first == second and "'--name', 'a b'] __main__" in first


def test_after_the_last_roll_back_allowed_the_run_pauses(tmp_path):
    begun = []
    for _ in range(3):
        dog = watchdog(tmp_path, again=lambda: begun.append(1))
        dog.look(1, BROKEN, ())
        with pytest.raises(SystemExit) as left:
            dog.act()
        assert left.value.code == 0
    assert len(begun) == 2 and dog.decision.action == 'pause'


def test_a_new_run_in_the_folder_of_another_starts_with_its_own_kl(tmp_path):
    dog = watchdog(tmp_path, new=True)
    dog.look(1, BROKEN, ())
    with pytest.raises(SystemExit):
        dog.act()
    assert watchdog(tmp_path, new=True).tempered(UPDATE) == UPDATE
    assert not (tmp_path / 'watchdog').exists()


def test_a_warning_ends_nothing(tmp_path, capsys):
    dog = watchdog(tmp_path, new=True, not_finite='warn')
    dog.look(1, BROKEN, ())
    dog.act()
    assert 'not_finite' in capsys.readouterr().err and not (tmp_path / 'watchdog').exists()
