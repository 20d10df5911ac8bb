"""Laws of the commands: settings make the trip to disk and back, mistakes end with one message."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from cacherl_jax.compose.agent import task_source
from cacherl_jax.compose.command import CHOICES, read_config, saved_config
from cacherl_jax.config import PRESETS
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain
from cacherl_jax.tasks.suites import BENCHMARKS, Benchmark
from experiments import evaluate, train

ROOT = pathlib.Path(__file__).parent.parent


def run_of(folder, config=PRESETS['small'], finished=True):
    """What train.py leaves behind, as far as evaluate looks at it."""
    (folder / ('policy' if finished else 'checkpoints')).mkdir(parents=True)
    (folder / 'config.json').write_text(json.dumps(plain(config)))
    return folder


def settings(model, **others):
    return evaluate.EvaluateSettings(model=str(model), **others)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['--preset', 'tiny'], 'tiny'),
        (['--preset'], 'needs a name'),
        (['--learning-rat', '1'], 'learning-rat'),
        (['--seed', 'one'], 'one'),
        (['--decode.context-tokens', '5000'], 'context_tokens'),
        (['--model', 'no/such/folder'], 'no/such/folder'),
    ],
)
def test_a_mistake_ends_with_one_message_and_code_2(arguments, words, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'argv', ['train.py', *arguments])
    with pytest.raises(SystemExit) as end:
        train.main()
    said = capfd.readouterr()
    assert end.value.code == 2 and words in said.out + said.err
    assert 'Traceback' not in said.out + said.err and not list(tmp_path.iterdir())


def test_the_script_itself_ends_so():
    command = [sys.executable, ROOT / 'experiments' / 'train.py', '--preset', 'tiny']
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    )
    assert done.returncode == 2 and done.stderr.startswith("refused: no preset 'tiny'")
    assert done.stderr.endswith(f'Allowed: {CHOICES}\n')


@pytest.mark.parametrize('preset', list(PRESETS))
def test_settings_read_from_a_run_are_those_it_began_with(preset, tmp_path):
    config = dataclasses.replace(PRESETS[preset], seed=7)
    assert saved_config(run_of(tmp_path / 'run', config)) == config


def test_a_folder_without_settings_is_refused(tmp_path):
    with pytest.raises(Refusal, match='holds no settings of a run'):
        saved_config(tmp_path)


def test_the_settings_of_a_run_are_a_preset(tmp_path):
    run = run_of(tmp_path / 'run', dataclasses.replace(PRESETS['small'], seed=7, steps=3))
    config = read_config('', ['--preset', str(run / 'config.json'), '--steps', '4'])
    assert config == dataclasses.replace(PRESETS['small'], seed=7, steps=4)
    with pytest.raises(Refusal, match='holds no settings'):
        read_config('', ['--preset', str(tmp_path / 'none.json')])


def test_a_preset_may_be_changed_before_options_are_read():
    config = read_config('', ['--groups', '3'], lambda preset: dataclasses.replace(preset, steps=2))
    assert (config.steps, config.groups) == (2, 3)


def test_a_setting_is_given_by_name_over_a_preset():
    config = read_config('', ['--preset=smollm2-bfcl', '--mix.share.start', '0.25'])
    assert config.mix.share.start == 0.25 and config.model == 'smollm2'


def test_a_run_is_evaluated_with_its_own_sizes(tmp_path):
    run = run_of(tmp_path / 'run', PRESETS['smollm2-bfcl'])
    config = evaluate.config_of(settings(run, levels=(2,), seed=3))
    assert config.decode == PRESETS['smollm2-bfcl'].decode and config.model == str(run / 'policy')
    assert config.curriculum.suites == ('bfcl',) and config.curriculum.levels == (2,)


def test_a_run_is_evaluated_on_its_own_benchmark_settings_where_none_are_given(tmp_path):
    run = run_of(tmp_path / 'run', PRESETS['smollm2-bfcl'])
    asked = evaluate.read_arguments([str(run), '--bfcl.category', 'miss_param'])
    assert asked.bfcl == dataclasses.replace(PRESETS['smollm2-bfcl'].bfcl, category='miss_param')
    assert evaluate.config_of(asked).bfcl == asked.bfcl


def test_an_evaluation_may_allow_more_than_training_did(tmp_path):
    run, small = run_of(tmp_path / 'run'), PRESETS['small']
    own, more = (
        evaluate.config_of(settings(run, max_turns=turns, result_characters=most))
        for turns, most in ((0, 0), (40, 50_000))
    )
    assert (own.rollout, own.execute) == (small.rollout, small.execute)
    assert (more.rollout.max_turns, more.execute.result_characters) == (40, 50_000)


def test_a_benchmark_without_tasks_of_a_level_is_refused(monkeypatch):
    empty = Benchmark(tasks=lambda split, settings: (), process_accuracy=lambda episode: 0.0)
    monkeypatch.setitem(BENCHMARKS, 'tau2', empty)
    config = read_config('', ['--curriculum.suites', 'tau2'])
    with pytest.raises(Refusal, match='tau2 has no train task of level 2'):
        task_source(config)('tau2', 'train', 2, 0)


def test_an_unfinished_run_is_not_evaluated(tmp_path):
    with pytest.raises(Refusal, match='not finished'):
        evaluate.config_of(settings(run_of(tmp_path / 'run', finished=False)))


def test_a_cache_is_a_runs_cache(tmp_path):
    asked = settings(run_of(tmp_path / 'run'), cache='all')
    with pytest.raises(Refusal, match='there is no'), evaluate.sessions(asked, PRESETS['small']):
        pass


def test_a_table_has_each_suite_and_its_levels():
    part = {'tasks': 4, 'success': 0.5, 'success_wilson': (0.15, 0.85), 'pass_at_2': 0.8}
    part |= {'turns': 3.0, 'calls': None, 'tier_mix': {'live': 0.0, 'exact': 0.75, 'miss': 0.25}}
    columns, rows = evaluate.table({'trip': part | {'levels': {'1': part, '2': part}}}, 2)
    assert [row[0] for row in rows] == ['trip', 'trip, level 1', 'trip, level 2']
    assert rows[0][3:5] == ['0.15–0.85', 0.8] and len(columns) == len(rows[0])
    assert rows[0][-1] == 'exact 75%, miss 25%'
