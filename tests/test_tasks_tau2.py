"""tau2 telecom tasks: gold is solved and nothing less is, and our verdict is the benchmark's."""

import dataclasses
import importlib.util
import json
import random
import sys

import pytest
from expert_endpoint import calls, completion, tool_call
from judge_server import serving

from cacherl_jax.compose.agent import training_source
from cacherl_jax.compose.command import read_config, saved_config
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.results import plain
from cacherl_jax.tasks import tau2_world
from cacherl_jax.tasks.suite import SPLITS, demonstrate
from cacherl_jax.tasks.task import Episode, Termination, Turn
from cacherl_jax.tasks.tau2 import Tau2Settings, faults, make_task, split_of, tau2_tasks
from cacherl_jax.tasks.tau2_score import calls_made, process_accuracy
from cacherl_jax.tool_cache.cache import make_tool_cache
from cacherl_jax.tool_cache.settings import ToolCacheSettings
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.tool import Call, ParseError, Status
from experiments import evaluate
from experiments.replay_gold import tau2_verdict

if importlib.util.find_spec('tau2') is None:
    pytest.skip(
        f'tau2-bench is not installed; get it with: {tau2_world.INSTALL}', allow_module_level=True
    )

LIMITS = ExecuteSettings(result_characters=10**6)
SAMPLE = range(0, 114, 13)


def base():
    """The benchmark's 114 tasks."""
    names = [name for name in tau2_world.entries() if split_of(name)]
    return [make_task(tau2_world.entries()[name], split_of(name)) for name in names]


def play(task, drop=None, live=None):
    """The expert's episode, without call number `drop`."""
    session = (live or live_sessions(LIMITS)).open_session(task.id, task.tools, task.start)
    episode = demonstrate(task, session.answer)
    if drop is None:
        return episode
    made = [call for number, call in enumerate(calls_made(episode.turns)) if number != drop]
    session = live_sessions(LIMITS).open_session(task.id, task.tools, task.start)
    turns = [Turn(text='', calls=(call,), results=session.answer((call,))) for call in made]
    return dataclasses.replace(episode, turns=(*turns, episode.turns[-1]))


def check_gold(task):
    episode = play(task)
    assert all(result.status is Status.OK for turn in episode.turns for result in turn.results)
    assert task.solved(episode) and task.score(episode) == process_accuracy(episode) == 1
    assert all(goal.reached(episode.turns) for goal in task.subgoals)
    nothing = dataclasses.replace(episode, turns=episode.turns[-1:])
    assert task.score(nothing) == process_accuracy(nothing) == 0
    assert not any(goal.reached(nothing.turns) for goal in task.subgoals)


@pytest.mark.parametrize('number', SAMPLE)
def test_gold_is_solved(number):
    check_gold(base()[number])


@pytest.mark.slow
def test_all_gold_is_solved_and_doing_nothing_solves_nothing():
    tasks = base()
    for task in tasks:
        check_gold(task)
    assert len(tasks) == 114
    idle = [dataclasses.replace(play(task), turns=play(task).turns[-1:]) for task in tasks]
    assert not any(episode.task.solved(episode) for episode in idle)


@pytest.mark.parametrize('drop', [None, 0, 1])
def test_our_verdict_is_the_benchmark_s(drop):
    verdicts = []
    for task in [base()[number] for number in SAMPLE]:
        episode = play(task, drop)
        verdicts.append(task.solved(episode))
        assert verdicts[-1] == tau2_verdict(episode), task.id
    assert all(verdicts) if drop is None else not all(verdicts)


@pytest.mark.slow
def test_our_verdict_is_the_benchmark_s_for_every_task_and_call_left_out():
    for task in base():
        for drop in (None, *range(len(task.subgoals))):
            episode = play(task, drop)
            assert task.solved(episode) == tau2_verdict(episode), (task.id, drop)


def test_answers_are_the_benchmark_s():
    task = base()[40]
    world = tau2_world.telecom().get_environment(solo_mode=True)
    first = tau2_world.entries()[task.entity].initial_state
    world.set_state(first.initialization_data, first.initialization_actions, [])
    calls = calls_made(play(task).turns)
    ours = tau2_world.replay(tau2_world.start_world(task.entity), calls)
    make = tau2_world.module('data_model.message').ToolCall
    theirs = [
        world.get_response(make(id='', name=c.name, arguments=dict(c.arguments))).content
        for c in calls
    ]
    assert ours == theirs


def test_no_fault_stands_in_two_splits():
    for settings in (Tau2Settings(), Tau2Settings(training='full')):
        found = {s: {faults(t.entity) for t in tau2_tasks(s, settings)} for s in SPLITS}
        assert not found['train'] & found['test'] and not found['train'] & found['validation']
        assert not found['validation'] & found['test'] and len(found['test']) == 40
    sizes = {split: len(tau2_tasks(split)) for split in SPLITS}
    assert sizes == {'train': 63, 'validation': 11, 'test': 40}


def test_a_run_trains_on_training_tasks_under_its_own_settings(tmp_path):
    asked = ['--curriculum.suites', 'tau2', '--tau2.distractor-tools', '0', '--tau2.policy', 'none']
    write_atomically(tmp_path / 'config.json', json.dumps(plain(read_config('', asked))))
    source = training_source(saved_config(tmp_path))
    found = {task.id: task for level in (1, 2, 3) for n in range(30)
             for task in [source('tau2', level, n)]}  # fmt: skip
    assert len(found) == 63 and {split_of(task.entity) for task in found.values()} == {'train'}
    task = next(iter(found.values()))
    assert {tool.name for tool in task.tools} == {c.name for c in calls_made(play(task).turns)}


def test_two_rollouts_share_no_world():
    task = base()[0]
    assert [task.solved(play(task)) for _ in range(3)] == [True] * 3
    assert tau2_world.start_world(task.entity).get_db_hash() == task.start().get_db_hash()


def states(world):
    return world.get_db_hash(), world.get_user_db_hash()


def test_no_tool_that_is_called_reading_ever_changed_a_state():
    draws = random.Random(0)
    looking = {'get_details_by_id': {'id': 'L1002'}, 'get_customer_by_id': {'customer_id': 'C1001'}}
    looking |= {'get_customer_by_phone': {'phone_number': '555-123-2002'}}
    looking |= {'get_bills_for_customer': {'customer_id': 'C1001'}}
    looking |= {'get_data_usage': {'customer_id': 'C1001', 'line_id': 'L1002'}}
    looking |= {name: {'app_name': 'messaging'} for name in ('check_app_status',)}
    looking |= {'check_app_permissions': {'app_name': 'messaging'}}
    plain = [n for n, d in tau2_world.documents().items() if not d['parameters']['properties']]
    looking |= {name: {} for name in plain if not tau2_world.changes_state(name)}
    assert len(looking) > 15
    for task in [base()[number] for number in SAMPLE]:
        world = task.start()
        for call in calls_made(play(task).turns):
            before = states(world)
            for name in draws.sample(sorted(looking), 7):
                tau2_world.replay(world, [Call(name, looking[name])])
                assert states(world) == before, name
            tau2_world.replay(world, [call])


def test_the_cache_answers_as_the_tools_do(tmp_path):
    settings = ToolCacheSettings(mode='read_through')
    cache = make_tool_cache(tmp_path / 'cache.sqlite', settings, LIMITS)
    for task in [base()[number] for number in SAMPLE] * 2:
        live, cached = play(task), play(task, live=cache)
        texts = [[r.text for t in e.turns for r in t.results] for e in (live, cached)]
        assert texts[0] == texts[1] and task.solved(cached)
        cache.commit()
    assert cache.live_calls < sum(len(base()[number].subgoals) for number in SAMPLE) * 2
    cache.close()


def test_all_tools_are_offered_where_asked():
    few, every = (
        make_task(tau2_world.entries()[base()[0].entity], 'test', settings)
        for settings in (
            Tau2Settings(distractor_tools=0, policy='none'),
            Tau2Settings(distractor_tools=None, policy='full'),
        )
    )
    assert (len(few.tools), len(every.tools)) == (len({g.name for g in few.tools}), 43)
    assert len(every.messages[0]['content']) > 15_000 > 400 > len(few.messages[0]['content'])


@pytest.mark.parametrize('number', [0, 40, 80])
def test_the_policy_is_cut_to_the_issue(number):
    text = base()[number].messages[0]['content']
    assert 500 < len(text) < 9_000 and '## Path' in text


def test_calls_that_did_not_run_count_for_nothing():
    task = base()[0]
    bad = (ParseError('x', 'y'), Call('toggle_airplane_mode', {'now': 1}), Call('nothing', {}))
    session = live_sessions().open_session(task.id, task.tools, task.start)
    turn = Turn(text='', calls=bad, results=session.answer(bad))
    episode = Episode(task=task, sample=0, step=0, turns=(turn,), termination=Termination.ANSWERED)
    assert (task.score(episode), process_accuracy(episode), task.solved(episode)) == (0, 0, False)
    cut = dataclasses.replace(play(task), termination=Termination.MAX_TURNS)
    assert not task.solved(cut)


@pytest.mark.parametrize('name', ['calculate', 'set_user_info', 'turn_data_on', '__init__', 'db'])
def test_only_documented_tools_can_be_called(name):
    world = tau2_world.start_world(base()[0].entity)
    before = states(world)
    assert 'error' in tau2_world.replay(world, [Call(name, {})])[0] and states(world) == before


@pytest.mark.parametrize(
    'settings', [{'training': 'all'}, {'policy': 'some'}, {'distractor_tools': -1}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match='must be'):
        Tau2Settings(**settings)


def test_a_model_behind_an_endpoint_plays_the_benchmark(tmp_path, monkeypatch):
    gold = iter([
        calls(*(tool_call(c.name, dict(c.arguments)) for c in turn.calls))
        if turn.calls else completion({'content': turn.content})
        for task in tau2_tasks('test')[:1] for turn in play(task).turns
    ])  # fmt: skip
    level = str(tau2_tasks('test')[0].level)
    told = tmp_path / 'told.json'
    with serving(lambda body: next(gold)) as (url, script):
        asked = ['--endpoint', url, '--endpoint-model', 'stub', '--suites', 'tau2', '--tasks', '1']
        asked += ['--levels', level, '--json', str(told), '--tau2.distractor-tools', 'None']
        monkeypatch.setattr(sys, 'argv', ['evaluate.py', *asked])
        evaluate.main()
    numbers = json.loads(told.read_text())['suites']['tau2']
    assert (numbers['success'], numbers['process_accuracy'], numbers['tasks']) == (1, 1, 1)
    assert len(script.asked[0]['tools']) == 43
