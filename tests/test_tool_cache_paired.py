"""One policy played with the tools and from the cache: where the two part is found and named."""

import dataclasses

import pytest

from cacherl_jax.tasks.research import RESEARCH
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from experiments import audit_cache
from experiments.audit_cache import AuditSettings, audit, fill, play_both, plot
from experiments.audit_episodes import divergence, fidelity, reexecute_sample, side_by_side
from experiments.audit_expert import play_experts

TASKS = [RESEARCH.task('train', level, number) for level in (1, 2) for number in range(3)]


def both(coverage, carelessness, samples=2):
    cache = make_tool_cache(':memory:', ToolCacheSettings(mode='replay'))
    fill(cache, TASKS, coverage, 0)
    return play_both(lambda opened: play_experts(TASKS, samples, carelessness, 0, opened), cache)


def test_a_full_cache_changes_nothing_for_a_careful_expert():
    live, cached = both(1.0, 0.0)
    told = divergence(side_by_side(live, cached))
    assert (told['episodes'], told['diverged'], told['causes']) == (12, 0, {})
    assert told['reward']['difference'] == 0 and told['reward']['first'] == 1
    exact = fidelity(reexecute_sample(cached, 200, 0))
    assert exact['exact']['fidelity'] == 1 and exact['exact']['hits'] > 12


def test_an_empty_cache_parts_every_episode_at_its_first_call():
    pairs = side_by_side(*both(0.0, 0.0))
    assert {(pair.turn, pair.cause) for pair in pairs} == {(0, 'miss')}
    assert all(pair.reward[0] > pair.reward[1] for pair in pairs)


def test_what_a_thin_cache_serves_instead_is_found_to_be_wrong():
    live, cached = both(0.5, 0.3)
    told, again = divergence(side_by_side(live, cached)), reexecute_sample(cached, 1000, 0)
    assert 0 < told['diverged'] == sum(told['causes'].values())
    numbers = fidelity(again)
    assert numbers['best_effort']['fidelity'] < numbers['exact']['fidelity'] == 1
    low, high = numbers['exact']['wilson']
    assert low < 1 and high == pytest.approx(1)


def test_a_careless_expert_makes_the_same_slips_every_time():
    (one, _), (other, _) = both(1.0, 0.5), both(1.0, 0.5)
    calls = [[turn.calls for turn in episode.turns] for episode in one]
    assert calls == [[turn.calls for turn in episode.turns] for episode in other]
    assert calls != [[turn.calls for turn in episode.turns] for episode in both(1.0, 0.0)[0]]


def test_rollouts_of_different_tasks_are_not_compared():
    live, cached = both(1.0, 0.0)
    with pytest.raises(ValueError, match='different tasks or samples'):
        side_by_side(live, cached[1:])


def test_the_whole_audit_is_one_call_and_draws_what_it_found(tmp_path, monkeypatch):
    settings = AuditSettings(model='expert', suites=('research',), levels=(1,), coverage=0.5)
    told = audit(settings)
    assert told == audit(settings)
    assert set(told) == {'entries', 'content_hash', 'results', 'fidelity', 'divergence'}
    pytest.importorskip('matplotlib', reason='pip install -r requirements.txt')
    plot(told, tmp_path / 'audit.svg')
    assert 'same when executed again' in (tmp_path / 'audit.svg').read_text()


def test_settings_out_of_range_are_refused():
    for field, value in (('coverage', 2), ('carelessness', -1), ('hits', 0)):
        with pytest.raises(ValueError, match=f'{field} must be'):
            dataclasses.replace(AuditSettings(model='expert'), **{field: value})
    assert audit_cache.PLOT.endswith('matplotlib')
