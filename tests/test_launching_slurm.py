"""Jobs in a queue: begun by launch.sh where the queue says, found again, saved when preempted."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import time

import pytest
from cluster_programs import FINISH, LAUNCH, SAVE_AND_END, install, write_program

from cacherl_jax.run.refusal import Refusal
from experiments import sweep
from experiments.launching.side_by_side import Ended, run_jobs
from experiments.launching.slurm import Slurm, SlurmSettings, parameters
from experiments.sweep import Job

pytest.importorskip('submitit', reason='pip install -r requirements-sweep.txt')
ROOT = pathlib.Path(__file__).parent.parent
QUEUE = ('begin', 'sbatch', 'srun', 'sacct', 'squeue', 'scontrol')


@pytest.fixture
def folder(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, *QUEUE)
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
    return tmp_path


def slurm(folder, body):
    write_program(folder / 'launch.sh', LAUNCH + body)
    return Slurm(SlurmSettings(gpus=0), folder / 'slurm', folder / 'launch.sh')


def job(folder, name='one'):
    return Job(point={}, folder=folder / 'runs' / name, arguments=('--seed', '1'))


def run(queue, jobs, stop=lambda: False):
    return run_jobs(jobs, len(jobs), lambda ending: None, stop, queue.begin)


def appears(path):
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return path.exists()


def test_jobs_run_in_the_queue_and_what_they_say_is_collected(folder):
    found = [job(folder, name) for name in ('one', 'two')]
    endings = run(slurm(folder, FINISH), found)
    assert [ending.ended for ending in endings] == [Ended.FINISHED] * 2
    for each in found:
        said = (each.folder / 'output.txt').read_text()
        assert 'train --seed 1 --run-dir' in said and "on ''" in said  # the node finds its own


def test_a_job_that_fails_says_its_code(folder):
    (ending,) = run(slurm(folder, 'exit 3\n'), [job(folder)])
    assert ending.ended is Ended.FAILED and 'code 3' in ending.told


def test_whoever_leaves_finds_the_job_again(folder):
    queue = slurm(folder, 'while [ ! -e go ]; do sleep 0.05; done\n' + FINISH)
    one = job(folder)
    (left,) = run(queue, [one], stop=(one.folder / 'begun').exists)
    assert left.ended is Ended.STOPPED and not one.result.exists()
    again = Slurm(SlurmSettings(gpus=0), folder / 'slurm', folder / 'launch.sh')
    (one.folder / 'go').touch()
    assert [e.ended for e in run(again, [one])] in ([Ended.FINISHED], [])
    assert one.result.exists() and (one.folder / 'begun').read_text() == 'x\n'


def test_a_job_that_the_queue_lost_has_failed_and_is_begun_again(folder, monkeypatch):
    monkeypatch.setattr('experiments.launching.slurm.LOOK_SECONDS', 0.1)
    write_program(folder / 'bin' / 'sacct', 'exit 1\n')  # a queue that keeps no accounts
    one, queue = job(folder), slurm(folder, 'touch ready; sleep 60\n')
    begun = queue.begin(one)
    assert appears(one.folder / 'ready')
    os.killpg(int((folder / 'queue' / f'{begun.job.job_id}.pid').read_text()), signal.SIGKILL)
    until = time.monotonic() + 60
    while begun.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert begun.poll() == 1
    assert run(slurm(folder, FINISH), [one])[0].ended is Ended.FINISHED


def test_a_job_that_is_preempted_saves_and_goes_on(folder):
    queue = slurm(folder, SAVE_AND_END)
    begun = queue.begin(job(folder))
    assert appears(job(folder).folder / 'ready')
    process = (folder / 'queue' / f'{begun.job.job_id}.run').read_text().strip()
    asked = ['ps', '-o', 'pid=', '--ppid', process]
    children = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    assert children
    for pid in map(int, [*children, process]):  # SLURM warns all of a job
        os.kill(pid, signal.SIGUSR2)
    assert appears(job(folder).result)
    assert (folder / 'queue' / f'{begun.job.job_id}.again').exists()
    assert (job(folder).folder / 'begun').read_text() == 'x\nx\n'


def test_a_search_does_not_ask_for_all_its_trials_at_once(folder):
    grid = sweep.SweepSettings(where='slurm', out=folder / 'out')
    searched = dataclasses.replace(grid, search=(('x', '0', '1'),))
    some = dataclasses.replace(searched, parallel=7)
    assert [sweep.place_of(each, 20)[1] for each in (grid, searched, some)] == [20, 4, 7]


def test_without_slurm_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(Refusal, match='no SLURM'):
        Slurm(SlurmSettings(), tmp_path)


def test_what_is_asked_of_the_queue(folder):
    asked = SlurmSettings(partition='gpu', gpus=2, hours=1.5, more=('account=x',))
    slurm_file = Slurm(asked, folder / 'slurm')._executor._make_submission_file_text('run', 'id')
    for line in ('partition=gpu', 'gres=gpu:2', 'time=90', 'account=x', 'mem=32GB'):
        assert f'#SBATCH --{line}' in slurm_file
    assert 'partition' not in parameters(SlurmSettings())


@pytest.mark.parametrize('wrong', [{'cpus': 0}, {'hours': 0}, {'more': ('account',)}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match='slurm.more|above 0'):
        SlurmSettings(**wrong)
