"""Perplexity of held-out text: the number itself, and the command over a run's three stages."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from jax.tree_util import Partial
from tiny_policy import SETTINGS, VOCAB, make_policy

from cacherl_jax.compose.agent import load_agent, make_score, save_agent
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.perplexity import held_out_conversations, perplexity, pieces_of_text
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.checkpoint import make_checkpoints, restore_part
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain
from cacherl_jax.supervised.dataset import general_rows
from experiments import forgetting

CUT = UpdateSettings(micro_rows=2, widths=(8, 16))


def rows(*lengths):
    return [
        {'tokens': np.arange(n) % 5, 'sampled': np.zeros(n, bool), 'turn': np.zeros(n, int)}
        for n in lengths
    ]


def by_token(table, tokens, length, sampled):
    """Every token has one log-probability, wherever it stands."""
    return table[tokens], None


def test_perplexity_is_over_every_token_but_the_first_of_each_row():
    table, arrays = np.log(np.float32([0.5, 0.25, 0.1, 0.05, 0.1])), rows(3, 16, 7)
    told = np.concatenate([table[row['tokens'][1:]] for row in arrays])
    found = perplexity(Partial(by_token), table, arrays, CUT)
    assert found == pytest.approx(np.exp(-told.mean()), rel=1e-5)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """The folder of a run whose start and end are other random policies than its model."""
    folder = tmp_path_factory.mktemp('run')
    model = make_policy(tmp_path_factory.mktemp('model'))
    config = read_config('', ['--model', str(model), *SETTINGS])
    config = dataclasses.replace(config, run_dir=folder)
    agent = load_agent(config)
    start, end = (jax.tree.map(lambda x, by=by: x * by, agent.params) for by in (2.0, 8.0))
    tree = {'reference': start, 'learner': {'unlike': np.zeros(3)}}
    make_checkpoints(folder / 'checkpoints', {}).save(4, tree, {})
    save_agent(agent, end, folder / 'policy')
    (folder / 'config.json').write_text(json.dumps(plain(config)))
    return folder, agent, {'model': agent.params, 'start': start, 'end': end}


def test_part_of_a_checkpoint_is_read_bit_for_bit_and_alone(run):
    folder, agent, stages = run
    found = restore_part(folder / 'checkpoints', 'reference', agent.params)
    jax.tree.map(np.testing.assert_array_equal, found, stages['start'])
    with pytest.raises(Refusal, match='learner'):
        restore_part(folder / 'checkpoints', 'learner', agent.params)
    with pytest.raises(FileNotFoundError, match='no checkpoint'):
        restore_part(folder / 'nothing', 'reference', agent.params)


def test_what_is_held_out_is_in_no_runs_lessons(run):
    chat = run[1].chat
    held = [row['tokens'].tobytes() for row in held_out_conversations(chat, 8, 448)]
    learned = {r['tokens'].tobytes() for seed in range(3) for r in general_rows(chat, 8, 448, seed)}
    assert len(set(held)) == 8 and learned.isdisjoint(held)


def test_a_text_is_read_whole_and_in_order(run):
    chat = run[1].chat
    text = 'Rain on Monday, sun on Tuesday. ' * 9
    cut = pieces_of_text(chat, text, 10)
    joined = [id for piece in cut for id in piece['tokens'].tolist()]
    whole = chat.encode(text)
    assert joined == whole[: len(joined)] and len(whole) - len(joined) <= 1
    assert pieces_of_text(chat, '', 10) == []


def test_the_command_tells_each_stage_of_a_run(run, monkeypatch, tmp_path, capfd):
    folder, agent, stages = run
    text, out = tmp_path / 'text', tmp_path / 'told.json'
    text.write_text('Rain on Monday, sun on Tuesday.')
    options = ['--text', str(text), '--json', str(out)]
    monkeypatch.setattr(sys, 'argv', ['forgetting', str(folder), *options])
    forgetting.main()
    assert 'perplexity on held-out text' in capfd.readouterr().out
    (told,) = json.loads(out.read_text())['runs']
    score = make_score(agent, SamplingSettings())
    arrays = pieces_of_text(agent.chat, text.read_text(), 448)
    sizes = UpdateSettings(micro_rows=4, widths=(448,))
    for name, params in stages.items():
        expected = perplexity(score, params, arrays, sizes)
        assert told[name] == pytest.approx(expected, rel=1e-4), name
    assert told['start'] == pytest.approx(VOCAB, rel=0.2) and told['end'] > told['start']
    assert told['rise_nats'] == pytest.approx(np.log(told['end'] / told['start']), rel=1e-4)
    assert told['language_weight'] == 0.0


def test_a_folder_of_no_finished_run_is_refused(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(sys, 'argv', ['forgetting', str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        forgetting.main()
    assert ended.value.code == 2 and 'not a finished run' in capfd.readouterr().err
