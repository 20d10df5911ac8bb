"""Calls are answered in order and in time, whatever a tool does."""

import asyncio
import json
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from cacherl_jax.tools.arguments import fit
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.tool import Call, ParseError, Scope, Status, Tool, Unavailable, tool

ROOT = pathlib.Path(__file__).resolve().parents[1]


@tool
def echo(text: str, times: int = 1, wait_seconds: float = 0) -> str:
    """Says a text."""
    time.sleep(wait_seconds)
    return text * times


@tool(time_limit_seconds=0.1)
def sleeper() -> str:
    """Sleeps for ever."""
    threading.Event().wait()


@tool
async def later(text: str, wait_seconds: float = 0) -> str:
    """Says a text later."""
    await asyncio.sleep(wait_seconds)
    return text


@tool(time_limit_seconds=0.1)
async def blocker() -> str:
    """Blocks the event loop."""
    time.sleep(3)


@tool(scope=Scope.SESSION, changes_state=True)
def push(stack: list, item: int, wait_seconds: float = 0):
    """Puts an item on the stack."""
    time.sleep(wait_seconds)
    stack.append(item)
    return stack


@tool(scope=Scope.SESSION, changes_state=True, time_limit_seconds=0.1)
def push_slowly(stack: list, item: int):
    """Puts an item on the stack, too late."""
    time.sleep(0.3)
    stack.append(item)


def returning(value):
    def give():
        if isinstance(value, BaseException):
            raise value
        return value

    schema = {'type': 'object', 'properties': {}}
    return Tool(name='give', description='Gives.', parameters=schema, function=give)


def answers(calls, tools, **settings):
    session = live_sessions(ExecuteSettings(**settings)).open_session('task', tools, list, 0)
    return session.answer(calls)


def test_results_stand_in_call_order_whatever_finishes_first():
    calls = [
        Call('echo', {'text': 'a', 'wait_seconds': 0.3}),
        Call('later', {'text': 'b', 'wait_seconds': 0.15}),
        Call('echo', {'text': 'c'}),
    ]
    started = time.perf_counter()
    assert [result.text for result in answers(calls, [echo, later])] == ['a', 'b', 'c']
    assert time.perf_counter() - started < 0.45


def test_calls_that_change_the_state_run_in_order():
    calls = [Call('push', {'item': n, 'wait_seconds': 0.02 * (3 - n)}) for n in range(3)]
    assert [result.text for result in answers(calls, [push])] == ['[0]', '[0, 1]', '[0, 1, 2]']


@pytest.mark.parametrize(
    ('call', 'status', 'told'),
    [
        (Call('nope', {}), Status.UNKNOWN_TOOL, {'name': 'nope', 'allowed': ['echo']}),
        (ParseError('no bracket', '{'), Status.PARSE_ERROR, {'reason': 'no bracket'}),
        (Call('echo', {}), Status.BAD_ARGUMENTS, {'argument': 'text', 'got': 'nothing'}),
        (Call('echo', {'text': 3}), Status.BAD_ARGUMENTS, {'expected': 'string', 'got': 3}),
        (Call('echo', {'txt': 'a'}), Status.BAD_ARGUMENTS, {'argument': 'txt'}),
        (Call('echo', '{"text": "a"}'), Status.BAD_ARGUMENTS, {'got': 'str'}),
        (Call('echo', {'text': 'a', 'times': 10**5000}), Status.BAD_ARGUMENTS, {}),
        (Call(['echo'], {}), Status.UNKNOWN_TOOL, {'allowed': ['echo']}),
        (Call('echo', None), Status.BAD_ARGUMENTS, {'got': 'NoneType'}),
        (Call('echo', {'text': '\ud800'}), Status.BAD_ARGUMENTS, {'expected': 'valid Unicode'}),
        (
            Call('echo', {'text': 'a', 'wait_seconds': float('nan')}),
            Status.BAD_ARGUMENTS,
            {'expected': 'finite numbers'},
        ),
    ],
)
def test_a_models_mistake_is_told_and_nothing_runs(call, status, told):
    sessions = live_sessions()
    (result,) = sessions.open_session('task', [echo], list, 0).answer([call])
    said = json.loads(result.text)
    assert (result.status, said['error']) == (status, str(status))
    assert told.items() <= said.items()
    assert sessions.live_calls == 0


@pytest.mark.parametrize(
    ('value', 'status', 'text'),
    [
        ({'é': [1, None]}, Status.OK, '{"é": [1, null]}'),
        ('error 500', Status.OK, 'error 500'),
        (b'\xff', Status.OK, '\ufffd'),
        ({3, 1}, Status.OK, '[1, 3]'),
        (
            ValueError('no'),
            Status.TOOL_ERROR,
            '{"error": "tool_error", "message": "ValueError: no"}',
        ),
        (SystemExit(1), Status.TOOL_ERROR, '{"error": "tool_error", "message": "SystemExit: 1"}'),
        (TimeoutError(), Status.TIMEOUT, '{"error": "timeout", "message": "TimeoutError"}'),
        (ConnectionError('x'), Status.UNAVAILABLE, None),
        (Unavailable('x'), Status.UNAVAILABLE, None),
    ],
)
def test_the_status_follows_from_the_outcome_and_not_from_its_words(value, status, text):
    (result,) = answers([Call('give', {})], [returning(value)])
    assert result.status is status
    assert text in (None, result.text)


def test_a_tool_that_hangs_is_left_behind_and_the_next_call_runs():
    calls = [Call('sleeper', {}), Call('blocker', {}), Call('echo', {'text': 'a'})]
    session = live_sessions().open_session('task', [sleeper, blocker, echo, later], list, 0)
    statuses = [result.status for result in session.answer(calls)]
    assert statuses == [Status.TIMEOUT, Status.TIMEOUT, Status.OK]
    assert session.answer([Call('later', {'text': 'b'})])[0].text == 'b'


def test_a_late_call_leaves_no_mark_on_the_state():
    session = live_sessions().open_session('task', [push, push_slowly], list, 0)
    first = session.answer([Call('push', {'item': 1}), Call('push_slowly', {'item': 2})])
    assert first[1].status is Status.TIMEOUT
    time.sleep(0.4)
    assert session.answer([Call('push', {'item': 3})])[0].text == '[1, 3]'


def test_retries_stop_at_the_total_budget():
    settings = {'retries': 100, 'backoff_seconds': 0.01, 'budget_seconds': 0.35}
    started = time.perf_counter()
    (result,) = answers([Call('sleeper', {})], [sleeper], **settings)
    assert result.status is Status.TIMEOUT
    assert time.perf_counter() - started < 0.8


@pytest.mark.parametrize(('retries', 'status'), [(1, Status.UNAVAILABLE), (2, Status.OK)])
def test_a_transient_failure_is_tried_again_as_often_as_configured(retries, status):
    failures = iter([Unavailable(), ConnectionError()])

    def flaky():
        for failure in failures:
            raise failure
        return 'fine'

    schema = {'type': 'object', 'properties': {}}
    flaky_tool = Tool(name='flaky', description='x', parameters=schema, function=flaky)
    (result,) = answers([Call('flaky', {})], [flaky_tool], retries=retries, backoff_seconds=0)
    assert result.status is status


def test_more_calls_than_allowed_are_over_budget_and_do_not_run():
    results = answers([Call('echo', {'text': 'a'})] * 3, [echo], calls_per_turn=2)
    assert [result.status for result in results] == [Status.OK, Status.OK, Status.OVER_BUDGET]
    assert json.loads(results[2].text)['allowed_calls'] == 2


def test_an_overlong_result_is_cut_and_says_so():
    call = Call('echo', {'text': 'é', 'times': 1000})
    (result,) = answers([call], [echo], result_characters=100)
    assert len(result.text) == 100
    assert result.text.endswith('...[cut: 1000 characters in all]')


def test_fitting_twice_changes_nothing_and_fills_in_defaults():
    once = fit(echo, {'times': 2.0, 'text': 'e\u0301'})
    assert once == {'text': 'é', 'times': 2, 'wait_seconds': 0}
    assert list(once) == sorted(once)
    assert fit(echo, once) == once


def test_a_closed_session_answers_nothing():
    session = live_sessions().open_session('task', [echo], list, 0)
    session.close()
    with pytest.raises(RuntimeError, match='closed'):
        session.answer([])


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match='differ in name'):
        live_sessions().open_session('task', [echo, echo], list, 0)


def test_our_own_mistake_is_raised():
    session = live_sessions().open_session('task', [push, echo], lambda: 1 / 0, 0)
    with pytest.raises(ZeroDivisionError):
        session.answer([Call('push', {'item': 1}), Call('echo', {'text': 'a'})])


@pytest.mark.parametrize('setting', ['time_limit_seconds', 'budget_seconds', 'workers'])
def test_nonsense_settings_are_refused_by_name(setting):
    with pytest.raises(ValueError, match=f'{setting} must be .* got 0'):
        ExecuteSettings(**{setting: 0})


def test_a_sleeping_tool_does_not_hold_up_the_exit():
    program = (
        'import time\n'
        'from cacherl_jax.tools.execute import live_sessions\n'
        'from cacherl_jax.tools.tool import Call, Tool\n'
        'hang = Tool(name="hang", description="x", time_limit_seconds=0.1,\n'
        '            parameters={"type": "object", "properties": {}},\n'
        '            function=lambda: time.sleep(1000))\n'
        'session = live_sessions().open_session("t", [hang], list, 0)\n'
        'print(session.answer([Call("hang", {})])[0].status)\n'
    )
    command = [sys.executable, '-c', program]
    done = subprocess.run(command, capture_output=True, timeout=30, cwd=ROOT)
    assert done.stdout.split() == [b'timeout'], done.stderr
