"""What an evaluation tells beside success: how the expert would have gone, and what it cost."""

import dataclasses
import json

import jsonschema
import pytest
from evaluate_episodes import PRICE, TRAINS, answer, call, episode, result, turn

from cacherl_jax.evaluate.cost import cost_of
from cacherl_jax.evaluate.metrics import evaluation_metrics
from cacherl_jax.evaluate.process import expert_accuracy, share_done
from cacherl_jax.run.evaluation import write_evaluation
from cacherl_jax.tasks.suite import demonstrate, draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Call, Status, Tier

A, B, C = (Call(name, {'x': 1, 'y': 2}) for name in 'abc')


@pytest.mark.parametrize(
    ('made', 'share'),
    [
        ([A, B, C], 1.0),
        ([A, A, C, B, C], 1.0),
        ([C, B, A], 1 / 3),
        ([Call('b', {'y': 2, 'x': 1})], 1 / 3),
        ([Call('b', {'x': 1})], 0.0),
        ([], 0.0),
    ],
)
def test_the_share_done_counts_calls_in_order_and_once(made, share):
    assert share_done(made, [A, B, C]) == pytest.approx(share) and share_done(made, []) == 1


@pytest.mark.parametrize('suite', SUITES, ids=lambda suite: suite.name)
def test_an_expert_is_accurate_and_half_of_one_is_half(suite):
    live = live_sessions()
    played = []
    for task in draw(suite, 'test', 2, 5):
        session = live.open_session(task.id, task.tools, task.start)
        played.append(demonstrate(task, session.answer))
    assert expert_accuracy(played, live.open_session) == {suite.name: 1.0}
    short = [dataclasses.replace(each, turns=each.turns[1:]) for each in played]
    assert 0 < expert_accuracy(short, live.open_session)[suite.name] < 1


def test_what_a_cache_answered_was_saved_and_a_miss_was_not():
    tiers = (Tier.EXACT, Tier.FUZZY, Tier.BEST_EFFORT, Tier.MISS, Tier.LIVE)
    turns = [turn((call('price'), result('', Status.OK, tier))) for tier in tiers]
    found = cost_of([episode(*turns, answer('At noon.'))])
    assert (found['calls_saved'], found['live_calls'], found['messages']) == (3, 1, 6)


def told():
    played = [episode(TRAINS, PRICE, answer('At 15:40.')), episode(answer('At noon.'))]
    suites = evaluation_metrics(played, ks=(1, 2))
    for numbers in suites.values():
        numbers['process_accuracy'] = 0.5
    hashes = {'tasks': 'a' * 64, 'config': 'b' * 16, 'model': None}
    return {'settings': {}, 'suites': suites, 'cost': cost_of(played), 'usage': None} | {
        'hashes': hashes
    }


def test_what_is_written_has_the_form_and_says_with_what(tmp_path):
    write_evaluation(tmp_path / 'told.json', told())
    found = json.loads((tmp_path / 'told.json').read_text())
    assert {'suites', 'cost', 'hashes', 'versions'} <= set(found) and found['benchmarks'] == {}


@pytest.mark.parametrize('part', ['suites', 'cost', 'usage', 'hashes', 'settings'])
def test_what_has_another_form_is_not_written(tmp_path, part):
    for wrong in (
        {name: value for name, value in told().items() if name != part},
        told() | {part: 'many'},
        told() | {'more': 1},
    ):
        with pytest.raises((jsonschema.ValidationError, TypeError, KeyError)):
            write_evaluation(tmp_path / 'told.json', wrong)
    assert not (tmp_path / 'told.json').exists()
