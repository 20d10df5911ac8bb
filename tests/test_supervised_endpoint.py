"""Laws of the teacher behind an endpoint: what is sent, what is made of answers, what is hidden.

The server is a real one on loopback that speaks the chat completions protocol.
"""

import contextlib
import http.server
import json
import threading

import pytest
import tenacity

from cacherl_jax.chat.template import call_message, tool_message
from cacherl_jax.supervised.augment import Budget, NoAnswer, augment
from cacherl_jax.supervised.conversations import Conversation
from cacherl_jax.supervised.endpoint import EndpointSettings, endpoint_teacher
from cacherl_jax.supervised.thinking import questions

LOOK = {'name': 'look', 'description': 'Look.', 'parameters': {'type': 'object', 'properties': {}}}
TOLD = Conversation(
    messages=(
        {'role': 'user', 'content': 'Where is Zürich?'},
        call_message('', [('look', {'at': 'Zürich'})]),
        tool_message('look', 'FUTURE'),
        {'role': 'assistant', 'content': 'ANSWER'},
    ),
    tools=({'type': 'function', 'function': LOOK},),
)
KEY = 'sk-very-secret'


def answer(text, tokens=7):
    message = {'role': 'assistant', 'content': text}
    choice = {'index': 0, 'finish_reason': 'stop', 'message': message}
    usage = {'prompt_tokens': 1, 'completion_tokens': tokens - 1, 'total_tokens': tokens}
    made = {'id': 'a', 'object': 'chat.completion', 'created': 0, 'model': 'm'}
    return 200, made | {'choices': [choice], 'usage': usage}


@contextlib.contextmanager
def server(*answers):
    """Gives the answers in order, the last for ever; yields its address and what it was sent."""
    waiting, seen = list(answers), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers['Content-Length'])
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append((headers, json.loads(self.rfile.read(length))))
            status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            written = json.dumps(body).encode()
            self.send_response(status)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{running.server_port}/v1', seen
        running.shutdown()


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv('SOME_KEY', KEY)


def teacher(url, **settings):
    return endpoint_teacher(
        EndpointSettings(url=url, model='m', key_variable='SOME_KEY', **settings)
    )


def test_the_teacher_is_sent_the_past_and_the_turn_and_no_future():
    asked = questions(TOLD)
    with server(answer(' <think>Hm.</think>\nI must look. ')) as (url, seen):
        reply = teacher(url, thought_tokens=33)(asked[1])
    headers, body = seen[0]
    assert reply == ('I must look.', 7)
    assert headers['authorization'] == f'Bearer {KEY}' and body['model'] == 'm'
    assert body['max_tokens'] == 33 and 'why it calls these tools' in body['messages'][0]['content']
    told = json.loads(body['messages'][1]['content'])
    assert told['conversation'] == [TOLD.messages[0]] and told['message'] == TOLD.messages[1]
    assert 'Zürich' in body['messages'][1]['content']
    assert 'FUTURE' not in json.dumps(body) and 'ANSWER' not in json.dumps(body)


def test_a_whole_run_against_a_server_that_fails_now_and_then():
    answers = (500, {}), (429, {}), answer('<think>never closed'), answer('A thought.', 11)
    with server(*answers) as (url, seen):
        done = augment([TOLD], teacher(url), budget=Budget(workers=1, attempts=5),
                       wait=tenacity.wait_none())  # fmt: skip
    assert [m.get('reasoning_content') for m in done.conversations[0].messages] == [
        None, 'A thought.', None, 'A thought.'
    ]  # fmt: skip
    assert done.counts['asked'] == len(seen) == 5 and done.counts['tokens'] == 7 + 11 + 11


@pytest.mark.parametrize('status', [400, 401, 403, 404])
def test_a_server_that_refuses_ends_the_run_and_no_key_is_told(status):
    body = {'error': {'message': f'Incorrect API key provided: {KEY}'}}
    with server((status, body)) as (url, seen), pytest.raises(ValueError) as raised:
        augment([TOLD], teacher(url), budget=Budget(workers=1), wait=tenacity.wait_none())
    assert f'with status {status}' in str(raised.value) and len(seen) == 1
    assert KEY not in str(raised.value) and raised.value.__suppress_context__


def test_a_server_that_is_not_there_is_no_answer():
    with server(answer('x')) as (url, _):
        pass
    with pytest.raises(NoAnswer):
        teacher(url)(questions(TOLD)[1])


def test_a_missing_key_is_refused_before_anything_is_sent():
    settings = EndpointSettings(model='m', key_variable='NO_SUCH_KEY')
    with pytest.raises(ValueError, match='variable NO_SUCH_KEY holds no key'):
        endpoint_teacher(settings)
    endpoint_teacher(EndpointSettings(model='m', key_variable=''))


@pytest.mark.parametrize(
    ('settings', 'why'),
    [
        ({'url': 'ftp://x', 'model': 'm'}, "url must begin with .* got 'ftp://x'"),
        ({}, 'model must name a model'),
        ({'model': 'm', 'temperature': 3}, r'temperature must be in \[0, 2\], got 3'),
        ({'model': 'm', 'thought_tokens': 0}, 'thought_tokens must be above 0, got 0'),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        EndpointSettings(**settings)


def test_a_teacher_is_named_after_all_that_changes_its_thoughts():
    names = {
        EndpointSettings(model=model, temperature=heat, thought_tokens=most).teacher
        for model in 'ab'
        for heat in (0, 1)
        for most in (9, 99)
    }
    assert len(names) == 8
