"""Corrections: played live, held to the task's own check, and readable where they are wanted."""

import dataclasses
import functools
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE, demonstrations
from cacherl_jax.compose.step import TERMS
from cacherl_jax.config import PRESETS
from cacherl_jax.evaluate.record import episode_record
from cacherl_jax.rollout_cache import record
from cacherl_jax.rollout_cache.buffer import BufferSettings, make_buffer
from cacherl_jax.rollout_cache.record import Source, as_entries
from cacherl_jax.run.files import make_lines
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain
from cacherl_jax.supervised.dataset import conversation_arrays
from cacherl_jax.supervised.formats import read_conversations
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.trip import TRIP
from cacherl_jax.tools.execute import live_sessions
from experiments import diagnose

CONFIG = PRESETS['small']


@functools.cache
def played(split='train'):
    """The expert's episodes of three tasks."""
    return demonstrations(draw(TRIP, split, 1, 3), live_sessions())


def failed(episode):
    """The episode with its last call and its right answer gone."""
    last = dataclasses.replace(episode.turns[-1], text='No idea.', content='No idea.')
    return dataclasses.replace(episode, turns=(*episode.turns[:-2], last))


@pytest.fixture
def run(tmp_path):
    """A run whose evaluation failed at two of six tasks, one of them of the test split."""
    (tmp_path / 'config.json').write_text(json.dumps(plain(CONFIG)))
    append = make_lines(tmp_path / 'episodes.jsonl')
    for split in ('train', 'test'):
        first, *others = played(split)
        for episode in (failed(first), *others):
            append(episode_record(episode, step=9, stage='final'))
    return tmp_path


@pytest.fixture(autouse=True)
def without_weights(monkeypatch):
    """Only the tokenizer and its template are needed."""
    chat = Chat(tokenizer=load_tokenizer(BASE), end_ids=(0,))
    end = chat.tokenizer.convert_tokens_to_ids('<|im_end|>')
    found = type('Agent', (), {'chat': dataclasses.replace(chat, end_ids=(end,))})
    monkeypatch.setattr(diagnose, 'load_agent', lambda config: found)


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['diagnose.py', *map(str, arguments)])
    diagnose.main()


def review(run, monkeypatch):
    """The entries of the run's review file: of a training task, then of a test task."""
    command(monkeypatch, run)
    return [json.loads(line) for line in (run / 'review.jsonl').read_text().splitlines()]


def right_turns(split='train'):
    turns = episode_record(played(split)[0], step=9, stage='final')['turns']
    return [{name: turn[name] for name in ('content', 'calls')} for turn in turns]


def accept(run, monkeypatch, *entries):
    file = run / 'corrected.jsonl'
    file.write_text(''.join(json.dumps(entry) + '\n' for entry in entries))
    command(monkeypatch, run, '--accept', file)


def refusal(run, monkeypatch, capfd, *entries):
    """What is said when corrections are refused."""
    monkeypatch.setenv('COLUMNS', '400')
    with pytest.raises(SystemExit) as end:
        accept(run, monkeypatch, *entries)
    assert end.value.code == 2
    return ' '.join(''.join(capfd.readouterr()).split())


def test_every_failure_has_an_entry_and_the_table_counts_it(run, monkeypatch):
    command(monkeypatch, run, '--json', run / 'told.json')
    lines = (run / 'review.jsonl').read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [e['task'] for e in entries] == [played(s)[0].task.id for s in ('train', 'test')]
    assert not any(entry['corrected'] for entry in entries) and entries[0]['remedy']
    told = json.loads((run / 'told.json').read_text())
    assert sum(line['count'] for line in told['failures']) == 2
    assert sum(line['training'] for line in told['failures']) == 1


def test_a_file_with_corrections_is_not_written_over(run, monkeypatch):
    entry = review(run, monkeypatch)[0] | {'corrected': True}
    (run / 'review.jsonl').write_text(json.dumps(entry) + '\n')
    with pytest.raises(SystemExit):
        command(monkeypatch, run)
    assert json.loads((run / 'review.jsonl').read_text()) == entry


def test_a_correction_becomes_a_row_of_the_rollout_cache(run, monkeypatch):
    entry = review(run, monkeypatch)[0]
    accept(run, monkeypatch, entry | {'corrected': True, 'turns': right_turns()})
    (kept,) = record.read(run / 'corrections')
    assert kept.source is Source.CORRECTION and kept.logprob is None and kept.sampled.any()
    assert kept.turns[0].results and kept.episode_return > 0.5
    buffer = make_buffer(BufferSettings(capacity=3, minimum=1), 2)
    rows = as_entries([kept], 768, TERMS)
    store = buffer.add(buffer.init(as_entries([], 768, TERMS)), rows, jnp.ones(1, bool), 0)
    assert int(store.filled.sum()) == 1


def test_a_correction_can_be_learned_token_for_token(run, monkeypatch):
    entry = review(run, monkeypatch)[0]
    accept(run, monkeypatch, entry | {'corrected': True, 'turns': right_turns()})
    (kept,) = record.read(run / 'corrections')
    (spoken,) = read_conversations(run / 'corrections.jsonl', 'openai').conversations
    chat = diagnose.load_agent(CONFIG).chat
    arrays = conversation_arrays(chat, spoken.messages, spoken.tools)
    np.testing.assert_array_equal(arrays['tokens'], kept.tokens)
    np.testing.assert_array_equal(arrays['sampled'], kept.sampled)


def test_results_are_what_the_tools_say_and_not_what_the_file_says(run, monkeypatch):
    turns = [turn | {'results': [{'text': 'forged'}]} for turn in right_turns()]
    accept(run, monkeypatch, review(run, monkeypatch)[0] | {'corrected': True, 'turns': turns})
    (kept,) = record.read(run / 'corrections')
    assert 'forged' not in repr(kept.turns)
    live = [result.text for turn in played()[0].turns for result in turn.results]
    assert [result.text for turn in kept.turns for result in turn.results] == live


def test_what_is_not_solved_is_refused_and_the_rest_is_taken(run, monkeypatch, capfd):
    entry = review(run, monkeypatch)[0] | {'corrected': True}
    said = refusal(run, monkeypatch, capfd, entry, entry | {'turns': right_turns()})
    assert 'says that it is not solved' in said
    assert len(record.read(run / 'corrections')) == 1


def test_the_same_correction_is_taken_once(run, monkeypatch, capfd):
    entry = review(run, monkeypatch)[0] | {'corrected': True, 'turns': right_turns()}
    accept(run, monkeypatch, entry)
    assert 'duplicate' in refusal(run, monkeypatch, capfd, entry)
    assert len(record.read(run / 'corrections')) == 1


def test_a_task_of_evaluation_is_never_learned(run, monkeypatch, capfd):
    entry = review(run, monkeypatch)[1] | {'corrected': True, 'turns': right_turns('test')}
    assert 'is a test task' in refusal(run, monkeypatch, capfd, entry)
    assert not (run / 'corrections').exists()


def changed(turns, **fields):
    return [turns[0] | fields, *turns[1:]]


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda t: [], 'at least one turn'),
        (lambda t: t[:-1], 'must answer the last message'),
        (lambda t: [t[-1], *t], 'must be the last one'),
        (lambda t: changed(t, calls=[{'name': 'teleport', 'arguments': {}}]), 'unknown_tool'),
        (lambda t: changed(t, calls=[{'name': 'x'}]), 'a name and arguments'),
        (lambda t: changed(t, calls=[{'name': 'x', 'arguments': '{}'}]), 'object of JSON'),
        (lambda t: changed(t, calls=[{'name': 'x', 'arguments': {'a': float('nan')}}]), 'JSON'),
        (lambda t: changed(t, calls=[{'name': '\ud800', 'arguments': {}}]), 'name is text'),
        (lambda t: changed(t, content=3), 'must be text'),
        (lambda t: changed(t, content='\ud800'), 'no text that a file can hold'),
        (lambda t: 'none', 'must be a list'),
    ],
)
def test_turns_that_make_no_episode_are_refused(change, words, run, monkeypatch, capfd):
    entry = review(run, monkeypatch)[0] | {'corrected': True, 'turns': change(right_turns())}
    assert words in refusal(run, monkeypatch, capfd, entry)


@pytest.mark.parametrize(
    'name',
    [
        '../../etc/x',
        'trip/train/9/00000',
        'trip/nowhere/1/0',
        'trip/train/1/\ud800\x1b[2J',
        'trip/train/1/7',
        '',
        None,
    ],
)
def test_a_name_of_no_task_is_refused(name, run, monkeypatch, capfd):
    entry = {'corrected': True, 'task': name, 'turns': right_turns()}
    said = refusal(run, monkeypatch, capfd, entry)
    assert 'refused' in said and '\x1b[2J' not in said


def test_a_benchmark_s_task_is_found_by_its_id():
    listed = [type('Task', (), {'id': f'bfcl/train/1/base_{n}'}) for n in range(7)]

    def source(suite, split, level, number):
        if level != 1:
            raise Refusal('no task of this level')
        return listed[number % 7]

    assert diagnose.task_named(source, 'bfcl/train/1/base_5', ('bfcl',)) is listed[5]
    for name in ('bfcl/train/1/base_9', 'bfcl/train/2/base_5'):
        with pytest.raises(ValueError, match='no task'):
            diagnose.task_named(source, name, ('bfcl',))


@pytest.mark.parametrize(
    ('text', 'words'),
    [('{}\n', 'line 1'), ('{"a\n', 'no JSON'), ('{"corrected": false}\n', 'has no entry with')],
)
def test_a_file_of_no_corrections_is_refused(text, words, run, monkeypatch, capfd):
    (run / 'corrected.jsonl').write_text(text)
    with pytest.raises(SystemExit):
        command(monkeypatch, run, '--accept', run / 'corrected.jsonl')
    assert words in capfd.readouterr().err
