"""The fuzzy tier is held to pairs of calls that people would tell apart, or would not.

`experiments/bench_tool_cache_pairs.py` prints the rates by kind.
"""

import pytest

from cacherl_jax.tool_cache.alike import alike
from experiments.bench_tool_cache_pairs import Pair, found, read_pairs, wrong

PAIRS = read_pairs()
OTHER = [pair for pair in PAIRS if not pair.same]
SAME = [pair for pair in PAIRS if pair.same]


def test_both_kinds_of_pairs_are_many_and_none_comes_twice():
    told = [sorted((repr(pair.one), repr(pair.other))) for pair in PAIRS]
    assert len(OTHER) >= 300 and len(SAME) >= 190
    assert len({tuple(each) for each in told}) == len(PAIRS)


def test_no_call_is_answered_by_one_that_asks_for_something_else():
    assert wrong(OTHER) == []


def test_of_calls_that_ask_for_the_same_nine_in_ten_are_found():
    assert len(wrong(SAME)) <= 0.1 * len(SAME)


def test_a_false_hit_one_way_only_is_counted(monkeypatch):
    pair = Pair(False, 'x', {'query': 'cheap hotels'}, {'query': 'Cheap hotel'})
    assert wrong([pair]) == [pair]
    assert not found({'query': 'a b'}, {'query': 'b a'}, 0.0)


@pytest.mark.parametrize(
    'frame', ['please say whether {} is what they meant', '{} and nothing else']
)
def test_what_differs_differs_between_other_words_too(frame):
    texts = [(pair.one['query'], pair.other['query']) for pair in OTHER if pair.kind != 'call']
    framed = [(frame.format(one), frame.format(other)) for one, other in texts]
    assert [pair for pair in framed if alike(*pair) >= 0.9] == []
