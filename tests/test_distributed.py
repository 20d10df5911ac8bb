"""Several processes take one step together, or a whole run, and it is what one process takes."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_policy import make_policy

TESTS = pathlib.Path(__file__).parent
EXACT = ('rows/tokens', 'rows/length', 'rows/sampled', 'rows/turn', 'results', 'told', 'clock')
STEPS = 3
SETTINGS = (
    '--curriculum.suites addition --curriculum.levels 1 --curriculum.tasks 4 --groups 2 '
    '--text-rows 1 --rollout.samples 2 --rollout.max-turns 3 --decode.slots 4 '
    '--decode.context-tokens 320 --decode.turn-tokens 8 --decode.episode-tokens 40 '
    '--decode.widths 320 --update.widths 320 --update.micro-rows 4 --supervised.demonstrations 4 '
    '--supervised.epochs 1 --supervised.rows 4 --supervised.general 0 --evaluation.unseen 2 '
    f'--evaluation.seen 1 --buffer.minimum 2 --checkpoint-steps 1 --steps {STEPS}'
).split()

pytestmark = pytest.mark.slow  # programs that compile all of a step


def free_port() -> int:
    with socket.socket() as made:
        made.bind(('localhost', 0))
        return made.getsockname()[1]


def begin(words, **environment) -> subprocess.Popen:
    """One program of this folder, on CPUs."""
    quiet = {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': '', 'PYTHONPATH': str(TESTS.parent)}
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=os.environ | quiet | environment,
        cwd=TESTS.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(started: list[subprocess.Popen]) -> list[str]:
    """What all of them said; none may fail."""
    said = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), '\n'.join(said)
    return said


# ---- one step


def step(folder: pathlib.Path, data: int, fsdp: int) -> list[dict]:
    """What each process of a mesh with one device a process saw."""
    count, port = data * fsdp, free_port()
    outs = [folder / f'{data}-{fsdp}-{index}.npz' for index in range(count)]
    program = TESTS / 'several_processes_step.py'
    finish(
        [begin([program, out, port, count, index, data, fsdp]) for index, out in enumerate(outs)]
    )
    return [dict(np.load(out)) for out in outs]


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    (found,) = step(tmp_path_factory.mktemp('alone'), 1, 1)
    assert found['executed'] > 6 and found['told'].tolist() == [0, 1, 16376, 99999, 1, 1, 1]
    return found


@pytest.mark.parametrize(('data', 'fsdp'), [(2, 1), (1, 2)])
def test_two_processes_take_the_step_of_one(alone, tmp_path, data, fsdp):
    first, second = step(tmp_path, data, fsdp)
    assert (first.pop('executed'), second.pop('executed')) == (alone['executed'], 0)
    for name, here in first.items():
        np.testing.assert_array_equal(here, second[name], err_msg=name)
        if name in EXACT:
            np.testing.assert_array_equal(here, alone[name], err_msg=name)
        else:  # two processes add in another order
            np.testing.assert_allclose(here, alone[name], rtol=2e-4, atol=2e-5, err_msg=name)
    folder = tmp_path / '2-processes'
    assert (folder / 'writer.txt').read_text() == '0'
    assert len((folder / 'metrics.jsonl').read_text().splitlines()) == 1
    assert len(list((folder / 'tensorboard').iterdir())) == 1


# ---- a whole run


class Runs:
    """Runs of the training command with a policy that calls tools; they share what is compiled."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        (folder / 'model').mkdir()
        self.model = make_policy(folder / 'model')

    def begin(self, name: str, count: int, *words: str) -> list[subprocess.Popen]:
        """So many processes of one run, with one device each."""
        command = [TESTS / 'several_processes_run.py', None, '--model', self.model]
        command += ['--run-dir', self.folder / name, *SETTINGS, *words]
        shared = {
            'JAX_COMPILATION_CACHE_DIR': str(self.folder / 'compiled'),
            'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
        }
        address, started = f'localhost:{free_port()}', []
        for index in range(count):
            command[1] = self.folder / f'{name}-{index}'
            place = {
                'JAX_COORDINATOR_ADDRESS': address,
                'JAX_NUM_PROCESSES': str(count),
                'JAX_PROCESS_ID': str(index),
            }
            started.append(begin(command, **shared, **(place if count > 1 else {})))
        return started

    def executed(self, name: str, index: int) -> int:
        """How often a tool ran in that process."""
        return int((self.folder / f'{name}-{index}').read_text())

    def result(self, name: str) -> dict:
        found = json.loads((self.folder / name / 'result.json').read_text())
        return {part: found[part] for part in ('suites', 'rl')}

    def steps(self, name: str) -> list[dict]:
        """The numbers of each step of RL, but for those of clocks."""
        file = self.folder / name / 'metrics.jsonl'
        lines = file.read_text().splitlines() if file.exists() else []
        steps = [one for one in map(json.loads, lines) if 'rewards/total' in one]
        return [{n: x for n, x in one.items() if not n.startswith('perf/')} for one in steps]

    def policy(self, name: str) -> dict[str, np.ndarray]:
        return load_file(self.folder / name / 'policy' / 'model.safetensors')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    made = Runs(tmp_path_factory.mktemp('runs'))
    finish(made.begin('alone', 1))
    return made


@pytest.fixture(scope='module')
def both(runs):
    """Two processes of which each holds half of the parameters."""
    return finish(runs.begin('both', 2, '--mesh.fsdp', '2'))


def test_a_run_of_two_processes_is_the_run_of_one(runs, both):
    assert runs.executed('both', 0) == runs.executed('alone', 0) > 8
    assert runs.executed('both', 1) == 0
    assert runs.result('both') == runs.result('alone')
    assert 'result.json' in both[0] and 'result.json' not in both[1]
    for here, there in zip(runs.steps('both'), runs.steps('alone'), strict=True):
        assert here == pytest.approx(there, rel=1e-3, abs=1e-4)
    for name, here in runs.policy('both').items():
        there = runs.policy('alone')[name]
        np.testing.assert_allclose(here, there, rtol=2e-3, atol=2e-4, err_msg=name)


def test_two_processes_killed_and_resumed_are_two_uninterrupted(runs, both):
    started = runs.begin('broken', 2, '--mesh.fsdp', '2')
    while not runs.steps('broken') and all(process.poll() is None for process in started):
        time.sleep(0.02)
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (runs.folder / 'broken' / 'result.json').exists()
    finish(runs.begin('broken', 2, '--mesh.fsdp', '2'))
    assert runs.steps('broken') == runs.steps('both')
    assert runs.result('broken') == runs.result('both')
    for name, here in runs.policy('broken').items():
        np.testing.assert_array_equal(here, runs.policy('both')[name], err_msg=name)


def test_a_roll_back_takes_all_processes_back(runs, both):
    mad = '--watchdog.signs.recent 1 --watchdog.signs.kl 1e-6 --watchdog.most-rollbacks 1'
    said = finish(runs.begin('mad', 2, '--mesh.fsdp', '2', *mad.split()))
    told = json.loads((runs.folder / 'mad' / 'watchdog' / 'rollbacks.json').read_text())
    assert told == {'rollbacks': 1} and 'rolled back' in said[0]
    assert all('stopped by the watchdog' in one for one in said)


def test_the_table_of_devices_and_processes_has_no_difference(tmp_path):
    words = '--devices 8 --layouts 1 4 2 --processes 2 --json'.split()
    program = TESTS.parent / 'experiments' / 'bench_devices.py'
    (said,) = finish([begin([program, *words, tmp_path / 'devices.json'])])
    alone, spread, both = json.loads((tmp_path / 'devices.json').read_text())
    assert 'differences from one device' in said and alone['within'] and alone['parameters'] == 0
    assert spread['within'] and spread['tokens'] == 1 and 0 < spread['parameters'] < 2e-4
    assert both['within'] and both['executed'] == [alone['executed'][0], 0]


def test_what_one_process_is_refused_ends_all(runs):
    started = runs.begin('uneven', 2)
    said = [process.communicate()[0] for process in started]
    assert all(process.returncode for process in started)
    assert any('refused: data 1 x fsdp 1 x tensor 1 is 1, but' in one for one in said)
