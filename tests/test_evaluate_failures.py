"""Failures: one episode a cause, and the first rule that fits is the one that counts."""

import dataclasses

import pytest
from evaluate_episodes import PRICE, TRAINS, answer, call, episode, result, turn

from cacherl_jax.evaluate.failures import REMEDY, Failure, Kind, attribute, failure_table
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import ParseError, Status, Tier

WRONG = answer('At noon.')
WEATHER = turn((call('weather'), result('sunny')))
BROKEN = turn((ParseError('no closing brace', '{'), result('', Status.PARSE_ERROR)))
TIMED_OUT = turn((call(), result('', Status.TIMEOUT)))
GUESSED = turn((call('price', 'Lisboa Lisbon'), result('costs 99 euro', tier=Tier.FUZZY)))
NOT_CACHED = turn((call('price'), result('', Status.UNAVAILABLE, Tier.MISS)))
ELSEWHERE = turn((call('trains', 'Oslo Station'), result('leaves 11:11')))
LATER = turn((call('trains'), result('leaves 16:55')))

CASES = {
    Kind.INFRASTRUCTURE: (episode(TRAINS, TIMED_OUT, WRONG), 1),
    Kind.LOOP: (episode(*[TRAINS] * 7, ended=Termination.MAX_TURNS), 2),
    Kind.TOOL_MISUSE: (episode(TRAINS, BROKEN, ended=Termination.PARSE_FAILURES), 1),
    Kind.TRUNCATION: (episode(TRAINS, PRICE, ended=Termination.MAX_TOKENS), 1),
    Kind.CACHE_INDUCED: (episode(TRAINS, GUESSED, WRONG), 1),
    Kind.MISUNDERSTOOD_REQUEST: (episode(ELSEWHERE, WRONG), 0),
    Kind.PREMATURE_END: (episode(TRAINS, WRONG), 1),
    Kind.WRONG_PLAN: (episode(TRAINS, WEATHER, WRONG), 1),
    Kind.STALE_FACT: (
        episode(turn((call(), result('leaves 08:20'))), PRICE, LATER, answer('At 08:20.')),
        2,
    ),
    Kind.IGNORED_OBSERVATION: (episode(TRAINS, PRICE, WRONG), 2),
    Kind.UNEXPLAINED: (episode(TRAINS, PRICE, answer('It costs 28.')), -1),
}


@pytest.mark.parametrize('kind', Kind)
def test_each_kind_of_failure_is_recognised(kind):
    played, where = CASES[kind]
    failure = attribute(played)
    assert (failure.kind, failure.turn) == (kind, where), failure.why


def test_a_solved_task_has_no_failure():
    assert attribute(episode(*[TRAINS] * 7, answer('At 15:40.'))) is None


def test_a_missing_cache_entry_is_the_caches_fault_not_the_tools():
    assert attribute(episode(TRAINS, NOT_CACHED, WRONG)).kind is Kind.CACHE_INDUCED


def test_a_loop_that_runs_into_a_limit_is_a_loop():
    for ended in (Termination.MAX_TURNS, Termination.CONTEXT_FULL):
        assert attribute(episode(*[TRAINS] * 3, ended=ended)).kind is Kind.LOOP


def test_turns_without_text_are_no_loop():
    silent = [dataclasses.replace(each, text='') for each in (TRAINS, PRICE, WEATHER, LATER)]
    assert attribute(episode(*silent, WRONG)).kind is not Kind.LOOP


def test_one_wrong_call_that_was_put_right_is_forgiven():
    mistake = turn((call('price'), result('', Status.BAD_ARGUMENTS)))
    played = episode(TRAINS, mistake, PRICE, WRONG)
    assert attribute(played).kind is Kind.IGNORED_OBSERVATION


def test_an_answer_without_any_call_came_too_early():
    assert attribute(episode(WRONG)).kind is Kind.PREMATURE_END


def test_an_episode_without_turns_has_a_cause_too():
    assert attribute(episode(ended=Termination.CONTEXT_FULL)).kind is Kind.TRUNCATION


def test_every_kind_has_a_remedy():
    assert set(REMEDY) == set(Kind)


def test_the_table_counts_every_failure_once_most_frequent_first():
    kinds = [Kind.LOOP] * 3 + [Kind.TRUNCATION] * 7 + [Kind.WRONG_PLAN]
    failures = [(f'task {n}', Failure(kind=k, turn=n, why='')) for n, k in enumerate(kinds)]
    table = failure_table(failures)
    assert [(line['kind'], line['count']) for line in table] == [
        ('truncation', 7),
        ('loop', 3),
        ('wrong_plan', 1),
    ]
    assert sum(line['share'] for line in table) == pytest.approx(1.0)
    assert max(len(line['examples']) for line in table) == 3
    assert failure_table([]) == []
