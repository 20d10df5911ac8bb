"""Laws that every suite keeps, at every level and in every split."""

import json
import re

import pytest

from cacherl_jax.tasks.suite import LEVELS, SPLITS, demonstrate, draw
from cacherl_jax.tasks.suites import ANALYSIS, RESEARCH, SUITES, TRIP
from cacherl_jax.tasks.task import Episode, Termination, Turn
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Status, specification

EVERY = [(suite, level, split) for suite in SUITES for level in LEVELS for split in SPLITS]
every = pytest.mark.parametrize(
    'suite, level, split', EVERY, ids=lambda value: getattr(value, 'name', str(value))
)
SESSIONS = live_sessions()
CALLS = {1: (2, 4), 2: (3, 5), 3: (4, 6)}  # fewest and most of an expert


def live(task):
    """Answers calls by running them."""
    return SESSIONS.open_session(task.id, task.tools, task.start).answer


def answering(task, text):
    turn = Turn(text=text, content=text)
    return Episode(task=task, sample=0, step=-1, turns=(turn,), termination=Termination.ANSWERED)


def story(episode):
    return [
        (turn.content, turn.calls, [(result.status, result.text) for result in turn.results])
        for turn in episode.turns
    ]


def characters(episode):
    said = sum(len(turn.content) for turn in episode.turns)
    calls = [call for turn in episode.turns for call in turn.calls]
    results = [result for turn in episode.turns for result in turn.results]
    said += sum(len(json.dumps({'name': call.name, 'arguments': call.arguments})) for call in calls)
    return said + sum(len(result.text) for result in results)


@every
def test_the_expert_solves_every_task(suite, level, split):
    for task in draw(suite, split, level, 24):
        episode = demonstrate(task, live(task))
        assert task.score(episode) == 1.0 and task.solved(episode), (task.id, episode.answer)
        assert all(goal.reached(episode.turns) for goal in task.subgoals)
        assert not any(goal.reached(()) for goal in task.subgoals)


@every
def test_every_listed_wrong_answer_scores_low(suite, level, split):
    for task in draw(suite, split, level, 9):
        assert len(task.wrong_answers) >= 5
        for wrong in task.wrong_answers:
            episode = answering(task, wrong)
            assert task.score(episode) < 0.5 and not task.solved(episode), (task.id, wrong)


@every
def test_an_answer_that_says_everything_twice_over_scores_nothing(suite, level, split):
    for task in draw(suite, split, level, 7):
        answer = demonstrate(task, live(task)).answer
        padded = answering(task, answer + ' ' + 'and so on ' * 20)
        assert task.score(padded) == 0.0 and not task.solved(padded)


@every
def test_the_same_number_gives_the_same_task(suite, level, split):
    one, two = (suite.task(split, level, 16) for _ in range(2))
    assert one.messages == two.messages and one.wrong_answers == two.wrong_answers
    assert story(demonstrate(one, live(one))) == story(demonstrate(two, live(two)))
    assert one.id == f'{suite.name}/{split}/{level}/00016'
    assert one.messages != suite.task(split, level, 17).messages


@pytest.mark.parametrize('suite', SUITES, ids=lambda suite: suite.name)
def test_splits_share_no_entity(suite):
    train, validation, test = (
        {task.entity for level in LEVELS for task in draw(suite, split, level, 150)}
        for split in SPLITS
    )
    assert not train & validation and not train & test and not validation & test
    assert min(map(len, (train, validation, test))) > 100


@every
def test_episodes_stay_small(suite, level, split):
    fewest, most = CALLS[level]
    for task in draw(suite, split, level, 9):
        episode = demonstrate(task, live(task))
        assert fewest <= sum(len(turn.calls) for turn in episode.turns) <= most
        assert characters(episode) + len(task.messages[0]['content']) < 1200
        assert len(json.dumps([specification(tool) for tool in task.tools])) <= 1400
        assert all(len(turn.content) <= 96 for turn in episode.turns[:-1])  # a note, one line


@pytest.mark.parametrize('suite', SUITES, ids=lambda suite: suite.name)
def test_harder_levels_have_distractors_and_failures(suite):
    for level in LEVELS:
        episodes = [demonstrate(task, live(task)) for task in draw(suite, 'train', level, 24)]
        failed = sum(
            any(result.status is not Status.OK for turn in episode.turns for result in turn.results)
            for episode in episodes
        )
        assert (failed > 8) if level == 3 else (failed == 0)
        for one in episodes:
            called = {call.name for turn in one.turns for call in turn.calls}
            assert level == 1 or {tool.name for tool in one.task.tools} - called


@pytest.mark.parametrize('place', [('dev', 1, 0), ('train', 4, 0), ('train', 1, -1)])
def test_a_task_that_cannot_be_is_refused(place):
    with pytest.raises(ValueError, match='must be'):
        SUITES[0].task(*place)


def test_the_wrong_branch_scores_low():
    for task in (task for level in LEVELS for task in draw(TRIP, 'test', level, 16)):
        answer = demonstrate(task, live(task)).answer
        wrong = [
            text for text in task.wrong_answers if text.count(', so ') == answer.count(', so ')
        ]
        assert len(wrong) >= 3 and max(task.score(answering(task, text)) for text in wrong) <= 0.4


def test_a_plan_of_every_branch_is_no_plan():
    task = TRIP.task('train', 2, 3)
    answer = demonstrate(task, live(task)).answer
    for dump in (
        'map baths, ' + answer,
        'Or sleet. ' + answer,
        answer + ' Also picnic at Low Park.',
    ):
        assert task.score(answering(task, dump)) < 0.5 and not task.solved(answering(task, dump))


def test_a_figure_with_two_units_is_no_figure():
    task = RESEARCH.task('train', 1, 3)
    answer = demonstrate(task, live(task)).answer
    figure = re.search(r'[\d.]+ \w+ [A-Z]{3}', answer)[0]
    for unit in ('billion USD', 'million USD'):
        other = answer.replace(figure, f'{figure} or {figure.split()[0]} {unit}')
        assert task.score(answering(task, other)) == 0.0 and not task.solved(answering(task, other))


def test_a_figure_alone_earns_seven_tenths_and_is_not_yet_success():
    task = RESEARCH.task('test', 3, 7)
    answer = demonstrate(task, live(task)).answer.split(' Sales ')[0]
    assert task.score(answering(task, answer)) == 0.7 and not task.solved(answering(task, answer))
    turned = answering(task, answer + ' Sales rose and fell on nothing.')
    assert task.score(turned) == 0.7 and not task.solved(turned)


@pytest.mark.parametrize('number', range(7))
def test_a_stateful_result_depends_on_the_calls_before_it(number):
    task = ANALYSIS.task('train', 1, number)
    load, keep, figure = (turn.calls[0] for turn in demonstrate(task, live(task)).turns[:3])
    whole, part = live(task), live(task)
    assert live(task)([figure])[0].status is Status.TOOL_ERROR
    assert whole([load, figure])[1].text != part([load, keep, figure])[2].text
    assert part([load, figure])[1].text == whole([figure])[0].text


def test_test_companies_make_drugs_and_the_others_software():
    ends = {split: {task.entity[-3:] for task in draw(RESEARCH, split, 1, 100)} for split in SPLITS}
    assert ends['train'] == ends['validation'] == {'tek', 'oft', 'net', 'yte', 'are'}
    assert ends['test'] == {'gen', 'ure', 'arm', 'vax', 'med'}


def test_some_wordings_are_seen_only_in_the_hardest_test_tasks():
    def starts(suite, split, level):
        return {task.messages[0]['content'].split()[0] for task in draw(suite, split, level, 100)}

    for suite in SUITES:
        assert 'Please' in starts(suite, 'test', 3)
        assert 'Please' not in starts(suite, 'train', 3) | starts(suite, 'test', 2)
