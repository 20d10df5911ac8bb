"""The judge against a server that nobody here wrote: `transformers serve` with an exported policy.

Set CACHERL_TRANSFORMERS to the `transformers` command of an environment with
`pip install torch==2.13.0 'transformers[serving]==5.24.0'`; without it these tests are skipped.
"""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import time
import urllib.request

import jax
import numpy as np
import pytest
from rewards_episodes import ask, find, play, say
from tiny_policy import BASE, TOKENIZER

from cacherl_jax.chat.endpoint import EndpointError, EndpointSettings, Unanswered, complete
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.policy.hugging_face import config_of
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params
from cacherl_jax.policy.weights import load_policy, save_policy
from cacherl_jax.rewards.llm_judge import LlmJudge, LlmJudgeSettings

COMMAND = os.environ.get('CACHERL_TRANSFORMERS', '')
START_SECONDS = 300
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMMAND, reason=__doc__.split('\n\n')[1].replace('\n', ' ')),
]


@contextlib.contextmanager
def served(folder):
    """The address of the endpoint and the model's name; the server ends with the block."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    command = [COMMAND, 'serve', str(folder), '--host', '127.0.0.1', '--port', str(port)]
    log = folder.with_name('server.log')
    with log.open('w') as file:
        offline = os.environ | {'HF_HUB_OFFLINE': '1', 'PYTHONPATH': ''}
        process = subprocess.Popen(
            [*command, '--device', 'cpu'], stdout=file, stderr=subprocess.STDOUT, env=offline
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not healthy(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield f'http://127.0.0.1:{port}/v1', str(folder)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # it may be at work on what nobody waits for any more
            process.kill()


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    """The model that ships."""
    folder = tmp_path_factory.mktemp('served') / 'policy'
    shape, params, _ = load_policy(BASE)
    save_policy(folder, shape, jax.tree.map(np.asarray, params), BASE)
    with served(folder) as where:
        yield where


REPLY = '{"score": 4}'


def save_table(folder):
    """A policy that is a table: whatever it is asked, it says REPLY and ends."""
    tokenizer = load_tokenizer(BASE)
    header = tokenizer.encode('\n', add_special_tokens=False)  # what a prompt ends with
    chain = [*header, *tokenizer.encode(REPLY, add_special_tokens=False), tokenizer.eos_token_id]
    assert len(set(chain)) == len(chain)
    shape = Shape(
        layers=1, embed=16, heads=2, kv_heads=1, head_dim=8, hidden=16,
        vocab=len(tokenizer), tied=False,
    )  # fmt: skip
    params = jax.tree.map(lambda x: np.zeros_like(x), init_params(shape, jax.random.key(0)))
    params['norm'] += 1
    for place, (token, after) in enumerate(itertools.pairwise(chain)):
        params['embed'][token, place] = 1
        params['head'][place, after] = 20
    source = folder.with_name('source')
    source.mkdir()
    for name in (*TOKENIZER, 'generation_config.json'):
        (source / name).write_bytes((BASE / name).read_bytes())
    (source / 'config.json').write_text(json.dumps(config_of(shape)))
    save_policy(folder, shape, params, source)


def healthy(port) -> bool:
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f'http://127.0.0.1:{port}/health', timeout=5).status == 200
    return False


def endpoint(server, **changed):
    url, model = server
    return EndpointSettings(**({'url': url, 'model': model, 'max_tokens': 12} | changed))


def test_a_reply_comes_back_and_is_the_same_again(server):
    asked = [{'role': 'user', 'content': 'What is the capital of France?'}]
    deadline = time.monotonic() + 120
    replies = {complete(endpoint(server), asked, deadline=deadline).content for _ in range(2)}
    assert len(replies) == 1 and replies.pop().strip()


def test_what_such_a_small_model_says_is_no_grade_and_so_an_abstention(server, tmp_path):
    """It speaks or begins a call; a call that is cut short makes this server answer 500."""
    known = {'cache': tmp_path / 'votes.sqlite', 'votes': 2, 'budget_seconds': 30.0}
    judge = LlmJudge(LlmJudgeSettings(endpoint=endpoint(server, max_tokens=48), **known))
    started = time.monotonic()
    assert judge(play(ask(find()), say('It is 7.'))) is None
    told = judge.metrics()
    assert told['judge/unread'] + told['judge/unanswered'] == 2
    assert time.monotonic() - started < 40


def test_a_model_that_grades_is_read_and_asked_once(tmp_path):
    save_table(tmp_path / 'policy')
    with served(tmp_path / 'policy') as where:
        known = {'cache': tmp_path / 'votes.sqlite', 'votes': 2, 'budget_seconds': 120.0}
        judge = LlmJudge(LlmJudgeSettings(endpoint=endpoint(where), **known))
        episode = play(ask(find()), say('It is 7.'))
        assert judge(episode) == judge(episode) == pytest.approx(0.8)
        assert judge.metrics()['judge/asked'] == judge.metrics()['judge/cached'] == 2


def test_a_model_that_is_not_there_is_no_verdict(server):
    asked = [{'role': 'user', 'content': 'x'}]
    wrong = endpoint(server, model='no/such-model')
    with pytest.raises((EndpointError, Unanswered)):
        complete(wrong, asked, deadline=time.monotonic() + 20)
