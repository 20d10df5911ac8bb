"""BFCL tasks: gold is solved and nothing less is, and our verdict is the benchmark's."""

import dataclasses
import importlib
import importlib.util
import random

import pytest

from cacherl_jax.tasks.bfcl import CATEGORIES, BfclSettings, bfcl_tasks, make_task, split_of
from cacherl_jax.tasks.bfcl_score import process_accuracy
from cacherl_jax.tasks.bfcl_world import (
    INSTALL,
    backend,
    changes_state,
    documents,
    entries,
    owner,
    read_call,
    read_rows,
    replay,
)
from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.task import Episode, Termination, Turn
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.tool import Call, ParseError, Status
from cacherl_jax.tools.untold import answer_told

SAMPLE = (0, 7, 16, 57, 99, 104, 141, 153, 160, 197)

if importlib.util.find_spec('bfcl_eval') is None:
    pytest.skip(f'BFCL is not installed; get it with: {INSTALL}', allow_module_level=True)


def play(task, drop=None, add=None):
    """The expert's episode, without call number `drop` and with `add` before each answer."""
    limits, number = ExecuteSettings(result_characters=10**6), 0
    session, answers, turns = (
        live_sessions(limits).open_session(task.id, task.tools, task.start),
        0,
        [],
    )
    for said in demonstrate(task, lambda calls: ()).turns:
        calls = () if said.calls and number == drop else said.calls
        number += len(said.calls)
        if not said.calls and add:
            calls = (add,)
        results = answer_told(session, calls, task.told(answers), task.tools)
        turns.append(dataclasses.replace(said, calls=calls, results=results))
        answers += bool(said.user)
    ended = Termination.ANSWERED
    return Episode(task=task, sample=0, step=0, turns=tuple(turns), termination=ended)


def gold_size(task):
    return sum(len(said.calls) for said in task.expert())


def check_gold(task):
    episode = play(task)
    assert all(result.status is Status.OK for turn in episode.turns for result in turn.results)
    assert task.solved(episode) and task.score(episode) == process_accuracy(episode) == 1
    assert all(goal.reached(episode.turns) for goal in task.subgoals)
    short = play(task, drop=gold_size(task) - 1)
    assert not task.solved(short) and task.score(short) < 1 and process_accuracy(short) < 1
    assert not all(goal.reached(short.turns) for goal in task.subgoals)


@pytest.mark.parametrize('category', CATEGORIES)
def test_the_expert_plays_to_the_last_request(category):
    for task in bfcl_tasks('train', BfclSettings(category=category))[:9]:
        session = live_sessions().open_session(task.id, task.tools, task.start)
        episode = demonstrate(task, session.answer)
        assert tuple(turn.user for turn in episode.turns if turn.user) == task.follow_ups
        assert task.solved(episode)


def test_a_function_told_of_later_is_unknown_until_then():
    task = make_task(entries('miss_func')[0])
    session = live_sessions().open_session(task.id, task.tools, task.start)
    calls = (Call('sort', {'file_name': 'x'}), Call('no_such', {}), Call('ls', {}))
    for answers in range(3):
        results = answer_told(session, calls, task.told(answers), task.tools)
        assert [each.status for each in results] == [Status.UNKNOWN_TOOL] * 2 + [Status.OK]
        assert 'sort' not in results[1].text and '"ls"' in results[0].text
    status = answer_told(session, calls, task.told(3), task.tools)[0].status
    assert status in (Status.OK, Status.TOOL_ERROR)
    assert '"sort"' in task.follow_ups[2] and '"sort"' not in ' '.join(task.follow_ups[:2])


def test_every_task_that_withholds_a_function_offers_it_in_the_end():
    for task in (make_task(entry) for entry in entries('miss_func')):
        assert len(task.told()) < len(task.tools) == len(task.told(len(task.follow_ups)))
        assert all(task.follow_ups)


@pytest.mark.parametrize('number', SAMPLE)
def test_gold_is_solved_and_gold_without_its_last_call_is_not(number):
    check_gold(make_task(entries('base')[number]))


@pytest.mark.slow
@pytest.mark.parametrize('category', CATEGORIES)
def test_all_gold_is_solved_and_none_without_its_last_call(category):
    for entry in entries(category):
        check_gold(make_task(entry))


@pytest.mark.parametrize('drop', [None, 0, 1, 2, 3])
def test_our_verdict_is_the_benchmark_s(drop):
    checker = importlib.import_module('bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker')
    rows = read_rows('BFCL_v4_multi_turn_base.json')
    golds = read_rows('possible_answer/BFCL_v4_multi_turn_base.json')
    for number in SAMPLE:
        gold, count = golds[number]['ground_truth'], 0
        texts = [[] for _ in gold]  # the package's own text: nothing of a model's is evaluated
        for place, turn in enumerate(gold):
            for text in turn:
                texts[place] += [[text]] if count != drop else []
                count += 1
        theirs = checker.multi_turn_checker(
            texts, gold, rows[number], 'multi_turn_base', f'verdict_{drop}'
        )
        task = make_task(entries('base')[number])
        assert task.solved(play(task, drop=drop)) == theirs['valid'], (number, theirs)


def test_two_rollouts_share_no_world():
    task = make_task(entries('base')[0])
    assert [task.solved(play(task)) for _ in range(3)] == [True] * 3


@pytest.mark.parametrize('name', ['_load_scenario', '__init__', 'eval', 'no_such'])
def test_only_documented_functions_can_be_called(name):
    entry = entries('base')[0]
    assert name not in {tool.name for tool in make_task(entry).tools}
    assert replay(entry.start(), [Call(name, {})]) == [f'no function {name}']


@pytest.mark.parametrize('text', ['cd', 'cd(folder=open("x"))', 'os.system("x")', 'eval("1")'])
def test_gold_that_is_no_plain_call_is_refused(text):
    with pytest.raises(ValueError):
        read_call(text, ['GorillaFileSystem'])


def test_positional_arguments_get_their_names():
    assert read_call("sort('a.pdf')", ['GorillaFileSystem']).arguments == {'file_name': 'a.pdf'}


def snapshot(value, seen):
    """All of a service's state, private parts and random generators too, but no clock."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, dict):
        return [(key, snapshot(part, seen)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [snapshot(part, seen) for part in value]
    if not hasattr(value, '__dict__') or id(value) in seen:
        return seen.get(id(value), value)
    seen[id(value)] = len(seen)
    return [(key, snapshot(part, seen)) for key, part in vars(value).items() if 'modif' not in key]


@pytest.mark.parametrize('category', CATEGORIES)
def test_no_tool_that_is_called_reading_ever_changed_a_state(category):
    for entry in entries(category):
        world = entry.start()
        before = snapshot(world, {})
        for call in (call for calls in entry.gold for call in calls):
            replay(world, [call])
            after = snapshot(world, {})
            assert before == after or changes_state(owner(call.name, entry.services), call.name)
            before = after


def test_fewer_than_half_of_the_tools_are_taken_to_change_state():
    services = list(backend().MULTI_TURN_FUNC_DOC_FILE_MAPPING)[:8]
    every = [(service, name) for service in services for name in documents(service)]
    assert len(every) == 128 and sum(changes_state(*each) for each in every) == 60
    assert changes_state('GorillaFileSystem', 'cd')  # nothing but a private attribute changes
    assert not changes_state('GorillaFileSystem', 'cat')


def test_no_number_stands_in_two_splits():
    numbers = {}
    for category in CATEGORIES:
        for split in ('train', 'validation', 'test'):
            tasks = bfcl_tasks(split, BfclSettings(category=category))
            numbers.setdefault(split, set()).update(task.entity for task in tasks)
    assert [len(each) for each in numbers.values()] == [140, 20, 40]
    assert not set.intersection(*numbers.values()) and split_of(19) == 'test'


def test_spam_and_repetition_lower_the_score_and_leave_process_accuracy():
    task = make_task(entries('base')[0])
    busy = play(task, add=Call('ls', {}))
    assert 0.5 < task.score(busy) < 0.9 and process_accuracy(busy) == 1


def test_a_wrong_argument_earns_a_part():
    task = make_task(entries('base')[0])
    episode = play(task)
    first = episode.turns[0]
    wrong = dataclasses.replace(first, calls=(Call('cd', {'folder': 'elsewhere'}),))
    changed = dataclasses.replace(episode, turns=(wrong, *episode.turns[1:]))
    dropped = play(task, drop=0)
    assert task.score(dropped) < task.score(changed) < 1
    assert not task.solved(changed)


def test_calls_that_did_not_run_count_for_nothing():
    task = make_task(entries('base')[0])
    bad = (ParseError('x', 'y'), Call('cd', {}), Call('nothing', {'a': 1}))
    session = live_sessions().open_session(task.id, task.tools, task.start)
    turn = Turn(text='', calls=bad, results=session.answer(bad))
    episode = Episode(task=task, sample=0, step=0, turns=(turn,), termination=Termination.ANSWERED)
    assert (task.score(episode), process_accuracy(episode), task.solved(episode)) == (0, 0, False)


def test_an_episode_that_was_cut_is_not_solved():
    task = make_task(entries('base')[0])
    cut = dataclasses.replace(play(task), termination=Termination.MAX_TURNS)
    assert not task.solved(cut)


def test_few_distractors_make_few_tools_and_none_makes_all():
    entry = entries('base')[0]
    sizes = [
        len(make_task(entry, BfclSettings(distractor_tools=count)).tools) for count in (0, 4, None)
    ]
    needed = {call.name for calls in entry.gold for call in calls}
    everything = sum(len(documents(service)) for service in entry.services)
    assert sizes == [len(needed), len(needed) + 4, everything - len(entry.excluded)]


@pytest.mark.parametrize('settings', [{'category': 'missing'}, {'distractor_tools': -1}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match='must be'):
        BfclSettings(**settings)
