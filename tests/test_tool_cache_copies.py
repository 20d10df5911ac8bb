"""A miss goes on from the latest state that is kept; what is answered never depends on that."""

import copy

import hypothesis
import pytest
from hypothesis import strategies as st

from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.copies import StateCopies
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.tool import Call, Scope, Status, Tier, Tool, Unavailable
from cacherl_jax.tools.world import Forkable

NUMBER = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}
NOTHING = {'type': 'object', 'properties': {}}
START = Forkable(list, copy.deepcopy)


def made(name, function, parameters=NUMBER, **settings):
    return Tool(
        name=name, description='x', parameters=parameters, function=function,
        scope=Scope.SESSION, **settings,
    )  # fmt: skip


def push(stack, n):
    stack.append(n)
    return len(stack)


def pop(stack):
    return stack.pop()  # of an empty stack: an error that lasts


PUSH = made('push', push, changes_state=True)
TOOLS = (PUSH, made('pop', pop, NOTHING, changes_state=True), made('total', sum, NOTHING))
CALLS = st.sampled_from([*(Call('push', {'n': n}) for n in range(3)), Call('pop', {})])
EPISODE = st.lists(CALLS | st.just(Call('total', {})), max_size=7)


def opened(execute=None, **settings):
    return make_tool_cache(':memory:', ToolCacheSettings(**settings), execute)


def play(sessions, calls, start=START, tools=TOOLS, sample=0):
    session = sessions.open_session('task', tools, start, sample)
    return [session.answer([call])[0] for call in calls]


def texts(results):
    return [(result.status, result.text) for result in results]


@hypothesis.given(st.lists(EPISODE, max_size=6), st.integers(0, 3))
def test_answers_are_those_of_running_every_call_whatever_is_kept(episodes, copies):
    cache = opened(copies=copies)
    for calls in episodes:
        assert texts(play(cache, calls)) == texts(play(live_sessions(), calls))
        cache.commit()


PUSHES = [Call('push', {'n': n}) for n in range(5)]


@pytest.mark.parametrize(
    ('start', 'copies', 'runs'),
    [(START, 64, 1), (START, 0, 6), (list, 64, 6)],
    ids=['latest state', 'none kept', 'cannot be copied'],
)
def test_a_miss_after_cached_calls_runs_what_lies_behind_the_latest_copy(start, copies, runs):
    cache = opened(copies=copies)
    play(cache, PUSHES, start)
    cache.commit()
    before = cache.live_calls
    told = play(cache, [*PUSHES, Call('total', {})], start)
    assert [result.tier for result in told] == [Tier.EXACT] * 5 + [Tier.LIVE]
    assert (told[-1].text, cache.live_calls - before) == ('10', runs)


def test_calls_beyond_the_latest_copy_run_again():
    cache = opened()
    for calls, start in ((PUSHES[:2], START), (PUSHES, list)):
        play(cache, calls, start)
        cache.commit()
    before = cache.live_calls
    assert play(cache, [*PUSHES, Call('total', {})])[-1].text == '10'
    assert cache.live_calls - before == 3 + 1


def test_two_attempts_go_on_from_one_copy_without_meeting():
    cache = opened()
    play(cache, PUSHES[:2])
    cache.commit()
    one, other = (cache.open_session('task', TOOLS, START, sample) for sample in range(2))
    for session, n in ((one, 1), (other, 2)):
        session.answer([*PUSHES[:2], Call('push', {'n': n})])
    told = [session.answer([Call('total', {})])[0].text for session in (one, other)]
    assert told == ['2', '3']


def test_a_copy_is_found_after_the_commit_only():
    cache = opened()
    play(cache, PUSHES[:2])
    before = cache.live_calls
    play(cache, [*PUSHES[:2], Call('total', {})], sample=1)  # answered by flights, then rebuilt
    assert cache.live_calls - before == 3


@pytest.mark.parametrize('mode', ['replay', 'record', 'live'])
def test_no_copy_is_made_where_none_is_ever_needed(mode):
    def never(state):
        raise AssertionError('copied')

    play(opened(mode=mode), PUSHES, Forkable(list, never))


@pytest.mark.parametrize('order', [(3, 1, 2), (2, 3, 1)])
def test_of_too_many_states_the_same_stay_in_any_order(order):
    copies = StateCopies(2)
    for n in order:
        copies.offer(f's{n}', [n], list)
    copies.commit()
    assert [copies.take(f's{n}') for n in (1, 2, 3)] == [[1], [2], None]
    copies.offer('s3', [3], list)
    copies.commit()  # s1 and s2 were of use just now, s3 came just now: the last name leaves
    assert [copies.take(f's{n}') for n in (1, 2, 3)] == [None, [2], [3]]


def test_a_state_that_cannot_be_rebuilt_answers_nothing_and_is_not_stored():
    rolls = iter(range(100))
    tools = (made('roll', lambda stack: stack.append(next(rolls)) or stack[-1], NOTHING,
                  changes_state=True), TOOLS[-1])  # fmt: skip
    cache = opened()
    play(cache, [Call('roll', {})], list, tools)
    cache.commit()
    told = play(cache, [Call('roll', {}), Call('total', {})], list, tools)
    assert [result.status for result in told] == [Status.OK, Status.UNAVAILABLE]
    assert 'roll answers otherwise now' in told[1].text
    cache.commit()
    assert len(cache.entries()) == 1


def test_a_copy_keeps_what_a_chance_did():
    rolls = iter(range(5, 100))
    tools = (made('roll', lambda stack: stack.append(next(rolls)) or stack[-1], NOTHING,
                  changes_state=True), TOOLS[-1])  # fmt: skip
    cache = opened()
    play(cache, [Call('roll', {})], tools=tools)
    cache.commit()
    assert play(cache, [Call('roll', {}), Call('total', {})], tools=tools)[1].text == '5'


def test_an_answer_that_was_cut_when_it_was_recorded_rebuilds_its_state():
    def shout(stack, n):
        stack.append(n)
        return f'{n} ' * 200

    tools = (made('shout', shout, changes_state=True), TOOLS[-1])
    execute, calls = ExecuteSettings(result_characters=100), [Call('shout', {'n': 3})]
    recorded = play(live_sessions(execute), calls, tools=tools)
    cache = opened(execute)
    cache.record_results('task', tools, zip(calls, recorded, strict=True))
    assert len(recorded[0].text) == 100
    assert play(cache, [*calls, Call('total', {})], tools=tools)[1].text == '3'


def test_a_lasting_outage_of_a_changing_call_changes_nothing():
    def closed(stack, n):
        raise Unavailable('closed')

    tools = (made('closed', closed, changes_state=True, outage_lasts=True), PUSH, TOOLS[-1])
    calls = [Call('closed', {'n': 1}), Call('push', {'n': 2})]
    cache = opened()
    play(cache, calls, tools=tools)
    cache.commit()
    told = play(cache, [*calls, Call('total', {})], list, tools)
    assert [result.tier for result in told] == [Tier.EXACT, Tier.EXACT, Tier.LIVE]
    assert told[-1].text == '2'


def test_a_number_of_copies_below_none_is_refused():
    with pytest.raises(ValueError, match='copies must be 0 or more, got -1'):
        ToolCacheSettings(copies=-1)
