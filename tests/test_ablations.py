"""Ablations as lists of differences, their runs as processes; nothing is trained here."""

import dataclasses
import fcntl
import json
import sys
import threading

import pytest
from ablation_outcomes import finished_run

from cacherl_jax.chat.template import Chat, call_message, prove
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.compose.command import read_settings
from cacherl_jax.config import PRESETS
from cacherl_jax.run.ending import State
from cacherl_jax.run.refusal import Refusal
from experiments import ablate
from experiments.ablations.definition import Ablation, short, with_fields
from experiments.ablations.jobs import Job, job_seconds, jobs_of, plan, scale_of, step_seconds
from experiments.ablations.named import ABLATIONS
from experiments.ablations.paper import NO_THINKING
from experiments.launching import side_by_side
from experiments.launching.side_by_side import Ended, room_for, run_jobs

SMALL = PRESETS['small']
KL = Ablation(
    question='Does KL help?',
    baseline='with',
    rows={'with': {}, 'without': {'update.loss.kl_weight': 0.0}},
    short=short(steps=3),
)


# ---- differences


def test_fields_are_set_by_name_all_of_them_at_once():
    config = with_fields(
        SMALL,
        {'seed': 3, 'decode.context_tokens': 700, 'decode.widths': (700,), 'update.widths': (700,)},
    )
    assert (config.seed, config.decode.context_tokens, config.update.widths) == (3, 700, (700,))
    assert config.decode.slots == SMALL.decode.slots
    assert with_fields(SMALL, {}) == SMALL


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('sed', 'no setting sed'),
        ('update.losses.kl_weight', 'no setting update.losses'),
        ('seed.first', 'seed has no setting first'),
        ('steps', 'steps must be'),
    ],
)
def test_a_name_that_is_no_field_is_refused(name, words):
    with pytest.raises(Refusal, match=words):
        with_fields(SMALL, {name: -1})


@pytest.mark.parametrize('name', list(ABLATIONS))
def test_every_row_that_ships_is_a_run_of_its_own(name):
    ablation = ABLATIONS[name]
    configs = ablation.configs(ablation.start(SMALL, small=True))
    assert list(configs) == list(ablation.rows)
    assert configs[ablation.baseline].steps == ablation.short['steps']
    assert {config.watchdog.actions.success_collapse for config in configs.values()} == {'warn'}


def test_the_paper_has_its_nine_rows():
    assert len(ABLATIONS['paper'].rows) == 9
    assert ABLATIONS['thinking'].rows.items() <= ABLATIONS['paper'].rows.items()


def test_a_named_preset_keeps_its_sizes():
    assert KL.start(SMALL, small=False).steps == SMALL.steps
    assert KL.start(SMALL, small=True).steps == 3


def test_named_rows_come_with_the_baseline_and_unknown_ones_are_refused():
    rows = dataclasses.replace(KL, rows=KL.rows | {'faster': {'learning_rate': 0.1}})
    assert list(rows.configs(SMALL, ('faster',))) == ['with', 'faster']
    with pytest.raises(Refusal, match='faster'):
        KL.configs(SMALL, ('faster',))


def test_a_row_that_changes_nothing_is_refused():
    same = with_fields(SMALL, {'update.loss.kl_weight': 0.0})
    with pytest.raises(Refusal, match="'with' and 'without' are the same run"):
        KL.configs(same)


def test_a_row_with_a_field_that_does_not_exist_is_refused_by_name():
    rows = dataclasses.replace(KL, rows=KL.rows | {'magic': {'update.magic': True}})
    with pytest.raises(
        Refusal, match=r"row 'magic'[\s\S]*update\.magic[\s\S]*leave it out"
    ) as told:
        rows.configs(SMALL)
    assert '--rows' in str(told.value) and "'without'" in str(told.value)
    assert list(rows.configs(SMALL, ('without',))) == ['with', 'without']


def test_the_template_without_thinking_opens_every_turn_with_an_empty_thought():
    tokenizer = load_tokenizer(BASE)
    tokenizer.chat_template = NO_THINKING.read_text(encoding='utf-8')
    chat = Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))
    prove(chat, thinking=True)
    asked = ({'role': 'user', 'content': 'Hello.'},)
    assert chat.render(asked, header=True).endswith('assistant\n<think>\n\n</think>\n')
    message = call_message('', [('look', {'at': 'sea'})], thinking='Look first.')
    said = chat.decode(chat.turn_ids(message))
    assert 'Look first' not in said and 'think' not in said and '"look"' in said


# ---- runs


def jobs(out, ablation=KL, seeds=(0, 1), **fields):
    shared = dataclasses.replace(ablation.start(SMALL, small=True), **fields)
    return jobs_of(ablation.configs(shared), seeds, out)


def test_every_row_meets_every_seed_and_shares_starts(tmp_path):
    found = jobs(tmp_path)
    assert [(job.row, job.config.seed) for job in found] == [
        ('with', 0), ('with', 1), ('without', 0), ('without', 1),
    ]  # fmt: skip
    assert len({job.folder for job in found}) == 4 and len({job.start for job in found}) == 2
    assert found[0].start == found[2].start


def test_rows_with_the_same_settings_are_one_run(tmp_path):
    paper, thinking = (
        jobs_of(ABLATIONS[name].configs(ABLATIONS[name].start(SMALL, True)), (0,), tmp_path)
        for name in ('paper', 'thinking')
    )
    assert {job.folder for job in thinking} < {job.folder for job in paper}


@pytest.mark.parametrize('fields', [{'steps': 4}, {'groups': 2}])
def test_other_settings_are_other_runs(tmp_path, fields):
    folders = ({job.folder for job in jobs(tmp_path, **more)} for more in ({}, fields))
    assert not set.intersection(*folders)


def test_another_model_makes_other_runs(tmp_path):
    for name in ('one', 'other'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'model.safetensors').write_text(name)
    folders = [jobs(tmp_path, model=str(tmp_path / name))[0].folder for name in ('one', 'other')]
    assert folders[0] != folders[1]
    with pytest.raises(Refusal, match='there is no model'):
        jobs(tmp_path, model=str(tmp_path / 'none'))


@pytest.mark.parametrize('seeds', [(), (1, 1)])
def test_seeds_are_named_once(tmp_path, seeds):
    with pytest.raises(Refusal, match='each once'):
        jobs(tmp_path, seeds=seeds)


def test_a_run_is_started_from_the_settings_that_it_has(tmp_path):
    job = jobs(tmp_path, ABLATIONS['sample-efficiency'])[-1]
    job.prepare()
    assert read_settings(job.settings) == job.config
    assert job.command[-1] == str(job.settings)


def test_a_plan_says_who_makes_a_start_and_counts_what_is_to_come(tmp_path):
    found = jobs(tmp_path)
    finished_run(found[0].folder, {('a', 0): 1})
    planned = plan(found)
    assert [one.state for one in planned] == [State.FINISHED, *[State.NEW] * 3]
    assert [one.makes_start for one in planned] == [False, True, False, False]
    assert planned[0].seconds == 0 and planned[1].seconds > planned[2].seconds > 0


def test_estimates_grow_with_what_is_done_and_learn_from_runs(tmp_path):
    more = dataclasses.replace(SMALL, steps=2 * SMALL.steps)
    assert job_seconds(more, False) > job_seconds(SMALL, False)
    assert job_seconds(SMALL, True) > job_seconds(SMALL, False)
    often = with_fields(SMALL, {'evaluation.every': 2})
    assert job_seconds(often, False) > job_seconds(SMALL, False)
    assert scale_of(jobs(tmp_path)) == 1.0
    (job, *_) = jobs(tmp_path)
    job.folder.mkdir(parents=True)
    lines = [{'step': n, 'perf/step_seconds': 3 * step_seconds(job.config)} for n in range(3)]
    (job.folder / 'metrics.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in lines))
    assert scale_of(jobs(tmp_path)) == pytest.approx(3.0)


# ---- processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scripted(Job):
    """A run that is a few lines of Python in its folder."""

    script: str

    @property
    def command(self):
        head = (
            f'import json, pathlib, signal, sys, time; here = pathlib.Path({str(self.folder)!r})\n'
        )
        return (sys.executable, '-c', head + self.script)


FINISH = "(here / 'result.json').write_text('{}')\n"
COUNT = "open(here / 'begun', 'a').write('x')\n"
CHECKPOINT = "(here / 'checkpoints' / 'step-00000003').mkdir(parents=True)\n"
PAUSE = CHECKPOINT + (
    "(here / 'watchdog').mkdir()\n"
    "told = {'step': 4, 'action': 'pause', 'alarms': [{'name': 'gaming', 'message': 'seen'}]}\n"
    "(here / 'watchdog' / 'step-00000004.json').write_text(json.dumps(told))\n"
)
WAIT = 'signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n' + CHECKPOINT + 'time.sleep(60)\n'


def scripted(folder, script):
    return Scripted(row='r', config=dataclasses.replace(SMALL, run_dir=folder), script=script)


def going_on():
    return False


def run(found, parallel=2, tell=lambda ending: None, stop=going_on):
    return {e.job.folder.name: e for e in run_jobs(found, parallel, tell, stop)}


def test_a_code_of_zero_does_not_make_a_result(tmp_path):
    scripts = {'done': FINISH, 'paused': PAUSE, 'left': CHECKPOINT, 'broken': 'sys.exit(3)'}
    heard = []
    ended = run([scripted(tmp_path / n, script) for n, script in scripts.items()], 2, heard.append)
    assert {name: ending.ended for name, ending in ended.items()} == {
        'done': Ended.FINISHED,
        'paused': Ended.PAUSED,
        'left': Ended.STOPPED,
        'broken': Ended.FAILED,
    }
    assert len(heard) == 4 and not ended['done'].told
    assert 'step 4: gaming: seen' in ended['paused'].told and 'code 3' in ended['broken'].told


def test_finished_runs_are_not_run_again_and_others_are(tmp_path):
    found = [scripted(tmp_path / name, COUNT + more) for name, more in (('a', FINISH), ('b', ''))]
    first, second = run([*found, found[0]]), run(found)
    assert set(first) == {'a', 'b'} and set(second) == {'b'}
    assert (tmp_path / 'a' / 'begun').read_text() == 'x'
    assert (tmp_path / 'b' / 'begun').read_text() == 'xx'


@pytest.mark.parametrize(('parallel', 'most'), [(1, 1), (2, 2)])
def test_at_most_so_many_run_at_a_time(tmp_path, parallel, most):
    mark = "(here / 'on').touch(); time.sleep(0.5); (here / 'on').unlink()\n"
    found = [scripted(tmp_path / str(n), mark + FINISH) for n in range(4)]
    together, seen = threading.Event(), []

    def look():
        while not together.wait(0.05):
            seen.append(len(list(tmp_path.glob('*/on'))))

    watcher = threading.Thread(target=look)
    watcher.start()
    run(found, parallel)
    together.set()
    watcher.join()
    assert max(seen) == most


def test_a_stop_reaches_the_runs_and_begins_no_other(tmp_path):
    found = [scripted(tmp_path / name, WAIT) for name in ('a', 'b', 'c')]

    def begun():
        return all((tmp_path / name / 'checkpoints').exists() for name in ('a', 'b'))

    ended = run(found, 2, stop=begun)
    assert {name: ending.ended for name, ending in ended.items()} == dict.fromkeys(
        'ab', Ended.STOPPED
    )
    assert not (tmp_path / 'c').exists()


def test_a_run_that_somebody_else_still_runs_is_not_begun(tmp_path):
    job = scripted(tmp_path / 'a', COUNT + FINISH)
    job.prepare()
    with (job.folder / 'lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match='another process works in'):
            run([job])
    assert not (job.folder / 'begun').exists() and run([job])['a'].ended is Ended.FINISHED


def test_where_one_is_refused_those_begun_are_ended(tmp_path):
    found = [scripted(tmp_path / 'a', WAIT), scripted(tmp_path / 'b', COUNT + FINISH)]
    found[1].prepare()
    with (found[1].folder / 'lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match='another process works in'):
            run(found)
    assert 'b' in run(found[1:]) and not held(found[0].folder / 'lock')


def held(path):
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_memory_bounds_what_runs_side_by_side(monkeypatch):
    monkeypatch.setattr(side_by_side, 'free_gib', lambda: 10.0)
    assert [room_for(8, gib) for gib in (1.0, 3.0, 30.0)] == [8, 3, 1]
    monkeypatch.setattr(side_by_side, 'free_gib', lambda: None)
    assert room_for(8, 30.0) == 8


# ---- the command


def command(monkeypatch, tmp_path, *arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'argv', ['ablate.py', *arguments])
    ablate.main()


def test_a_dry_run_shows_every_run_and_makes_none(monkeypatch, tmp_path, capsys):
    command(monkeypatch, tmp_path, 'paper', '--dry-run', '--seeds', '0', '1', '--groups', '2')
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if line.startswith('# ')]
    assert len(told) == 18 and sum('train.py --preset' in line for line in lines) == 18
    assert told[0].startswith('# 1: full, seed 0: new, makes its start, about')
    assert any('no KL, seed 1' in line and 'update.loss.kl_weight = 0.0' in line for line in told)
    assert lines[-1].startswith('18 runs, 0 finished; about')
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['nothing'], 'paper, thinking, thin-cache, sample-efficiency'),
        (['paper', '--rows', 'no luck'], 'no luck'),
        (['paper', '--parallel', '0'], 'parallel must be'),
        (['paper', '--preset', 'tiny'], 'tiny'),
        (['paper', '--update.loss.kl-weight', '0'], 'are the same run'),
        (['paper', '--grups', '2'], 'grups'),
    ],
)
def test_a_mistake_ends_with_one_message_and_code_2(monkeypatch, tmp_path, capfd, arguments, words):
    with pytest.raises(SystemExit) as end:
        command(monkeypatch, tmp_path, *arguments, '--dry-run')
    said = capfd.readouterr()
    assert end.value.code == 2 and words in said.out + said.err
    assert 'Traceback' not in said.err and not list(tmp_path.iterdir())


def test_a_table_is_of_the_runs_that_have_finished(tmp_path):
    found = jobs(tmp_path)
    for job, right in zip(found[:3], (0, 1, 1), strict=True):
        finished_run(job.folder, {('a', 0): right, ('b', 0): 1})
    shared = KL.start(SMALL, small=True)
    (with_kl, without) = ablate.write_table('kl', KL, shared, found, tmp_path)
    assert (with_kl['runs'], without['runs']) == (2, 1)
    assert without['success difference'].mean == pytest.approx(0.5)  # of seed 0, which both have
    told = json.loads((tmp_path / 'kl' / 'ablation.json').read_text())
    assert [line['state'] for line in told['runs']] == ['finished'] * 3 + ['new']
    assert told['entries'][1]['success difference']['mean'] == pytest.approx(0.5)
    assert {path.name for path in (tmp_path / 'kl').iterdir()} == {
        'table.md', 'table.csv', 'runs.csv', 'figure.svg', 'ablation.json',
    }  # fmt: skip
