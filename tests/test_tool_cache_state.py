"""On a real benchmark every exact hit of `session` scope is right; without a state many are not."""

import importlib.util

import pytest

from experiments.bench_tool_cache_state import StateSettings, bfcl_games, careless, measure

pytestmark = pytest.mark.real


@pytest.fixture(scope='module')
def games():
    if importlib.util.find_spec('bfcl_eval') is None:
        pytest.skip('pip install --no-deps -r requirements-bench.txt')
    return list(bfcl_games('base'))


def test_hits_of_session_scope_are_right_and_others_are_not(games):
    told = measure(games[:40], StateSettings(samples=2, noise=0.3))['samples of a group']
    blind, session = told['name, arguments'], told['session']
    assert session['right'] == session['hits'] > 0.3 * session['calls']
    assert blind['right'] < 0.9 * blind['hits']


def test_without_noise_a_second_sample_is_answered_by_the_first(games):
    told = measure(games[:10], StateSettings(samples=1, noise=0.0))['samples of a group']['session']
    assert told['hits'] == told['right'] == told['calls']


def test_a_careless_expert_is_the_same_every_time_and_careful_without_noise(games):
    assert careless(games[3], 0.0, 'a') == list(games[3].gold)
    assert careless(games[3], 0.9, 'a') == careless(games[3], 0.9, 'a')
    assert len({str(careless(games[3], 0.9, seed)) for seed in 'abcdefg'}) > 1
