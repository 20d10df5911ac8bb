"""Laws of the sweep: which runs there are, which are run again, and what a search asks for next."""

import json
import os
import pathlib
import sys

import pytest

from cacherl_jax.run.refusal import Refusal
from experiments import sweep
from experiments.launching.search import DRAWN, Range, Search, read_range
from experiments.launching.side_by_side import run_jobs
from experiments.launching.table import cells, comma_separated, markdown, numbers_of, summary

GRID = sweep.SweepSettings(
    vary=(('seed', '0', '1'), ('suites', 'a', 'a,b')), out=pathlib.Path('out')
)
# A run in place of training: what its success is, is told by the options.
TRAIN = """
import json, pathlib, sys
told = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path(told['--run-dir'])
folder.mkdir(parents=True, exist_ok=True)
print('begun with', told.get('--x'))
with open(folder / 'begun', 'a') as file: file.write('x')
x, seed = float(told.get('--x', 3)), int(told.get('--seed', 0))
if told.get('--broken') == str(seed): sys.exit(3)
stages = {'supervised': {'success': 0.0}, 'final': {'success': 1 - (x - 3) ** 2 / 100 + seed / 10}}
(folder / 'result.json').write_text(json.dumps({'suites': {'trip': stages}, 'seconds': 1.0}))
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The sweep, within a folder of its own, with a run that takes no time."""
    (tmp_path / 'train.py').write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, 'TRAIN', tmp_path / 'train.py')

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', ['sweep.py', *map(str, arguments), '--out', 'out'])
        sweep.main()

    return run


def begun():
    return {path.parent.name: len(path.read_text()) for path in pathlib.Path('out').glob('*/begun')}


# ---- a grid


def test_a_grid_has_a_job_for_each_combination():
    found = sweep.jobs(GRID, ['--steps', '2'])
    assert [tuple(job.point.values()) for job in found] == [
        ('0', 'a'), ('0', 'a,b'), ('1', 'a'), ('1', 'a,b'),
    ]  # fmt: skip
    assert found[1].command[2:-1] == (
        '--steps', '2', '--seed', '0', '--suites', 'a', 'b', '--run-dir',
    )  # fmt: skip
    assert len({job.folder for job in found}) == 4


def test_a_grid_of_nothing_is_one_run():
    (job,) = sweep.jobs(sweep.SweepSettings(), [])
    assert job.folder == pathlib.Path('runs/sweep/run')


@pytest.mark.parametrize('vary', [(('seed',),), (('seed', '1', '1'),), (('a', '1'), ('a', '2'))])
def test_a_setting_varies_once_and_over_different_values(vary):
    with pytest.raises(ValueError, match='vary needs'):
        sweep.SweepSettings(vary=vary)


@pytest.mark.parametrize(
    ('wrong', 'words'),
    [
        ({'search': (('x', '2', '1'),)}, 'LOW must be below'),
        ({'search': (('x', '1'),)}, 'NAME LOW HIGH'),
        ({'search': (('x', '0', '1', 'log'),)}, 'above 0'),
        ({'search': (('x', '0', '1', 'lin'),)}, 'log or int'),
        ({'search': (('x', '0.5', '2', 'int'),)}, 'whole numbers'),
        ({'search': (('x', '0', '1'), ('x', '0', '2'))}, 'every name once'),
        ({'search': (('x', '0', '1'),), 'vary': (('x', '0', '2'),)}, 'vary needs a name once'),
        ({'where': 'hosts'}, 'go together'),
        ({'parallel': -1}, 'parallel 0 or more'),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        sweep.SweepSettings(**wrong)


def test_a_finished_run_is_not_run_again_and_another_is(command, capfd):
    command('--vary', 'seed', 0, 1)
    command('--vary', 'seed', 0, 1, 2)
    assert begun() == {'seed=0': 1, 'seed=1': 1, 'seed=2': 1}
    assert 'begun with None' in pathlib.Path('out/seed=2/output.txt').read_text()
    table = pathlib.Path('out/sweep.md').read_text()
    assert '| 3 |' in table and '1.100 (1.000 to 1.200)' in table


def test_what_was_finished_before_counts_as_done(command, capfd):
    command('--vary', 'seed', 0, 1)
    capfd.readouterr()
    command('--vary', 'seed', 0, 1, 2)
    assert 'sweep 3/3' in capfd.readouterr().err


def test_a_folder_belongs_to_the_command_that_began_it(command, capfd):
    command('--vary', 'seed', 0)
    with pytest.raises(SystemExit):
        command('--vary', 'seed', 0, '--steps', 2)
    assert 'was begun by another command' in capfd.readouterr().err
    assert begun() == {'seed=0': 1}


def test_a_run_that_fails_stops_no_other_and_is_told_of(command, capfd):
    with pytest.raises(SystemExit):
        command('--vary', 'seed', 0, 1, 2, '--broken', 1)
    said = capfd.readouterr().err
    assert 'seed=1: ended with code 3; what it said: out/seed=1/output.txt' in said
    assert len(json.loads(pathlib.Path('out/sweep.json').read_text())) == 1
    assert pathlib.Path('out/sweep.csv').read_text().count('\n') == 3
    with pytest.raises(SystemExit):
        command('--vary', 'seed', 0, 1, 2, '--broken', 1)
    assert begun() == {'seed=0': 1, 'seed=1': 2, 'seed=2': 1}


PAUSES = """
import json, pathlib
folder = pathlib.Path({folder!r})
(folder / 'checkpoints' / 'step-00000003').mkdir(parents=True)
(folder / 'watchdog').mkdir()
alarm = {{'name': 'repetition', 'message': 'calls made before: 60%'}}
told = json.dumps({{'step': 4, 'action': 'pause', 'alarms': [alarm]}})
(folder / 'watchdog' / 'step-00000004.json').write_text(told)
"""


def test_a_sweep_tells_a_paused_run_from_a_finished_and_from_a_failed_one(tmp_path, monkeypatch):
    paused = PAUSES.format(folder=str(tmp_path / 'paused'))
    for name, program, words in (
        ('paused', paused, 'paused by its watchdog at step 4: repetition: calls made before'),
        ('failed', 'raise SystemExit(3)', 'ended with code 3'),
        ('ended', '', 'stopped before its end'),
    ):
        monkeypatch.setattr(sweep, 'TRAIN', tmp_path / f'{name}.py')
        (tmp_path / f'{name}.py').write_text(program)
        job = sweep.Job(point={}, folder=tmp_path / name, arguments=())
        (ending,) = run_jobs([job], 1, lambda ending: None, lambda: False)
        assert words in ending.told


SAYS_ITS_CORES = 'import os, time; time.sleep(1); print("on", sorted(os.sched_getaffinity(0)))'


@pytest.mark.skipif(not hasattr(os, 'sched_getaffinity'), reason='cores are asked for by Linux')
def test_runs_side_by_side_have_cores_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, 'TRAIN', tmp_path / 'program.py')
    sweep.TRAIN.write_text(SAYS_ITS_CORES)
    cores = sorted(os.sched_getaffinity(0))

    def cores_of(parallel, runs):
        jobs = [
            sweep.Job(point={}, folder=tmp_path / f'{parallel}-{run}', arguments=())
            for run in range(runs)
        ]
        run_jobs(jobs, parallel, lambda ending: None, lambda: False)
        told = [(job.folder / 'output.txt').read_text() for job in jobs]
        return [json.loads(text.rpartition('on ')[2]) for text in told]

    assert cores_of(1, 2) == [cores, cores]
    found = cores_of(len(cores), len(cores) + 1)
    assert sorted(sum(found[:-1], [])) == cores and len(found[-1]) == 1
    assert cores_of(len(cores) + 1, 1) == [cores]


def test_memory_bounds_how_many_run_here(monkeypatch, capfd):
    monkeypatch.setattr('experiments.launching.side_by_side.free_gib', lambda: 10.0)
    asked = sweep.SweepSettings(parallel=8, run_gib=4.0)
    assert sweep.place_of(asked, 100)[1] == 2 and 'memory for 2 of 8' in capfd.readouterr().err
    assert sweep.place_of(sweep.SweepSettings(), 100)[1] == 1


# ---- a search


def peak(values):
    return 1 - (float(values['x']) - 3) ** 2 / 100


def searched(file, trials, cut=()):
    """What a search asks for, when it is begun anew after each of these trials."""
    pytest.importorskip('optuna', reason='pip install -r requirements-sweep.txt')
    ranges, asked = [Range(name='x', low=0.0, high=10.0)], []
    search = Search(ranges, 0, file)
    for number in range(trials):
        asked.append(search.ask())
        search.write()
        if number in cut:  # killed while this trial ran
            search, asked = Search(ranges, 0, file), []
            for before in range(number):
                asked.append(search.ask())
                search.tell(before, peak(asked[-1]))
            asked.append(search.ask())
        search.tell(number, peak(asked[-1]))
    return asked


def test_a_search_finds_better_values_than_it_began_with(tmp_path):
    scores = [peak(values) for values in searched(tmp_path / 'search.json', 30)]
    assert max(scores) > 0.999 and sum(scores[-10:]) > sum(scores[:10])


def test_a_search_that_was_cut_goes_on_with_the_same_trials(tmp_path):
    whole = searched(tmp_path / 'whole.json', DRAWN + 6)
    assert searched(tmp_path / 'cut.json', DRAWN + 6, cut=(3, DRAWN + 3)) == whole
    assert len({values['x'] for values in whole}) == len(whole)


def test_a_file_of_another_search_is_refused(tmp_path):
    searched(tmp_path / 'search.json', 1)
    for ranges, seed in (
        ([Range(name='x', low=0.0, high=9.0)], 0),
        ([read_range('x 0 10'.split())], 1),
    ):
        with pytest.raises(Refusal, match='is of another search'):
            Search(ranges, seed, tmp_path / 'search.json')


def test_a_trial_is_worth_the_mean_of_its_runs(command, capfd):
    pytest.importorskip('optuna', reason='pip install -r requirements-sweep.txt')
    asked = ('--search', 'x', 0, 10, '--trials', 4, '--vary', 'seed', 0, 1)
    command(*asked, '--dry-run')
    shown = capfd.readouterr().out.splitlines()
    assert not pathlib.Path('out').exists() and len(shown) == 8
    command(*asked, '--parallel', 2)
    said = [path.read_text() for path in sorted(pathlib.Path('out').glob('*/output.txt'))]
    assert [text.splitlines()[0].removeprefix('$ ') for text in said] == shown
    entries = json.loads(pathlib.Path('out/sweep.json').read_text())
    assert [entry['runs'] for entry in entries] == [2] * 4
    best = max(entries, key=lambda entry: entry['final mean'][0])
    assert best['final mean'][0] == pytest.approx(peak(best['settings']) + 0.05)
    assert f'best final mean: {best["final mean"][0]:.3f} at {best["settings"]}' in (
        capfd.readouterr().out
    )
    command(*asked)
    assert set(begun().values()) == {1} and len(begun()) == 8


def test_a_score_that_there_is_not_is_refused(command, capfd):
    pytest.importorskip('optuna', reason='pip install -r requirements-sweep.txt')
    with pytest.raises(SystemExit):
        command('--search', 'x', 0, 10, '--score', 'finale')
    assert "no score 'finale'" in capfd.readouterr().err


def test_a_whole_number_is_asked_for_as_one(tmp_path):
    pytest.importorskip('optuna', reason='pip install -r requirements-sweep.txt')
    ranges = [read_range('groups 2 64 log int'.split()), read_range('rate 1e-4 1e-2 log'.split())]
    search = Search(ranges, 0, tmp_path / 'search.json')
    for _ in range(5):
        values = search.ask()
        assert 2 <= int(values['groups']) <= 64 and 1e-4 <= float(values['rate']) <= 1e-2


# ---- tables


def test_seeds_are_summed_up_as_mean_and_range():
    points = [{'seed': s, 'share': share} for s in '012' for share in ('0', '0.3')]
    numbers = [{'final mean': value} for value in (0.1, 0.5, 0.2, 0.5, 0.6, 0.8)]
    plain_grpo, cached = summary(points, numbers)
    assert plain_grpo['settings'] == {'share': '0'} and plain_grpo['runs'] == 3
    assert plain_grpo['final mean'] == pytest.approx([0.3, 0.1, 0.6])
    columns, rows = cells([plain_grpo, cached])
    assert columns == ['share', 'runs', 'final mean']
    assert rows[1] == ['0.3', '3', '0.600 (0.500 to 0.800)']
    assert markdown(columns, rows).splitlines()[2].startswith('| 0 | 3 | 0.300')
    assert comma_separated(points, numbers).splitlines()[1] == '0,0,0.1'


def test_numbers_of_a_result_are_success_by_suite_and_stage():
    stages = {'supervised': {'success': 0.25}, 'final': {'success': 0.5}}
    better = {'supervised': {'success': 0.75}, 'final': {'success': 1.0}}
    found = numbers_of({'suites': {'trip': stages, 'research': better}, 'seconds': 9.0})
    assert found['final trip'] == 0.5 and found['supervised mean'] == 0.5
    assert found['final mean'] == 0.75 and found['seconds'] == 9.0
