"""A batch is scored by whom the settings name, at once, and an abstention has no part in it."""

import json
import pathlib

import pytest
from judge_server import says, serving
from rewards_episodes import ask, find, make_task, play, say

from cacherl_jax.rewards.facts import FactSettings, TerminationEffects, gather_facts
from cacherl_jax.rewards.final import FinalScorer, FinalSettings
from cacherl_jax.rewards.judges import rule_judge
from cacherl_jax.tasks.task import Termination

EFFECTS = TerminationEffects(max_turns='zero')
FILE = pathlib.Path(':memory:')
HEAD = {'reward_model': 1.0, 'head': 'somewhere'}


def episodes(*endings):
    """One episode an ending; the checker gives each the same."""
    task = make_task(score=lambda episode: 0.5)
    return [
        play(ask(find()), say(f'It is {n}.'), task=task, sample=n, ending=ending)
        for n, ending in enumerate(endings or [Termination.ANSWERED] * 3)
    ]


def scores(played, settings, row_scores=None):
    """What the facts of the batch say, None where an episode was not judged."""
    scorer = FinalScorer(settings, EFFECTS, FILE, row_scores)
    found = gather_facts(played, FactSettings(effects=EFFECTS), scorer.judge(played, 'rows'))
    told = zip(found.judged, found.answer_score, strict=True)
    return [round(float(score), 4) if judged else None for judged, score in told], scorer


def asking(url, **weights):
    where = {'endpoint': url, 'endpoint_model': 'm', 'votes': 1, 'quorum': 1}
    return FinalSettings(**({'rules': 0.0, 'language_model': 1.0} | where | weights))


def by_answer(body):
    """Grades an answer by its number; about answer 2 there is nothing to say."""
    text = body['messages'][-1]['content']
    number = next(n for n in range(3) if f'It is {n}.' in text)
    return says(json.dumps({'score': number + 3}) if number < 2 else 'well')


def test_the_checker_alone_is_the_checker():
    assert FinalScorer(FinalSettings(), EFFECTS, FILE).judge(episodes(), None) is rule_judge


def test_a_reward_model_is_given_the_rows_once_and_an_empty_answer_is_nothing():
    asked = []
    found, _ = scores(
        [*episodes(), play(say(''), sample=3)],
        FinalSettings(rules=0.0, **HEAD),
        lambda rows: asked.append(rows) or [0.1, 0.2, 0.9, 0.9],
    )
    assert (found, asked) == ([0.1, 0.2, 0.9, 0.0], ['rows'])


def test_a_language_model_is_asked_about_the_answers_that_keep_their_reward():
    played = episodes(Termination.ANSWERED, Termination.ANSWERED, Termination.MAX_TURNS)
    with serving(by_answer) as (url, script):
        found, scorer = scores(played, asking(url))
    assert found == [0.6, 0.8, None]
    assert len(script.asked) == 2 and scorer.metrics()['judge/asked'] == 2


def test_who_has_nothing_to_say_leaves_the_score_to_the_others():
    settings = {'rules': 1.0, 'language_model': 3.0, **HEAD, 'reward_model': 4.0}
    with serving(by_answer) as (url, _):
        found, _ = scores(episodes(), asking(url, **settings), lambda rows: [1.0, 0.0, 0.5])
    by_hand = [(0.5 + 3 * 0.6 + 4) / 8, (0.5 + 3 * 0.8) / 8, (0.5 + 4 * 0.5) / 5]
    assert found == pytest.approx(by_hand, abs=1e-4)


def test_where_nobody_has_anything_to_say_nobody_was_judged():
    with serving(lambda body: says('well')) as (url, _):
        assert scores(episodes(), asking(url))[0] == [None] * 3


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        ({'rules': 0.0}, 'somebody must score'),
        ({'rules': -1.0}, 'rules must be finite'),
        ({'reward_model': 1.0}, 'reward_model and head go together'),
        ({'head': 'x'}, 'reward_model and head go together'),
        ({'language_model': 1.0}, 'endpoint and endpoint_model go together'),
        ({'endpoint': 'http://127.0.0.1/v1'}, 'endpoint and endpoint_model go together'),
        (
            {'language_model': 1.0, 'endpoint': 'nowhere', 'endpoint_model': 'm'},
            'url',
        ),
        (
            {
                'language_model': 1.0, 'endpoint': 'http://127.0.0.1/v1', 'endpoint_model': 'm',
                'votes': 1,
            },
            'quorum must be in 1..votes',
        ),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        FinalSettings(**settings)


def test_a_reward_model_without_a_weight_is_our_mistake():
    with pytest.raises(ValueError, match='only there'):
        FinalScorer(FinalSettings(), EFFECTS, FILE, lambda rows: [])
