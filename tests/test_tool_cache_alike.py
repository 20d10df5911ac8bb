"""Laws of likeness for all texts, not for chosen pairs: what is added, changed, swapped counts."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from cacherl_jax.tool_cache.alike import alike, signature
from cacherl_jax.tool_cache.tiers import TierSettings
from experiments.bench_tool_cache_pairs import read_pairs

THRESHOLD = TierSettings().fuzzy_threshold
WORDS = (
    'cheap hotels near station Rome Paris report quarterly revenue weather tomorrow order items '
    'flight ticket Boston price gold customers students energy solar policy energy-saving Müller '
    "children's menu open restaurants night budget annual Apple iPhone médecins museum trains glass"
).split()
SPOKEN = st.lists(st.sampled_from(WORDS), min_size=1, max_size=14, unique=True)
ANYTHING = st.text(max_size=30) | SPOKEN.map(' '.join)


@hypothesis.given(ANYTHING, ANYTHING)
def test_likeness_is_between_0_and_1_and_the_same_both_ways(one, other):
    assert alike(one, other) == alike(other, one)
    assert 0 <= alike(one, other) <= 1 == alike(one, one)


@hypothesis.given(SPOKEN, st.data())
def test_a_word_that_says_something_counts_wherever_it_stands(words, data):
    place = data.draw(st.integers(0, len(words)))
    for word in ('not', 'without', 'except', '7', 'only', 'public', '$', '-'):
        more = [*words[:place], word, *words[place:]]
        if word != '-' or place == 0:  # between words it is a dash
            assert alike(' '.join(words), ' '.join(more)) < THRESHOLD


@hypothesis.given(SPOKEN, st.integers(0, 10**6), st.integers(0, 10**6), st.data())
def test_another_number_is_another_request(words, one, other, data):
    place = data.draw(st.integers(0, len(words)))
    texts = [' '.join([*words[:place], str(n), *words[place:]]) for n in (one, other)]
    assert (alike(*texts) >= THRESHOLD) is (one == other)


@hypothesis.given(SPOKEN.filter(lambda words: len(words) > 1), st.data())
def test_two_words_that_change_places_change_the_request(words, data):
    one, other = sorted(data.draw(st.sets(st.integers(0, len(words) - 1), min_size=2, max_size=2)))
    swapped = list(words)
    swapped[one], swapped[other] = words[other], words[one]
    assert alike(' '.join(words), ' '.join(swapped)) < THRESHOLD


@hypothesis.given(SPOKEN)
def test_case_spaces_articles_and_a_full_stop_do_not_count(words):
    hypothesis.assume('iPhone' not in words or len(words) > 1)  # a word with odd capitals is code
    hypothesis.assume(not words[0].isupper())
    text = ' '.join(words)
    for same in (text.lower(), f'  {"  ".join(words)} ', f'the {text[0].lower()}{text[1:]}.'):
        assert alike(text, same) >= THRESHOLD


@hypothesis.given(ANYTHING, ANYTHING)
def test_texts_that_are_alike_at_all_share_a_signature(one, other):
    texts = [one, other, f'The {one}', one.upper(), one.lower(), f'{one} really']
    for first, second in itertools.product(texts, texts):
        assert not alike(first, second) or signature(first) == signature(second)


def test_pairs_that_are_alike_share_a_signature():
    texts = [
        (pair.one['query'], pair.other['query']) for pair in read_pairs() if pair.kind != 'call'
    ]
    found = [pair for pair in texts if alike(*pair)]
    assert len(found) > 150 and all(signature(one) == signature(other) for one, other in found)


@pytest.mark.parametrize('letter', 'aeiou')
def test_one_letter_is_not_forgiven(letter):
    assert alike(f'reservat{letter}n policy', 'reservation policy') == 0
