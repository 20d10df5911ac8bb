"""Gold of the benchmarks, judged here and by the benchmarks: one verdict, on every task."""

import importlib.util
import json
import sys

import pytest

from cacherl_jax.tasks import bfcl_world, tau2_world
from cacherl_jax.tasks.bfcl import BfclSettings, bfcl_tasks
from experiments import replay_gold
from experiments.replay_gold import ReplaySettings, gold_episode, replay

SIZES = {'bfcl': dict.fromkeys(('base', 'miss_func', 'miss_param', 'long_context'), 200)}
for name, install in (('bfcl_eval', bfcl_world.INSTALL), ('tau2', tau2_world.INSTALL)):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f'{name} is not installed; get it with: {install}', allow_module_level=True)


def check(counts, sizes):
    assert {name: of['tasks'] for name, of in counts.items()} == sizes
    for of in counts.values():
        assert of['gold_solved'] == of['gold_solved_there'] == of['gold_agree'] == of['tasks']
        assert of['last_call_dropped_agree'] == of['tasks']
        assert of['last_call_dropped_solved'] < of['tasks']


def test_the_benchmarks_agree_on_some_tasks(tmp_path, monkeypatch):
    told = tmp_path / 'told.json'
    asked = ['replay_gold.py', '--every', '40', '--json', str(told)]
    monkeypatch.setattr(sys, 'argv', asked)
    replay_gold.main()
    told = json.loads(told.read_text())
    check(told['parts'], {f'bfcl {part}': 5 for part in SIZES['bfcl']} | {'tau2 telecom': 3})
    assert set(told['benchmarks']) == {'bfcl', 'tau2'} and told['versions']['commit']


@pytest.mark.slow
def test_bfcl_agrees_on_all_800_and_without_the_last_call_too():
    counts = replay(ReplaySettings(benchmarks=('bfcl',)))
    check(counts, {f'bfcl {part}': size for part, size in SIZES['bfcl'].items()})
    assert not any(of['last_call_dropped_solved'] for of in counts.values())


@pytest.mark.slow
def test_tau2_agrees_on_all_114():
    check(replay(ReplaySettings(benchmarks=('tau2',))), {'tau2 telecom': 114})


def test_a_verdict_that_differs_ends_with_a_code(monkeypatch):
    monkeypatch.setattr(replay_gold, 'bfcl_verdict', lambda row, gold, dropped: False)
    asked = ['replay_gold.py', '--benchmarks', 'bfcl', '--every', '400']
    monkeypatch.setattr(sys, 'argv', asked)
    with pytest.raises(SystemExit) as ended:
        replay_gold.main()
    assert ended.value.code == 1


def test_a_dropped_call_is_the_last_one():
    (task,) = bfcl_tasks('train', BfclSettings())[:1]
    whole, short = ([c for t in gold_episode(task, n).turns for c in t.calls] for n in (0, 1))
    assert short == whole[:-1]
