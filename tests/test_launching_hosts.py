"""Jobs on hosts that ssh knows: begun once, heard of, and home again with all they wrote."""

import fcntl
import subprocess

import pytest
from cluster_programs import FINISH, LAUNCH, SAVE_AND_END, install, write_program

from cacherl_jax.run.refusal import Refusal
from experiments.launching.hosts import Hosts, HostSettings
from experiments.launching.side_by_side import Ended, run_jobs
from experiments.sweep import Job


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The project on this side; there are hosts `a` and `b`."""
    install(tmp_path, monkeypatch, 'ssh')
    (tmp_path / 'here').mkdir()
    return tmp_path / 'here'


def there(here, name, body):
    """The project at a host, whose launch.sh ends like this."""
    project = here.parent / 'hosts' / name / 'project'
    write_program(project / 'launch.sh', LAUNCH + body)
    return project


def job(here, name='one'):
    return Job(point={}, folder=here / 'runs' / name, arguments=('--seed', "it's 1"))


def run(here, jobs, *names, stop=lambda: False):
    hosts = Hosts(HostSettings(names=names, folder='project'), here)
    return run_jobs(jobs, len(names), lambda ending: None, stop, hosts.begin)


def test_runs_share_the_hosts_and_come_home_with_what_they_said(here):
    for name in ('a', 'b'):
        there(here, name, 'sleep 0.3\n' + FINISH)
    found = [job(here, name) for name in ('one', 'two', 'three')]
    assert [ending.ended for ending in run(here, found, 'a', 'b')] == [Ended.FINISHED] * 3
    hosts = [(each.folder / 'host.txt').read_text().strip() for each in found]
    assert set(hosts) == {'a', 'b'}
    for each, host in zip(found, hosts, strict=True):
        assert f'/{host}/project/runs/' in (each.folder / 'output.txt').read_text()
        assert each.result.exists() and (each.folder / 'begun').read_text() == 'x\n'


def test_a_folder_that_hosts_share_is_left_as_it_is(here):
    write_program(here / 'launch.sh', LAUNCH + FINISH)
    (here.parent / 'hosts' / 'a').mkdir()
    (here.parent / 'hosts' / 'a' / 'project').symlink_to(here)
    (ending,) = run(here, [job(here)], 'a')
    assert ending.ended is Ended.FINISHED
    assert (job(here).folder / 'output.txt').read_text().count('said in') == 1


def test_a_half_done_run_goes_on_at_another_host(here):
    there(here, 'a', 'mkdir -p checkpoints/step-00000003; exit 3\n')
    there(here, 'b', '[ -e checkpoints/step-00000003 ] || exit 4\n' + FINISH)
    (first,) = run(here, [job(here)], 'a')
    assert first.ended is Ended.FAILED and 'code 3' in first.told
    (second,) = run(here, [job(here)], 'b')
    assert second.ended is Ended.FINISHED
    assert (job(here).folder / 'begun').read_text() == 'x\nx\n'


def test_a_run_that_somebody_else_works_in_is_not_begun(here):
    folder = there(here, 'a', FINISH) / 'runs' / 'one'
    folder.mkdir(parents=True)
    with (folder / 'lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match='another process works in runs/one on a'):
            run(here, [job(here)], 'a')
    assert not (folder / 'begun').exists()
    assert run(here, [job(here)], 'a')[0].ended is Ended.FINISHED


def test_a_stop_reaches_the_run_there_and_what_it_saved_comes_home(here):
    ready = there(here, 'a', SAVE_AND_END) / 'runs' / 'one' / 'ready'
    (ending,) = run(here, [job(here), job(here, 'two')], 'a', stop=ready.exists)
    assert ending.ended is Ended.STOPPED and (job(here).folder / 'checkpoints').exists()
    assert not job(here, 'two').result.exists()
    ready.unlink()
    assert run(here, [job(here)], 'a')[0].ended is Ended.FINISHED


def test_a_host_that_does_not_answer_is_a_run_that_failed(here):
    (ending,) = run(here, [job(here)], 'nowhere')
    assert ending.ended is Ended.FAILED and 'code 255' in ending.told


def test_a_folder_outside_of_the_project_is_refused(here, tmp_path):
    outside = Job(point={}, folder=tmp_path / 'elsewhere', arguments=())
    with pytest.raises(Refusal, match='outside of the project'):
        run(here, [outside], 'a')


def test_what_is_shown_is_what_is_run(here):
    there(here, 'a', FINISH)
    hosts = Hosts(HostSettings(names=('a',), folder='project'), here)
    subprocess.run(hosts.command(job(here), 'a'), check=True, capture_output=True)
    assert (here.parent / 'hosts' / 'a' / 'project' / 'runs' / 'one' / 'result.json').exists()
