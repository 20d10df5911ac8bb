"""Scorers by a known answer: right is 1, none is 0, not known is no score."""

import pytest
from rewards_episodes import ask, find, make_task, play, say

from cacherl_jax.rewards.scorers import (
    exact_scorer,
    f1_scorer,
    first_known,
    mean_known,
    numeric_scorer,
    place_of,
    recorded_scorer,
)

NAME = make_task().id


def answered(text):
    return play(ask(find()), say(text))


@pytest.mark.parametrize(
    ('scorer', 'answer', 'score'),
    [
        (exact_scorer({NAME: 'New York'}), 'new york.', 1.0),
        (exact_scorer({NAME: 'New York'}), 'York, New', 0.0),
        (f1_scorer({NAME: 'red blue'}), 'red green', 0.5),
        (numeric_scorer({NAME: 4.2e9}), 'It was 4.2 billion.', 1.0),
        (numeric_scorer({NAME: 4.2e9}), 'It was 4.3 billion.', 0.0),
        (numeric_scorer({NAME: 4.2e9}, tolerance_fraction=0.05), 'It was 4.3 billion.', 1.0),
        (numeric_scorer({NAME: 3.0}, most_numbers=2), '1 2 3', 0.0),
    ],
)
def test_an_answer_is_compared_with_the_one_that_is_known(scorer, answer, score):
    assert scorer(answered(answer)) == score


@pytest.mark.parametrize('make', [exact_scorer, f1_scorer, numeric_scorer])
def test_without_a_known_answer_there_is_no_score_and_without_an_answer_it_is_zero(make):
    assert make({})(answered('7')) is None
    assert make({NAME: 0})(play(ask(find()))) == 0.0


def test_recorded_scores_are_found_by_attempt():
    episode = answered('7')
    scorer = recorded_scorer({place_of(episode): 0.25})
    other = play(ask(find()), say('7'), sample=1)
    assert scorer(episode) == 0.25 and scorer(other) is None


def test_an_abstention_has_no_part_in_a_mean():
    one, half, none = (lambda e: 1.0), (lambda e: 0.5), (lambda e: None)
    assert mean_known({one: 1.0, half: 3.0})(answered('7')) == 0.625
    assert mean_known({one: 1.0, none: 9.0})(answered('7')) == 1.0
    assert mean_known({none: 1.0})(answered('7')) is None
    assert first_known(none, half, one)(answered('7')) == 0.5
    assert first_known(none)(answered('7')) is None


def test_a_part_that_breaks_its_contract_is_no_silent_share_of_a_mean():
    for together in (first_known(lambda e: 2.0), mean_known({lambda e: 2.0: 1.0})):
        with pytest.raises(ValueError, match='scores in'):
            together(answered('7'))


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (lambda: numeric_scorer({}, tolerance_fraction=-1.0), 'tolerance_fraction'),
        (lambda: numeric_scorer({}, most_numbers=0), 'most_numbers'),
        (lambda: numeric_scorer({'a': float('nan')}), 'finite'),
        (lambda: mean_known({}), 'weights'),
        (lambda: mean_known({exact_scorer({}): 0.0}), 'weights'),
    ],
)
def test_nonsense_is_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()
