"""The parts of the comparison with transformers that are ours, held against each other."""

import dataclasses
import importlib.util
import sys

import jax
import numpy as np
import pytest

from cacherl_jax.policy.transformer import init_params
from experiments import parity
from experiments.parity import (
    FAMILIES,
    ParitySettings,
    compare,
    greedy_by_decoder,
    greedy_by_rereading,
    our_logits,
    plain_scores,
    within,
)

SMALL = ParitySettings(rows=3, row_tokens=14, far_tokens=70, turns=3, turn_tokens=5)
has_torch = importlib.util.find_spec('torch') is not None


def policy(name):
    """A small model of the family whose weights are large enough to matter."""
    sizes = {'layers': 1, 'hidden': 24, 'vocab': 64}
    shape = dataclasses.replace(FAMILIES[name], **sizes)
    made = init_params(shape, jax.random.key(0))
    return shape, jax.tree.map(lambda leaf: leaf * 8 if leaf.ndim > 1 else leaf, made)


@pytest.mark.parametrize('name', ['Qwen3', 'Llama-3.x'])
def test_decoding_with_a_cache_is_reading_anew(name):
    shape, params = policy(name)
    work = SMALL.work
    inputs = work.inputs(shape.vocab)
    slow = greedy_by_rereading(our_logits(shape, params), work, *inputs)
    np.testing.assert_array_equal(greedy_by_decoder(shape, params, work, *inputs), slow)
    assert slow.shape == (3, work.row_tokens) and len({row.tobytes() for row in slow}) == 3


def test_a_model_compared_with_itself_differs_in_nothing():
    shape, params = policy('Qwen2')
    ours = our_logits(shape, params)
    told = compare(ours, ours, shape, params, SMALL)
    assert told['logits'] == told['far'] == told['exported'] == 0 and told['greedy'] == 1
    assert told['scores'] < 2e-5 and within(told)


def test_another_model_is_told_by_every_column():
    (shape, params), (_, other) = policy('Qwen3'), policy('Qwen3')
    other = other | {'norm': -other['norm']}
    theirs = our_logits(shape, other)
    told = compare(theirs, our_logits(shape, params), shape, params, SMALL)
    assert all(told[name] > 0.1 for name in ('logits', 'far', 'scores', 'exported'))
    assert told['greedy'] < 0.9 and not within(told)


def test_plain_scores_are_log_probabilities():
    logits = np.log(np.array([[[0.2, 0.8], [0.5, 0.5], [1.0, 1.0]]], np.float32)) + 3
    found = plain_scores(logits, np.array([[0, 1, 0]]))
    np.testing.assert_allclose(found, [[0.0, np.log(0.8), np.log(0.5)]], atol=1e-6)


def test_one_token_of_difference_is_not_within():
    told = dict.fromkeys(('logits', 'far', 'scores', 'exported'), 1e-5)
    assert within(told | {'greedy': 1.0}) and not within(told | {'greedy': 0.999})
    assert not within(told | {'greedy': 1.0, 'scores': 3e-3})


def test_unknown_families_and_empty_rows_are_refused():
    with pytest.raises(ValueError, match='families must be of'):
        ParitySettings(families=('GPT',))
    with pytest.raises(ValueError, match='must be 1 or more'):
        ParitySettings(turns=0)


@pytest.mark.skipif(has_torch, reason='torch is here, so nothing is refused')
def test_without_torch_the_command_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['parity'])
    with pytest.raises(SystemExit) as ended:
        parity.main()
    assert ended.value.code == 2 and 'pip install torch' in capsys.readouterr().err


@pytest.mark.skipif(not has_torch, reason='torch is the oracle')
@pytest.mark.parametrize('name', FAMILIES)
def test_each_family_has_the_numbers_of_transformers(name):
    assert within(parity.measure(name, SMALL))
