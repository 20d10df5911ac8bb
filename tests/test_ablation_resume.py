"""An ablation killed half way and begun again ends with the same table as one left alone."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from tiny_policy import SETTINGS, make_policy

ROOT = pathlib.Path(__file__).parent.parent
FILES = ('table.md', 'table.csv', 'runs.csv', 'figure.svg')
ASKED = ['paper', '--rows', 'no KL', '--seeds', '0', '--steps', '3']
ASKED += ['--supervised.thinking', 'none', '--supervised.rejection.samples', '0', *SETTINGS]


def start(model, out, compiled):
    command = [sys.executable, 'experiments/ablate.py', *ASKED]
    command += ['--model', str(model), '--out', str(out)]
    environment = os.environ | {
        'PYTHONPATH': str(ROOT),
        'JAX_COMPILATION_CACHE_DIR': str(compiled),
        'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    }
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process):
    said = process.communicate(timeout=3000)[1]
    assert process.returncode == 0, said[-3000:]


def half_way(out):
    """One run has its result, and the other has done a step."""
    runs = list((out / 'runs').glob('*'))
    steps = [path for run in runs for path in run.glob('checkpoints/step-0000000[12]')]
    results = [run for run in runs if (run / 'result.json').exists()]
    return len(results) == 1 and any(step.parents[1] not in results for step in steps)


def kill(process):
    """The command and the run that it started, at once."""
    asked = ['ps', '-o', 'pid=', '--ppid', str(process.pid)]
    children = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
def test_killed_half_way_and_resumed_is_the_same_table(tmp_path):
    model, compiled = make_policy(tmp_path), tmp_path / 'compiled'
    whole, broken = tmp_path / 'whole', tmp_path / 'broken'
    finish(start(model, whole, compiled))
    process = start(model, broken, compiled)
    while not half_way(broken):
        assert process.poll() is None
        time.sleep(0.02)
    kill(process)
    results = list(broken.glob('runs/*/result.json'))
    written = [result.stat().st_mtime_ns for result in results]
    assert not (broken / 'paper').exists() and len(results) == 1
    finish(start(model, broken, compiled))
    assert [result.stat().st_mtime_ns for result in results] == written
    for name in FILES:
        one, other = ((folder / 'paper' / name).read_text() for folder in (whole, broken))
        assert one == other, name
    for policy in whole.glob('runs/*/policy/model.safetensors'):
        again = broken / policy.relative_to(whole)
        assert again.read_bytes() == policy.read_bytes(), policy
