"""launch.sh: what each command installs, and what it runs then; Python only listens here."""

import pathlib
import subprocess

import pytest
from cluster_programs import write_program

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def launch(tmp_path):
    """What Python was asked, a line each, when launch.sh is given these arguments."""
    write_program(tmp_path / 'venv' / 'bin' / 'python', f'echo "$@" >>{tmp_path}/asked\n')

    def run(*arguments):
        environment = {'PATH': '/usr/bin:/bin', 'CACHERL_VENV': str(tmp_path / 'venv')}
        environment |= {'CACHERL_ACCELERATOR': 'cpu'}
        command = [str(ROOT / 'launch.sh'), *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        asked = tmp_path / 'asked'
        return ran, asked.read_text().splitlines() if asked.exists() else []

    return run


@pytest.mark.parametrize(
    ('arguments', 'files'),
    [
        ('train', ['requirements.txt']),
        ('test -x', ['requirements.txt', 'requirements.txt requirements-dev.txt']),
        ('sweep --vary seed 0 1', ['requirements.txt']),
        ('sweep --search x 0 1', ['requirements.txt', 'requirements-sweep.txt']),
        ('sweep --vary x 0 --where slurm', ['requirements.txt', 'requirements-sweep.txt']),
        ('sweep --where=slurm', ['requirements.txt', 'requirements-sweep.txt']),
        ('replay-gold', ['requirements.txt', 'requirements-bench.txt']),
        ('train --preset smollm2-bfcl', ['requirements.txt', 'requirements-bench.txt']),
        (
            'train --curriculum.suites tau2 --steps 1',
            ['requirements.txt', 'requirements-bench.txt'],
        ),
    ],
)
def test_a_command_installs_what_it_needs_and_no_more(launch, arguments, files):
    ran, asked = launch(*arguments.split())
    assert not ran.returncode, ran.stderr
    installed = [line for line in asked if 'pip install' in line]
    words = [[word for word in line.split() if word.endswith('.txt')] for line in installed]
    assert [' '.join(each) for each in words] == files
    command, *others = arguments.split()
    script = f'experiments/{command.replace("-", "_")}.py'
    script = '-m pytest -n 2 --dist loadfile' if command == 'test' else script
    assert asked[-1] == ' '.join([script, *others])


def test_what_is_installed_is_not_installed_again(launch):
    launch('train')
    _, asked = launch('train', '--steps', '2')
    assert sum('pip install' in line for line in asked) == 1


def test_a_command_that_there_is_not_is_refused(launch):
    ran, asked = launch('trian')
    assert ran.returncode == 2 and "no command named 'trian'; there are: train" in ran.stderr
    assert not asked


def test_every_command_is_told_of(launch):
    told = launch()[0].stdout
    names = launch('nothing')[0].stderr.split('there are: ')[1].split()
    assert not [name for name in names if name not in told]
