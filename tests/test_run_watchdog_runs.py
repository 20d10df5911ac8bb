"""The watchdog over real runs of the training command: one that is well, one driven mad."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from cacherl_jax.run.degeneration import DegenerationSettings
from cacherl_jax.run.watchdog import Watch, WatchdogSettings, watch_step

ROOT = pathlib.Path(__file__).parent.parent
SETTINGS = (
    '--model base --curriculum.suites trip --curriculum.levels 1 --curriculum.tasks 8 --groups 3 '
    '--rollout.samples 4 --rollout.max-turns 4 --decode.slots 12 --decode.context-tokens 448 '
    '--decode.turn-tokens 48 --decode.episode-tokens 160 --decode.widths 64 448 '
    '--update.widths 448 --update.micro-rows 12 --update.loss.language-weight 0 --text-rows 0 '
    '--supervised.demonstrations 32 --supervised.general 8 --supervised.epochs 1 '
    '--supervised.rows 4 '
    '--evaluation.unseen 1 --evaluation.seen 1 --mix.share.start 0 --mix.share.end 0 '
    '--checkpoint-steps 6 --steps 6'
).split()
MAD = '--learning-rate 1.0 --update.loss.kl-weight 0'.split()
WATCHED = WatchdogSettings(signs=DegenerationSettings(recent=2))


def metrics_of(run_dir, *more):
    """The metrics of a run's steps, as the command wrote them."""
    command = [sys.executable, 'experiments/train.py', '--run-dir', str(run_dir), *SETTINGS, *more]
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    records = map(json.loads, (run_dir / 'metrics.jsonl').read_text().splitlines())
    return [record for record in records if 'rewards/judged' in record]


def decisions(history):
    """What the watchdog says after each step."""
    watch, found = Watch(), []
    for step in range(len(history)):
        watch, decision = watch_step(watch, step, history[: step + 1], WATCHED)
        found.append(decision)
    return found


@pytest.mark.slow
def test_a_run_that_is_well_goes_on_and_one_that_is_driven_mad_is_stopped(tmp_path):
    well, mad = metrics_of(tmp_path / 'well'), metrics_of(tmp_path / 'mad', *MAD)
    assert len(well) == len(mad) == 6
    assert {decision.action for decision in decisions(well)} <= {'off', 'warn'}
    assert {decision.action for decision in decisions(mad)} & {'pause', 'roll_back'}
