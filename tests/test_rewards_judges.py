"""Matchers of answers: what is right is found, and listing everything is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacherl_jax.rewards.judges import exact_match, numbers_in, numeric_match, token_f1


@pytest.mark.parametrize(
    'text, numbers',
    [
        ('revenue of $4.2 billion', [4.2e9]),
        ('1,234,567.5 EUR, 3', [1234567.5, 3.0]),
        ('a loss of -7 and −8', [-7.0, -8.0]),
        ('12%, 3 million, 5k, 7 km', [0.12, 3e6, 5e3, 7.0]),
        ('1e3 and .5', [1000.0, 0.5]),
        ('2019-2023', [2019.0, 2023.0]),
        ('version v2 of x3', []),
        ('', []),
    ],
)
def test_numbers_are_read_as_people_write_them(text, numbers):
    assert numbers_in(text) == pytest.approx(numbers)


@pytest.mark.parametrize(
    'answer, expected, score',
    [
        ('It was 4.2 billion in 2023.', 4.2e9, 1.0),
        ('It was 4.2 million in 2023.', 4.2e9, 0.0),
        ('4.21', 4.2, 1.0),
        ('4.25', 4.2, 0.0),
        ('0', 0.0, 1.0),
        ('1 2 3 4 5', 3.0, 0.0),
        ('none', 0.0, 0.0),
    ],
)
def test_a_number_matches_within_its_tolerance(answer, expected, score):
    assert numeric_match(answer, expected) == score


def test_spelling_is_nothing_to_an_exact_match_and_sign_and_order_are():
    assert exact_match('The Café,  Paris!', 'cafe\u0301 paris') == 1
    assert exact_match('-7', '7') == exact_match('a to b', 'b to a') == 0


@given(st.text(max_size=16), st.text(max_size=16))
def test_f1_is_mutual_and_within_its_range(one, other):
    assert token_f1(one, one) == 1.0
    assert 0 <= token_f1(one, other) == token_f1(other, one) <= 1


def test_f1_counts_each_word_once():
    assert token_f1('red red red', 'red blue') == pytest.approx(2 / 5)
