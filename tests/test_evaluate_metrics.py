"""Evaluation: success is the task's word, attempts at one task count as one task."""

import itertools

from evaluate_episodes import PRICE, TRAINS, answer, call, episode, result, task, turn

from cacherl_jax.evaluate.metrics import evaluation_metrics, flat_metrics
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import Tier

RIGHT, WRONG = answer('It leaves at 15:40.'), answer('It leaves at noon.')


def test_success_is_what_the_task_calls_solved_never_its_score():
    numbers = evaluation_metrics([episode(TRAINS, RIGHT), episode(TRAINS, WRONG, sample=1)])
    assert numbers['trip']['success'] == 0.5  # the score is 0.25 for both


def test_a_task_tried_often_weighs_as_much_as_one_tried_once():
    often = [episode(TRAINS, RIGHT, sample=k) for k in range(7)]
    once = [episode(WRONG, of=task('trip/test/1/00001'))]
    numbers = evaluation_metrics(often + once, ks=(1, 3))['trip']
    assert (numbers['tasks'], numbers['episodes'], numbers['success']) == (2, 8, 0.5)
    assert (numbers['pass_at_1'], numbers['pass_at_3']) == (0.5, 1.0)
    assert (numbers['avg_at_1'], numbers['avg_at_3']) == (0.5, 1.0)
    assert numbers['pass_at_1_bootstrap'] == (0.0, 1.0)


def test_turns_and_calls_are_those_of_successes():
    episodes = [episode(TRAINS, PRICE, RIGHT), episode(TRAINS, *[PRICE] * 7, WRONG, sample=1)]
    numbers = evaluation_metrics(episodes)['trip']
    assert (numbers['turns'], numbers['calls']) == (3, 2)
    assert evaluation_metrics([episode(WRONG)])['trip']['turns'] is None


def test_infrastructure_is_counted_and_left_out():
    spoiled = episode(TRAINS, of=task('trip/test/1/00001'), ended=Termination.TOOL_INFRASTRUCTURE)
    numbers = evaluation_metrics([episode(TRAINS, RIGHT), spoiled])['trip']
    assert (numbers['success'], numbers['infrastructure'], numbers['episodes']) == (1.0, 1, 2)
    assert evaluation_metrics([spoiled])['trip']['success'] is None


def test_parts_add_up_to_the_suite():
    episodes = [
        episode(RIGHT, of=task(f'{suite}/{level}/{n}', suite, level, split))
        for n, (suite, level, split) in enumerate(
            itertools.product(('analysis', 'trip'), (1, 2, 3), ('train', 'test'))
        )
    ]
    suites = evaluation_metrics(episodes)
    assert list(suites) == ['analysis', 'trip']
    for numbers in suites.values():
        for part in ('levels', 'splits'):
            assert sum(n['episodes'] for n in numbers[part].values()) == numbers['episodes'] == 6


def test_the_tier_mix_counts_answers():
    tiers = [Tier.LIVE, Tier.EXACT, Tier.EXACT, Tier.FUZZY]
    asked = turn(*((call(), result(tier=tier)) for tier in tiers))
    mix = evaluation_metrics([episode(asked, RIGHT)])['trip']['tier_mix']
    assert mix == {'live': 0.25, 'exact': 0.5, 'fuzzy': 0.25, 'best_effort': 0, 'miss': 0}


def test_flat_metrics_are_numbers_only():
    flat = flat_metrics(evaluation_metrics([episode(WRONG)]))
    assert flat['evaluate/trip/success'] == 0.0 and flat['evaluate/trip/episodes'] == 1
    assert all(isinstance(value, (int, float)) for value in flat.values())
