"""A model behind an endpoint: the same episodes as a rollout's, whatever the server does."""

import dataclasses
import itertools
import json
import sys

import pytest
from evaluate_episodes import task
from expert_endpoint import Experts, calls, completion, tool_call
from judge_server import drip, serving

from cacherl_jax.chat.endpoint import EndpointError, EndpointSettings
from cacherl_jax.compose.agent import demonstrations
from cacherl_jax.evaluate.chat_endpoint import PATIENCE, ChatEndpoint
from cacherl_jax.evaluate.cost import tasks_hash
from cacherl_jax.evaluate.endpoint_play import play_endpoint
from cacherl_jax.evaluate.metrics import evaluation_metrics
from cacherl_jax.evaluate.record import read_records
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import ParseError, Status
from experiments import evaluate

TASKS = [task for suite in SUITES for task in draw(suite, 'test', 1, 2)]
TRIP = TASKS[2]


def play(url, tasks=(TRIP,), samples=1, workers=3, budget=20.0, key='', **limits):
    settings = EndpointSettings(
        url=url, model='stub', key_variable=key, first_wait_seconds=0.01, attempt_seconds=2.0
    )
    endpoint = ChatEndpoint(settings, SamplingSettings(temperature=0.0), budget)
    rollout = RolloutSettings(samples=samples, **limits)
    episodes = play_endpoint(endpoint, tasks, live_sessions().open_session, rollout, workers)
    return episodes, endpoint


def said(*replies):
    """A script that gives these replies one after the other, and then an answer."""
    waiting = iter(replies)
    return lambda body: next(waiting, completion({'content': 'I give up.'}))


def end_of(script, **options):
    """The one episode that a script makes, and what the endpoint was asked."""
    with serving(script) as (url, told):
        (played,), _ = play(url, **options)
    return played, told.asked


def test_experts_behind_an_endpoint_solve_every_task_as_they_do_here():
    with serving(Experts(TASKS)) as (url, told):
        episodes, endpoint = play(url, TASKS)
    here = demonstrations(TASKS, live_sessions())
    for there, own in zip(episodes, here, strict=True):
        assert there.task.solved(there) and there.termination is Termination.ANSWERED
        assert [t.calls for t in there.turns] == [t.calls for t in own.turns]
        texts = [[r.text for t in e.turns for r in t.results] for e in (there, own)]
        assert texts[0] == texts[1] and there.answer == own.answer
    assert {n['success'] for n in evaluation_metrics(episodes).values()} == {1.0}
    assert endpoint.usage['replies'] == len(told.asked)
    assert endpoint.usage['completion_tokens'] == 3 * len(told.asked)


def test_attempts_come_back_group_major_whoever_finishes_first():
    with serving(Experts(TASKS)) as (url, _):
        episodes, _ = play(url, TASKS, samples=3, workers=7)
    order = [(e.task.id, e.sample) for e in episodes]
    assert order == list(itertools.product([t.id for t in TASKS], range(3)))


def test_a_failure_that_passes_leaves_no_trace():
    experts, count = Experts(TASKS), itertools.count()
    rough = [(503, ''), (429, '', {'Retry-After': '0'}), (200, '<html>'), (200, '{"choices": []}')]

    def script(body):
        number = next(count)
        return rough[number // 2 % 4] if number % 2 else experts(body)

    with serving(script) as (url, _):
        episodes, endpoint = play(url, TASKS, workers=1)
    assert all(e.task.solved(e) for e in episodes) and not endpoint.usage['unanswered']


def test_results_are_sent_back_under_the_ids_of_their_calls():
    made = [tool_call('get_weather', {}, 'b'), tool_call('nothing', {}, 'a')]
    _, asked = end_of(said(calls(*made)))
    _, told, first, second = asked[1]['messages']
    assert [c['id'] for c in told['tool_calls']] == ['b', 'a'] and told['content'] is None
    assert (first['tool_call_id'], second['tool_call_id']) == ('b', 'a')
    assert 'nothing' in second['content'] and asked[0]['tools'] == asked[1]['tools']


def test_calls_without_an_id_get_one_each():
    made = [tool_call('one', {}, ''), tool_call('two', {}, '')]
    _, asked = end_of(said(calls(*made)))
    ids = [c['id'] for c in asked[1]['messages'][1]['tool_calls']]
    assert len(set(ids)) == 2 and all(ids)
    assert [m['tool_call_id'] for m in asked[1]['messages'][2:]] == ids


@pytest.mark.parametrize('text', ['{"a": 1', '[1]', '{} {}', 'NaN', '"{}"', '{"a": 1, "a": 2}'])
def test_arguments_that_are_no_object_run_nothing(text):
    played, asked = end_of(said(calls(tool_call('x', text))))
    (broken,), (told,) = played.turns[0].calls, played.turns[0].results
    assert isinstance(broken, ParseError) and told.status is Status.PARSE_ERROR
    back = asked[1]['messages'][1]['tool_calls'][0]['function']['arguments']
    assert json.loads(back) == {'unreadable': text}


def test_a_call_in_the_text_is_no_answer():
    text = '<think>Hm.</think><tool_call>\n{"name": "x", "arguments": {}}\n</tool_call>'
    played, asked = end_of(said(completion({'content': text})))
    assert played.turns[0].results[0].status is Status.PARSE_ERROR and len(played.turns) == 2
    assert asked[1]['messages'][-1]['role'] == 'user' and played.turns[0].thinking == 'Hm.'


def test_thinking_stays_out_of_the_answer_and_of_what_is_sent_back():
    thought = {'content': '', 'reasoning_content': 'secret', 'tool_calls': [tool_call('x', {})]}
    played, asked = end_of(said(completion(thought), completion({'content': '<think>s</think>A'})))
    assert played.turns[0].thinking == 'secret' and played.answer == 'A'
    assert 'secret' not in json.dumps(asked)


def test_follow_ups_are_asked_after_each_answer():
    many = task()
    object.__setattr__(many, 'follow_ups', ('And back?', 'Thanks.'))
    script = said(*[completion({'content': f'At {n}.'}) for n in range(7)])
    played, asked = end_of(script, tasks=(many,))
    assert [t.user for t in played.turns] == ['And back?', 'Thanks.', '']
    assert played.answer == 'At 2.' and len(asked) == 3
    assert asked[2]['messages'][-1] == {'role': 'user', 'content': 'Thanks.'}


def test_a_tool_told_of_later_is_offered_and_answered_from_then_on():
    late = task()
    name = late.tools[0].name
    late = dataclasses.replace(late, follow_ups=('Now?',), later={name: 1})
    call = calls(tool_call(name, {}))
    played, asked = end_of(
        said(call, completion({'content': 'No.'}), call, completion({'content': 'Yes.'})),
        tasks=(late,),
    )
    offered = [name in [t['function']['name'] for t in body['tools']] for body in asked]
    statuses = [turn.results[0].status for turn in played.turns if turn.calls]
    assert offered == [False, False, True, True]
    assert statuses[0] is Status.UNKNOWN_TOOL and statuses[1] is not Status.UNKNOWN_TOOL


LOOK = calls(tool_call('nothing', {}))
BROKEN = calls(tool_call('x', '{'))
FULL = (400, json.dumps({'error': {'code': 'context_length_exceeded', 'message': 'long'}}))


@pytest.mark.parametrize(
    ('replies', 'why', 'turns'),
    [
        ([LOOK] * 9, Termination.MAX_TURNS, 4),
        ([BROKEN, LOOK, BROKEN, BROKEN], Termination.PARSE_FAILURES, 4),
        ([LOOK, completion({'content': 'The answ'}, 'length')], Termination.MAX_TOKENS, 2),
        ([LOOK, FULL], Termination.CONTEXT_FULL, 1),
        ([LOOK, (422, 'what?')], Termination.TOOL_INFRASTRUCTURE, 1),
    ],
)
def test_every_episode_ends_for_one_reason(replies, why, turns):
    played, _ = end_of(said(*replies), max_turns=4)
    assert (played.termination, len(played.turns)) == (why, turns)


def test_a_message_that_was_cut_runs_nothing():
    made = {'content': None, 'tool_calls': [tool_call('get_weather', {})]}
    played, _ = end_of(said(completion(made, 'length')))
    assert played.turns[0].results == () and not played.turns[0].ended


def test_silence_spoils_an_episode_and_is_counted():
    with serving(lambda body: (503, '')) as (url, _):
        episodes, endpoint = play(url, samples=2, budget=0.3, workers=2)
    numbers = evaluation_metrics(episodes)['trip']
    assert (numbers['infrastructure'], numbers['success']) == (2, None)
    assert endpoint.usage['unanswered'] == 2


def test_an_endpoint_that_never_answers_is_given_up():
    refusal = pytest.raises(EndpointError, match='in a row had no reply.*temperature')
    with serving(lambda body: (400, 'no parameter temperature')) as (url, _), refusal:
        play(url, samples=PATIENCE, workers=2)


def test_a_server_that_drips_is_left():
    with serving(lambda body: (200, drip(30))) as (url, _):
        (played,), _ = play(url, budget=1.0)
    assert played.termination is Termination.TOOL_INFRASTRUCTURE


@pytest.mark.parametrize('status', [401, 404, 302])
def test_a_key_is_never_shown_and_follows_no_redirect(status, monkeypatch):
    monkeypatch.setenv('STUB_KEY', 'sk-secret')
    with serving(lambda body: (500, '')) as (elsewhere, other):
        reply = (status, 'bad key sk-secret', {'Location': elsewhere})
        with serving(lambda body: reply) as (url, told), pytest.raises(EndpointError) as error:
            play(url, key='STUB_KEY')
    assert told.headers[0]['Authorization'] == 'Bearer sk-secret' and not other.asked
    assert 'sk-secret' not in str(error.value) and 'sk-secret' not in json.dumps(told.asked)


def test_a_key_travels_encrypted_or_stays(monkeypatch):
    monkeypatch.setenv('STUB_KEY', 'sk-secret')
    settings = EndpointSettings(url='http://example.org/v1', model='m', key_variable='STUB_KEY')
    with pytest.raises(ValueError, match='unencrypted'):
        ChatEndpoint(settings, SamplingSettings())
    monkeypatch.delenv('STUB_KEY')
    with pytest.raises(ValueError, match='STUB_KEY is not set'):
        play('http://127.0.0.1:1/v1', key='STUB_KEY')


def asked_of_the_same(count):
    return tasks_hash([task for suite in SUITES for task in draw(suite, 'test', 1, count)])


def test_what_was_asked_has_a_mark_of_its_own():
    assert asked_of_the_same(3) == asked_of_the_same(3) != asked_of_the_same(2)


def test_the_command_measures_an_endpoint_as_it_does_a_model(tmp_path, monkeypatch, capfd):
    with serving(Experts([t for suite in SUITES for t in draw(suite, 'test', 1, 3)])) as (url, _):
        asked = ['--endpoint', url, '--endpoint-model', 'stub', '--levels', '1', '--tasks', '3']
        asked += ['--json', str(tmp_path / 'told.json'), '--episodes', str(tmp_path / 'e.jsonl')]
        asked += ['--endpoint-price', '2', '10']
        monkeypatch.setattr(sys, 'argv', ['evaluate.py', *asked])
        evaluate.main()
    told = json.loads((tmp_path / 'told.json').read_text())
    assert [numbers['success'] for numbers in told['suites'].values()] == [1.0] * 3
    assert [numbers['process_accuracy'] for numbers in told['suites'].values()] == [1.0] * 3
    assert told['cost']['live_calls'] > 9 and not told['cost']['calls_saved']
    used = told['usage']
    price = (2 * used['prompt_tokens'] + 10 * used['completion_tokens']) / 1e6
    assert used['price'] == pytest.approx(price) and price > 0
    assert told['hashes']['model'] is None and told['hashes']['tasks'] == asked_of_the_same(3)
    assert told['usage']['replies'] > 9 and 'unanswered 0' in capfd.readouterr().out
    records = read_records(tmp_path / 'e.jsonl')
    assert len(records) == 9 and {record['stage'] for record in records} == {'evaluate'}


@pytest.mark.parametrize(
    'wrong',
    [
        {},
        {'endpoint': 'https://example.org/v1'},
        {'model': 'base', 'endpoint_model': 'x'},
        {'endpoint': 'u', 'endpoint_model': 'x', 'sampling': SamplingSettings(top_k=3)},
    ],
)
def test_half_an_endpoint_is_refused(wrong):
    with pytest.raises(ValueError, match='endpoint'):
        evaluate.EvaluateSettings(**wrong)
