"""Laws of the one client of chat endpoints: total times, what is tried again, what is never told.

What each of its three users makes of a reply stands with the judge, the evaluation and the teacher.
"""

import contextlib
import itertools
import json
import pathlib
import socket
import threading
import time

import pytest
from expert_endpoint import calls, completion, tool_call
from judge_server import drip, says, serving

from cacherl_jax.chat.completion import RawCall, read_reply
from cacherl_jax.chat.endpoint import (
    MOST_BYTES,
    ContextFull,
    EndpointError,
    EndpointSettings,
    Passing,
    Unanswered,
    complete,
    complete_once,
    read_key,
)
from cacherl_jax.evaluate.chat_endpoint import ChatEndpoint
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.rewards.llm_judge import LlmJudge, LlmJudgeSettings
from cacherl_jax.supervised.endpoint import EndpointSettings as TeacherSettings
from cacherl_jax.supervised.endpoint import endpoint_teacher

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / 'cacherl_jax'
HELLO = [{'role': 'user', 'content': 'Grüezi'}]
KEY = 'sk-of-a-"test"'


def settings(url='http://127.0.0.1:1/v1', **changed):
    known = {'model': 'm', 'first_wait_seconds': 0.01, 'attempt_seconds': 2.0}
    return EndpointSettings(url=url, **(known | changed))


def asked(url, seconds=2.0, **changed):
    return complete(settings(url, **changed), HELLO, deadline=time.monotonic() + seconds)


def test_what_is_asked_is_sent_as_it_is():
    tools = [{'type': 'function', 'function': {'name': 'look'}}]
    with serving(lambda body: says('Hi.')) as (url, told):
        complete_once(settings(url, max_tokens=7), HELLO, tools, temperature=0.5, seed=3)
        assert asked(f'{url}/').content == 'Hi.'
    first, second = told.asked
    assert first.pop('tools') == tools and 'tools' not in second
    same = {'model': 'm', 'messages': HELLO, 'stream': False}
    assert first == same | {'max_tokens': 7, 'temperature': 0.5, 'seed': 3}
    assert 'Authorization' not in told.headers[0]


def test_a_reply_is_read_whole():
    thought = {'content': None, 'reasoning_content': 'Hm.'}
    made = [tool_call('look', {'at': 'Zürich'}, 'a'), tool_call('leap', '{"h', 'b')]
    _, body = completion(thought | {'tool_calls': made}, 'length')
    reply = read_reply(body.encode())
    assert (reply.content, reply.thinking, reply.cut) == ('', 'Hm.', True)
    assert reply.calls[1] == RawCall(id='b', name='leap', arguments='{"h')
    assert json.loads(reply.calls[0].arguments) == {'at': 'Zürich'}
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)


@pytest.mark.parametrize(
    'body',
    [
        b'<html>',
        b'\xff',
        b'[]',
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": "", "tool_calls": [{}]}}]}',
        b'{"choices": [{"message": {"content": ""}}], "choices": [{"message": {"content": "x"}}]}',
    ],
)
def test_what_is_no_completion_is_never_half_read(body):
    with pytest.raises(ValueError, match='no chat completion'):
        read_reply(body)


@pytest.mark.parametrize('status', [408, 409, 425, 429, 500, 502, 520, 529])
def test_what_may_pass_is_tried_again_or_told_to_who_counts(status):
    replies = itertools.chain([(status, 'busy')] * 2, itertools.repeat(says('Hi.')))
    with serving(lambda body: next(replies)) as (url, told):
        with pytest.raises(Passing, match=str(status)):
            complete_once(settings(url), HELLO)
        assert asked(url).content == 'Hi.' and len(told.asked) == 3


FULL = json.dumps({'error': {'code': 'context_length_exceeded'}})


@pytest.mark.parametrize(
    ('status', 'said', 'error'),
    [(400, '', Unanswered), (413, '', Unanswered), (422, '', Unanswered), (400, FULL, ContextFull)]
    + [(status, '', EndpointError) for status in (301, 302, 401, 402, 403, 404, 405, 415)],
)
def test_what_lasts_is_said_at_once(status, said, error):
    refusal = pytest.raises(error, match=f'status {status}')
    with serving(lambda body: (status, said)) as (url, told), refusal as raised:
        asked(url)
    assert type(raised.value) is error and len(told.asked) == 1


def test_a_server_is_left_alone_for_as_long_as_it_asks():
    busy = itertools.chain([(429, '', {'Retry-After': '1'})], itertools.repeat(says('Hi.')))
    with serving(lambda body: next(busy)) as (url, _):
        started = time.monotonic()
        assert asked(url, seconds=20).content == 'Hi.'
        assert time.monotonic() - started >= 1
    with serving(lambda body: (429, '', {'Retry-After': '3600'})) as (url, told):
        with pytest.raises(Unanswered, match='429'):
            asked(url, seconds=20)
        assert len(told.asked) == 1 and time.monotonic() - started < 15


def one_that_never_ends_its_headers():
    """A server that sends a header now and then, for as long as anybody listens."""
    listening = socket.create_server(('127.0.0.1', 0))

    def serve():
        heard, _ = listening.accept()
        with heard, contextlib.suppress(OSError):  # the client leaves
            heard.sendall(b'HTTP/1.1 200 OK\r\n')
            for number in range(100):
                time.sleep(0.05)
                heard.sendall(f'X-{number}: more\r\n'.encode())

    threading.Thread(target=serve, daemon=True).start()
    return listening


def test_no_way_of_being_slow_outlasts_an_attempt():
    started = time.monotonic()
    late = pytest.raises(Unanswered)
    with one_that_never_ends_its_headers() as listening, late:
        asked(f'http://127.0.0.1:{listening.getsockname()[1]}/v1', seconds=0.5)
    for status in (200, 503):
        with serving(lambda body, status=status: (status, drip(5))) as (url, _), late:
            asked(url, seconds=0.5)
    assert time.monotonic() - started < 4


def test_a_reply_without_end_is_given_up():
    endless = json.dumps({'choices': [{'message': {'content': 'x' * MOST_BYTES}}]})
    refusal = pytest.raises(Passing, match='more than')
    with serving(lambda body: (200, endless)) as (url, _), refusal:
        complete_once(settings(url, attempt_seconds=20.0), HELLO)


def test_no_server_and_no_time_are_no_reply():
    with serving(lambda body: says('Hi.')) as (url, told):
        with pytest.raises(Unanswered, match='no time left'):
            asked(url, seconds=-1)
        assert not told.asked
    with pytest.raises(Passing, match='ConnectionRefusedError'):
        complete_once(settings(url), HELLO)


@pytest.mark.parametrize('status', [302, 400, 401, 503])
@pytest.mark.parametrize('write', [str, json.dumps], ids=['plain', 'as JSON'])
def test_no_error_tells_the_key(status, write, monkeypatch, caplog, capfd):
    monkeypatch.setenv('SOME_KEY', KEY)
    caplog.set_level('DEBUG')
    refusal = pytest.raises((Unanswered, EndpointError))
    with serving(lambda body: (status, f'wrong: {write(KEY)}')) as (url, told), refusal as raised:
        complete_once(settings(url, key_variable='SOME_KEY'), HELLO)
    assert told.headers[0]['Authorization'] == f'Bearer {KEY}'
    shown = capfd.readouterr()
    everything = [repr(raised.value), caplog.text, shown.out, shown.err]
    assert not any('sk-of' in text for text in everything) and '***' in everything[0]


@pytest.mark.parametrize('key', ['a\nb', 'schlüssel', ''])
def test_what_is_no_key_is_not_sent(key, monkeypatch):
    monkeypatch.setenv('SOME_KEY', key)
    with pytest.raises(ValueError, match='SOME_KEY') as raised:
        complete(settings(key_variable='SOME_KEY'), HELLO, deadline=time.monotonic() + 1)
    assert not key or key not in str(raised.value)


def judge(url, key):
    """The three clients, each as its own room makes it."""
    where = EndpointSettings(url=url, model='m', key_variable=key)
    return LlmJudge(LlmJudgeSettings(endpoint=where, cache=pathlib.Path(':memory:')))


def agent(url, key):
    where = EndpointSettings(url=url, model='m', key_variable=key)
    return ChatEndpoint(where, SamplingSettings())


def teacher(url, key):
    return endpoint_teacher(TeacherSettings(url=url, model='m', key_variable=key))


@pytest.mark.parametrize('client', [judge, agent, teacher])
def test_no_client_sends_a_key_through_the_open(client, monkeypatch):
    monkeypatch.setenv('SOME_KEY', KEY)
    for url in ('http://example.org/v1', 'http://10.0.0.7:8000/v1', 'http://127.0.0.1.org/v1'):
        with pytest.raises(ValueError, match='unencrypted'):
            client(url, 'SOME_KEY')
        client(url, '')
    for url in ('https://example.org/v1', 'http://localhost/v1', 'http://[::1]:80/v1'):
        client(url, 'SOME_KEY')


@pytest.mark.parametrize('client', [judge, agent, teacher])
def test_every_client_misses_its_key_at_the_start(client, monkeypatch):
    monkeypatch.delenv('SOME_KEY', raising=False)
    with pytest.raises(ValueError, match='SOME_KEY is not set'):
        client('http://127.0.0.1:1/v1', 'SOME_KEY')


def test_a_key_is_wanted_only_where_it_is_named(monkeypatch):
    monkeypatch.setenv('OPENAI_API_KEY', KEY)
    assert read_key(settings()) == ''
    assert read_key(settings(key_variable='OPENAI_API_KEY')) == KEY


@pytest.mark.parametrize(
    'url',
    [
        '',
        'host/v1',
        'ftp://host/v1',
        'http://',
        'http://[x',
        'http://host:port/v1',
        'http://me:secret@host/v1',
        'me:secret@host/v1',
        'https://host/v1?key=secret',
        'https://host/v1#secret',
    ],
)
def test_an_address_that_cannot_be_asked_is_refused_without_its_secrets(url):
    with pytest.raises(ValueError, match='url must begin with') as raised:
        settings(url)
    assert 'secret' not in str(raised.value)


@pytest.mark.parametrize(
    ('changed', 'why'),
    [
        ({'model': ''}, 'model must name'),
        ({'attempt_seconds': 0}, 'attempt_seconds must be above 0, got 0'),
        ({'first_wait_seconds': float('nan')}, 'first_wait_seconds must be above 0, got nan'),
        ({'max_tokens': 0}, 'max_tokens must be at least 1, got 0'),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed, why):
    with pytest.raises(ValueError, match=why):
        settings(**changed)


def test_tools_may_be_called_and_nothing_said():
    with serving(lambda body: calls(tool_call('look', {}))) as (url, _):
        reply = asked(url)
    assert reply.content == '' and [call.name for call in reply.calls] == ['look']


def test_one_module_speaks_to_endpoints():
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob('*.py')
        if any(
            word in path.read_text() for word in ('chat/completions', 'urllib.request', 'openai.')
        )
    }
    assert users == {'chat/endpoint.py'}
