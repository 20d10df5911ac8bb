"""Laws that every suite keeps, at every level and in every split."""

import json

import pytest

from cacherl_jax.tasks.suite import LEVELS, SPLITS, demonstrate, draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tasks.task import Episode, Termination, Turn
from cacherl_jax.tools.tool import Result, Scope, Status, Unavailable

EVERY = [(suite, level, split) for suite in SUITES for level in LEVELS for split in SPLITS]
every = pytest.mark.parametrize(
    'suite, level, split', EVERY, ids=lambda value: getattr(value, 'name', str(value))
)
CALLS = {1: (2, 4), 2: (3, 5), 3: (4, 6)}  # fewest and most of an expert


def live(task):
    """A session that runs each call at once and turns what a tool raises into a result."""
    state, tools = task.start(), {tool.name: tool for tool in task.tools}

    def run(call):
        tool = tools[call.name]
        first = (state,) if tool.scope is Scope.SESSION else ()
        try:
            answer = tool.function(*first, **call.arguments)
        except Unavailable as error:
            return Result(status=Status.UNAVAILABLE, text=str(error))
        except ValueError as error:
            return Result(status=Status.TOOL_ERROR, text=str(error))
        return Result(status=Status.OK, text=json.dumps(answer))

    return lambda calls: tuple(map(run, calls))


def answering(task, text):
    turn = Turn(text=text, content=text)
    return Episode(task=task, sample=0, step=-1, turns=(turn,), termination=Termination.ANSWERED)


def spell(tool):
    function = dict(name=tool.name, description=tool.description, parameters=tool.parameters)
    return {'type': 'function', 'function': function}


def characters(episode):
    said = sum(len(turn.content) for turn in episode.turns)
    calls = [call for turn in episode.turns for call in turn.calls]
    results = [result for turn in episode.turns for result in turn.results]
    said += sum(len(json.dumps({'name': call.name, 'arguments': call.arguments})) for call in calls)
    return said + sum(len(result.text) for result in results)


@every
def test_the_expert_solves_every_task(suite, level, split):
    for task in draw(suite, split, level, 40):
        episode = demonstrate(task, live(task))
        assert task.score(episode) == 1.0 and task.solved(episode), (task.id, episode.answer)
        assert all(goal.reached(episode.turns) for goal in task.subgoals)
        assert not any(goal.reached(()) for goal in task.subgoals)


@every
def test_every_listed_wrong_answer_scores_low(suite, level, split):
    for task in draw(suite, split, level, 40):
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
    assert demonstrate(one, live(one)).turns == demonstrate(two, live(two)).turns
    assert one.id == f'{suite.name}/{split}/{level}/00016'
    assert one.messages != suite.task(split, level, 17).messages


@pytest.mark.parametrize('suite', SUITES, ids=lambda suite: suite.name)
def test_splits_share_no_entity(suite):
    train, validation, test = (
        {task.entity for level in LEVELS for task in draw(suite, split, level, 300)}
        for split in SPLITS
    )
    assert not train & validation and not train & test and not validation & test
    assert min(map(len, (train, validation, test))) > 100


@every
def test_episodes_stay_small(suite, level, split):
    fewest, most = CALLS[level]
    for task in draw(suite, split, level, 40):
        episode = demonstrate(task, live(task))
        assert fewest <= sum(len(turn.calls) for turn in episode.turns) <= most
        assert characters(episode) + len(task.messages[0]['content']) < 1200
        assert len(json.dumps([spell(tool) for tool in task.tools])) <= 1400
        assert all(not turn.content for turn in episode.turns[:-1])


@pytest.mark.parametrize('suite', SUITES, ids=lambda suite: suite.name)
def test_harder_levels_have_distractors_and_failures(suite):
    for level in LEVELS:
        episodes = [demonstrate(task, live(task)) for task in draw(suite, 'train', level, 40)]
        failed = sum(
            any(result.status is not Status.OK for turn in episode.turns for result in turn.results)
            for episode in episodes
        )
        assert (failed > 20) if level == 3 else (failed == 0)
        for one in episodes:
            called = {call.name for turn in one.turns for call in turn.calls}
            assert level == 1 or {tool.name for tool in one.task.tools} - called


@pytest.mark.parametrize('place', [('dev', 1, 0), ('train', 4, 0), ('train', 1, -1)])
def test_a_task_that_cannot_be_is_refused(place):
    with pytest.raises(ValueError, match='must be'):
        SUITES[0].task(*place)
