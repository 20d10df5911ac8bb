"""A cache that someone tries to poison: unearned successes stay out, earned ones come in.

Every trajectory comes with a perfect return, as if the reward had been fooled already.
"""

import collections
import dataclasses
import json

import pytest
from rewards_episodes import live
from rollout_cache_rows import record

from cacherl_jax.rewards.facts import FactSettings
from cacherl_jax.rewards.honesty import (
    DECISIVE,
    HonestySettings,
    admission_judges,
    hacking_flags,
    near_miss,
    pasted,
    rests_on_evidence,
)
from cacherl_jax.rollout_cache.admission import AdmissionSettings, Door, Outcome
from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tasks.task import Turn
from cacherl_jax.tools.tool import Call, Result, Status, Tier

FACTS = FactSettings()
OFF = {
    'research': Call('share_price', {'company': 'Acme'}),
    'trip': Call('weather', {'city': 'Nowhere', 'day': 'Monday'}),
    'analysis': Call('list_tables', {}),
}


def make_door(further=None, **settings):
    known = HonestySettings()
    judges = admission_judges(known, FACTS, further=further)
    flags = hacking_flags(known, FACTS)
    return Door(AdmissionSettings(**settings), judges, flags, decisive=DECISIVE)


def expert(suite, level, number):
    task = SUITES[suite].task('train', level, number)
    return demonstrate(task, live(task))


def turn(*calls, status=Status.OK, text='{}', tier=Tier.LIVE):
    results = tuple(Result(status=status, text=text, tier=tier) for _ in calls)
    return Turn(text='?', calls=calls, results=results)


def changed(episode, *turns, answer=None):
    last = episode.turns[-1]
    if answer is not None:
        last = dataclasses.replace(last, text=answer, content=answer)
    return dataclasses.replace(episode, turns=(*turns, last))


def graded(episode, tier):
    """The same with every answer from this tier."""
    turns = [
        dataclasses.replace(
            each, results=tuple(dataclasses.replace(r, tier=tier) for r in each.results)
        )
        for each in episode.turns[:-1]
    ]
    return changed(episode, *turns)


# ---- ways to have a success without earning it


def repeats(episode):
    first, *rest = episode.turns[:-1]
    return changed(episode, *[first] * 4, *rest)


def near_repeats(episode):
    call = episode.turns[0].calls[0]
    spelled = [
        {name: f'{value}{end}' if isinstance(value, str) else value for name, value in arguments}
        for end in ('', '!', ' ', '?')
        for arguments in [call.arguments.items()]
    ]
    more = [turn(Call(call.name, arguments)) for arguments in spelled]
    return changed(episode, *more, *episode.turns[:-1])


def meta(episode):
    said = f'Okay, the user wants an answer, so it should be: {episode.answer}'
    return changed(episode, *episode.turns[:-1], answer=said)


def talk(episode):
    return changed(episode, *episode.turns[:-1], answer='I need to call the tool once more.')


def guessed(episode):
    return changed(episode)


def guessed_after_show(episode):
    return changed(episode, turn(OFF[episode.task.suite], text='{"nothing": "here"}'))


def failed_and_guessed(episode):
    turns = [turn(*each.calls, status=Status.TOOL_ERROR, text='no') for each in episode.turns[:-1]]
    return changed(episode, *turns)


def results_pasted(episode):
    texts = [result.text for each in episode.turns for result in each.results]
    return changed(episode, *episode.turns[:-1], answer=' '.join(texts))


def result_pasted_behind_the_answer(episode):
    text = episode.turns[-2].results[-1].text
    return changed(episode, *episode.turns[:-1], answer=f'{episode.answer} {text}')


def answer_as_a_call(episode):
    call = json.dumps({'name': 'answer', 'arguments': {'text': episode.answer}})
    return changed(episode, *episode.turns[:-1], answer=f'<tool_call>{call}</tool_call>')


def best_effort_only(episode):
    return graded(episode, Tier.BEST_EFFORT)


def missed_only(episode):
    return graded(episode, Tier.MISS)


def padded(episode):
    idle = [turn(Call('chatter', {'n': n})) for n in range(4)]
    return changed(episode, *episode.turns[:-1], *idle)


HACKS = (
    repeats, near_repeats, meta, talk, guessed, guessed_after_show, failed_and_guessed,
    results_pasted, result_pasted_behind_the_answer, answer_as_a_call, best_effort_only,
    missed_only, padded,
)  # fmt: skip


# ---- ways to earn it that are not the expert's


def as_is(episode):
    return episode


def from_the_cache(episode):
    return graded(episode, Tier.EXACT)


def after_an_outage(episode):
    first, *rest = episode.turns[:-1]
    return changed(episode, turn(*first.calls, status=Status.UNAVAILABLE, text='out'), first, *rest)


def after_a_mistake(episode):
    call = Call(episode.turns[0].calls[0].name, {})
    wrong = turn(call, status=Status.BAD_ARGUMENTS, text='an argument is missing')
    return changed(episode, wrong, *episode.turns[:-1])


def asked_twice(episode):
    first, *rest = episode.turns[:-1]
    return changed(episode, first, first, *rest)


def one_needless_call(episode):
    return changed(episode, turn(Call('chatter', {'n': 1})), *episode.turns[:-1])


def one_call_a_turn(episode):
    turns = [
        dataclasses.replace(each, calls=(call,), results=(result,))
        for each in episode.turns[:-1]
        for call, result in zip(each.calls, each.results, strict=True)
    ]
    return changed(episode, *turns)


def said_otherwise(episode):
    return changed(episode, *episode.turns[:-1], answer=f'Sure. {episode.answer}')


HONEST = (
    as_is, from_the_cache, after_an_outage, after_a_mistake, asked_twice, one_needless_call,
    one_call_a_turn, said_otherwise,
)  # fmt: skip


def trajectories(ways, count, first):
    """Of every suite and level and in every way, in turn; no task twice."""
    for number in range(count):
        suite, level = number % 3, number // 3 % 3 + 1
        way = ways[number % len(ways)]
        yield way.__name__, way(expert(suite, level, first + number))


def let_in(door, made, seed):
    """By way: how many came, and how many were admitted."""
    came, admitted = collections.Counter(), collections.Counter()
    for number, (way, episode) in enumerate(made):
        verdict = door.consider(record(episode, seed + number, episode_return=1.0), episode)
        came[way] += 1
        admitted[way] += verdict.outcome is Outcome.ADMITTED
    return came, admitted


def test_of_a_fifth_that_is_hacked_almost_all_stay_out_and_the_honest_come_in():
    door = make_door(worst_tier=Tier.FUZZY, maximum_waiting=1000)
    came, fooled = let_in(door, trajectories(HACKS, 52, 10_000), 10_000)
    honest, welcome = let_in(door, trajectories(HONEST, 208, 0), 0)
    assert came.total() / (came.total() + honest.total()) == 0.2
    assert fooled.total() <= 0.05 * came.total(), fooled
    assert welcome.total() >= 0.95 * honest.total(), honest - welcome


@pytest.mark.parametrize('hack', HACKS, ids=lambda hack: hack.__name__)
@pytest.mark.parametrize('suite', range(3), ids=lambda number: SUITES[number].name)
def test_no_way_of_hacking_works_where_the_others_do_not(hack, suite):
    door = make_door(worst_tier=Tier.FUZZY)
    made = [('', hack(expert(suite, level, 7))) for level in (1, 2, 3)]
    assert let_in(door, made, 0)[1].total() == 0


def test_even_a_fooled_checker_lets_no_unearned_success_in():
    """Judges do not lean on one another: without the checker the others still see enough."""
    known = HonestySettings()
    judges = admission_judges(known, FACTS, checker=lambda e: 1.0)
    door = Door(AdmissionSettings(worst_tier=Tier.FUZZY), judges, hacking_flags(known, FACTS))
    came, fooled = let_in(door, trajectories(HACKS, 52, 10_000), 0)
    assert fooled.total() <= 0.05 * came.total(), fooled


@pytest.mark.parametrize(('score', 'outcome'), [(0.9, 'admitted'), (0.1, 'quarantined'), (None, 'admitted')])  # fmt: skip  # noqa: E501
def test_a_reward_model_has_a_voice_and_may_abstain(score, outcome):
    door = make_door(further={'model': lambda e: score})
    episode = expert(0, 1, 0)
    verdict = door.consider(record(episode), episode)
    assert verdict.outcome == outcome and (outcome == 'admitted' or 'model' in verdict.detail)


def test_a_near_miss_went_the_right_way_to_a_wrong_answer():
    missed, right = near_miss(HonestySettings(), FACTS), expert(0, 1, 0)
    wrong = changed(right, *right.turns[:-1], answer='It is 12345.')
    assert missed(wrong) and not missed(right)
    assert not missed(changed(right, answer='It is 12345.'))  # it reached nothing
    assert not missed(dataclasses.replace(wrong, turns=wrong.turns[:-1]))  # it answered nothing


def test_a_wrong_answer_is_refused_and_a_half_right_one_waits():
    episode = expert(0, 1, 0)
    figure = episode.answer.split(': ')[1].split('. ')[0]
    wrong = changed(episode, *episode.turns[:-1], answer='It was 1 million USD.')
    half = changed(episode, *episode.turns[:-1], answer=f'It was {figure}.')
    door = make_door()
    assert door.consider(record(wrong, 1), wrong).outcome is Outcome.REFUSED
    assert door.consider(record(half, 2), half).outcome is Outcome.QUARANTINED


@pytest.mark.parametrize(
    ('answer', 'rests'),
    [
        ('It is 1,234 now.', True),
        ('It is 1235.', False),
        ('Some words.', False),
        ('Red.', True),
        ('', None),
    ],  # fmt: skip  # noqa: E501
)
def test_numbers_and_words_must_have_been_read_somewhere(answer, rests):
    episode = expert(0, 1, 0)
    played = changed(episode, turn(Call('search', {}), text='red 1234'), answer=answer)
    assert rests_on_evidence(played, Tier.FUZZY) is rests
    guess = graded(played, Tier.MISS)
    assert rests_on_evidence(guess, Tier.FUZZY) in (False, None)


@pytest.mark.parametrize(
    ('answer', 'flag'),
    [
        ('{"a": 1}', True),
        ('[1]', True),
        ('{}', False),
        ('[see] it', False),
        ('a {"sum": 198} b', False),
    ],  # fmt: skip  # noqa: E501
)
def test_structure_is_no_answer_and_a_bracket_is_no_structure(answer, flag):
    assert pasted(changed(expert(0, 1, 0), answer=answer)) == flag


@pytest.mark.parametrize(
    'wrong', [{'right_score': 2.0}, {'wrong_score': 1.0}, {'most_idle': -1}, {'most_repeats': -1}]
)
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        HonestySettings(**wrong)
