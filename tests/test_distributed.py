"""Two processes take one training step together, and it is the step that one process takes."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = pathlib.Path(__file__).parent / 'several_processes_step.py'
EXACT = ('rows/tokens', 'rows/length', 'rows/sampled', 'rows/turn', 'results', 'told')

pytestmark = pytest.mark.slow  # three programs that compile all of a step


def free_port() -> int:
    with socket.socket() as made:
        made.bind(('localhost', 0))
        return made.getsockname()[1]


def run(folder: pathlib.Path, data: int, fsdp: int) -> list[dict]:
    """What each process of a mesh with one device a process saw."""
    count, port = data * fsdp, free_port()
    environment = os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}
    outs = [folder / f'{data}-{fsdp}-{index}.npz' for index in range(count)]
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, out, *map(str, (port, count, index, data, fsdp))],
            env=environment,
            cwd=PROGRAM.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, out in enumerate(outs)
    ]
    said = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), '\n'.join(said)
    return [dict(np.load(out)) for out in outs]


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    (found,) = run(tmp_path_factory.mktemp('alone'), 1, 1)
    assert found['executed'] > 6 and found['told'].tolist() == [0, 1, 16376, 99999, 1, 1]
    return found


@pytest.mark.parametrize(('data', 'fsdp'), [(2, 1), (1, 2)])
def test_two_processes_take_the_step_of_one(alone, tmp_path, data, fsdp):
    first, second = run(tmp_path, data, fsdp)
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
