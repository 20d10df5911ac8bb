"""A cache is thinned by call and seed: evenly, the same way again, and never where it hurts."""

import collections

import pytest

from cacherl_jax.compose.agent import demonstrations, record_demonstrations
from cacherl_jax.tasks.suite import LEVELS
from cacherl_jax.tasks.suite import draw as draw_tasks
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.entry import make_entry
from cacherl_jax.tool_cache.key import call_key
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tool_cache.thinning import ThinSettings, reworded, thin, thin_file
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Result, Scope, Status, Tier, tool

THRESHOLD = 0.9


@tool
def weather(city: str, day: int) -> str:
    """Sky on a day."""
    return f'{city} {day}'


@tool
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@tool(scope=Scope.SESSION, changes_state=True)
def push(stack: list, number: int) -> int:
    """Put a number on top."""
    stack.append(number)
    return len(stack)


TOOLS = {each.identity: each for each in (weather, double, push)}


def entry(of, draw=0, state='', **arguments):
    key = call_key(of, arguments, state)
    result = Result(status=Status.OK, text=str(arguments), tier=Tier.LIVE, provenance='live')
    return make_entry(key, draw, result, task='t', recorded=0.0, gold=True)


def weathers(count):
    return [entry(weather, city=f'Lund{"abcdefghij"[n % 10]}', day=n) for n in range(count)]


def left(entries, **settings):
    return list(thin(entries, TOOLS, ThinSettings(**settings), THRESHOLD))


def test_nothing_is_taken_unless_asked_for():
    entries = weathers(50)
    assert left(entries) == entries


@pytest.mark.parametrize(('exact', 'fuzzy'), [(0.5, 0.17), (0.2, 0.0), (0.0, 1.0)])
def test_shares_are_those_asked_for(exact, fuzzy):
    entries = weathers(2000)
    kept = left(entries, exact=exact, fuzzy=fuzzy)
    same = len(set(map(id, kept)) & set(map(id, entries)))
    assert same / 2000 == pytest.approx(exact, abs=0.04)
    assert (len(kept) - same) / 2000 == pytest.approx(fuzzy, abs=0.04)


def test_what_is_left_depends_on_the_call_and_the_seed_alone():
    entries = weathers(200)
    some = left(entries, exact=0.3)
    assert left(entries[::-1], exact=0.3) == some[::-1]
    assert left(some, exact=0.3) == some
    assert set(map(id, some)) < set(map(id, left(entries, exact=0.6)))
    assert left(entries, exact=0.3, seed=1) != some


def test_draws_of_one_call_share_its_fate():
    entries = [entry(double, draw, number=n) for n in range(50) for draw in range(3)]
    counts = collections.Counter(each.key for each in left(entries, exact=0.5))
    assert set(counts.values()) == {3} and 10 < len(counts) < 40


def test_calls_that_change_a_state_stay():
    entries = [entry(push, state='s', number=n) for n in range(20)]
    assert left(entries, exact=0.0) == entries


def test_other_words_are_found_by_the_fuzzy_tier_alone():
    first, store = entry(weather, city='Lund', day=3), Store(':memory:')
    (other,) = left([first], exact=0.0, fuzzy=1.0)
    store.write([other])
    cache = make_tool_cache(store, ToolCacheSettings(mode='replay'))
    found = cache.find(weather, {'city': 'Lund', 'day': 3})
    assert (found.tier, found.entry.result.text) == (Tier.FUZZY, first.result.text)
    assert found.entry.gold == first.gold and other.source != first.source


def test_a_call_without_free_text_has_no_other_words():
    call = entry(double, number=3)
    assert reworded(double, call.key, THRESHOLD) is None
    assert left([call], exact=0.0, fuzzy=1.0) == []


def test_an_answer_of_an_unknown_tool_is_refused():
    with pytest.raises(ValueError, match='none of the 1 tools'):
        list(thin(weathers(1), {double.identity: double}, ThinSettings(), THRESHOLD))


@pytest.mark.parametrize('shares', [{'exact': -0.1}, {'exact': 0.6, 'fuzzy': 0.5}])
def test_shares_beyond_the_whole_are_refused(shares):
    with pytest.raises(ValueError, match='may sum to 1'):
        ThinSettings(**shares)


@pytest.mark.parametrize('suite', SUITES[:2], ids=lambda suite: suite.name)
def test_a_thinned_cache_answers_experts_by_the_shares_of_the_paper(suite, tmp_path):
    tasks = [task for level in LEVELS for task in draw_tasks(suite, 'train', level, 16)]
    tools = {each.identity: each for task in tasks for each in task.tools}
    path, live = tmp_path / 'cache.sqlite', live_sessions()
    cache = make_tool_cache(path)
    record_demonstrations(cache, played := demonstrations(tasks, live))
    cache.close()
    thin_file(path, tools, ThinSettings(exact=0.5, fuzzy=0.17), THRESHOLD)
    cache, tiers = make_tool_cache(path, ToolCacheSettings(mode='replay')), collections.Counter()
    for episode in played:
        session = cache.open_session(episode.task.id, episode.task.tools, episode.task.start)
        for turn in episode.turns:
            tiers.update(result.tier for result in session.answer(turn.calls))
    found = [tiers[Tier.EXACT], tiers[Tier.FUZZY], tiers[Tier.BEST_EFFORT] + tiers[Tier.MISS]]
    assert [n / tiers.total() for n in found] == pytest.approx([0.5, 0.17, 0.33], abs=0.08), tiers
    assert tiers[Tier.MISS] < 0.05 * tiers.total()


def test_a_cache_is_thinned_to_the_same_content_again(tmp_path):
    hashes = set()
    for name in ('one', 'other'):
        path = tmp_path / f'{name}.sqlite'
        store = Store(path)
        store.write(weathers(40))
        store.close()
        count = thin_file(path, TOOLS, ThinSettings(exact=0.4, fuzzy=0.3), THRESHOLD)
        cache = make_tool_cache(path)
        assert len(cache.entries()) == count < 40
        hashes.add(cache.content_hash)
    assert len(hashes) == 1
