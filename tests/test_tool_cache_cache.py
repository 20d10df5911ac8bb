"""What a session answers in each mode, and that a step's order changes nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.tool import Call, ParseError, Result, Scope, Status, Tier, Tool, Unavailable

NUMBER = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}
NOTHING = {'type': 'object', 'properties': {}}


def made(name, function, parameters=NUMBER, **settings):
    return Tool(name=name, description='x', parameters=parameters, function=function, **settings)


def push(stack, n):
    stack.append(n)
    return stack


SESSION = (
    made('push', push, scope=Scope.SESSION, changes_state=True),
    made('total', sum, NOTHING, scope=Scope.SESSION),
)


class Counted:
    """A pure tool that remembers what it was asked."""

    def __init__(self, answer=lambda n: n * 2):
        self.asked = []
        self.answer = answer
        self.tool = made('double', self)

    def __call__(self, n):
        self.asked.append(n)
        return self.answer(n)


def opened(store=':memory:', execute=None, **settings):
    return make_tool_cache(store, ToolCacheSettings(**settings), execute)


def ask(cache, tools, *calls, task='task', sample=0):
    return cache.open_session(task, tools, list, sample).answer(calls)


def texts(results):
    return [result.text for result in results]


def test_a_recorded_answer_equals_running_the_call():
    calls = [Call('push', {'n': 1}), Call('total', {}), Call('push', {'n': 2}), Call('total', {})]
    live = texts(live_sessions().open_session('task', SESSION, list, 0).answer(calls))
    cache = opened()
    first = ask(cache, SESSION, *calls)
    cache.commit()
    second = ask(cache, SESSION, *calls)
    assert live == texts(first) == texts(second) == ['[1]', '1', '[1, 2]', '3']
    assert {result.tier for result in first} == {Tier.LIVE}
    assert {result.tier for result in second} == {Tier.EXACT}
    assert cache.live_calls == 4


def test_a_replay_executes_nothing_not_even_what_is_never_stored():
    double, clock = Counted(), Counted()
    tools = (double.tool, made('clock', clock, scope=Scope.NEVER), *SESSION)
    cache = opened(mode='replay')
    calls = [Call('double', {'n': 1}), Call('clock', {'n': 1}), Call('push', {'n': 1})]
    results = ask(cache, tools, *calls)
    assert {(result.status, result.tier) for result in results} == {(Status.UNAVAILABLE, Tier.MISS)}
    assert (cache.live_calls, double.asked, clock.asked) == (0, [], [])
    assert cache.commit()['tool_cache/miss_fraction'] == 1


def test_a_never_tool_always_runs():
    clock = Counted()
    cache = opened()
    for _ in range(2):
        ask(cache, [made('clock', clock, scope=Scope.NEVER)], Call('clock', {'n': 1}))
        cache.commit()
    assert (clock.asked, len(cache.entries())) == ([1, 1], 0)


@pytest.mark.parametrize(
    ('mode', 'asked', 'kept'), [('read_through', 1, 1), ('record', 2, 1), ('live', 2, 0)]
)
def test_the_mode_says_what_runs_and_what_is_kept(mode, asked, kept):
    double = Counted()
    cache = opened(mode=mode)
    for _ in range(2):
        ask(cache, [double.tool], Call('double', {'n': 1}))
        cache.commit()
    assert (len(double.asked), len(cache.entries())) == (asked, kept)


def test_a_models_mistake_is_no_miss():
    cache = opened(mode='replay')
    results = ask(cache, SESSION, Call('nope', {}), Call('push', {}), ParseError('x', 'y'))
    assert [str(result.status) for result in results] == [
        'unknown_tool',
        'bad_arguments',
        'parse_error',
    ]
    assert cache.commit()['tool_cache/answers'] == 0


def test_a_new_answer_is_found_after_the_commit_only():
    double = Counted()
    cache = opened()
    for tier in (Tier.LIVE, Tier.LIVE):
        assert ask(cache, [double.tool], Call('double', {'n': 1}))[0].tier is tier
    cache.commit()
    (found,) = ask(cache, [double.tool], Call('double', {'n': 1.0}))
    assert (found.tier, found.seconds, found.provenance) == (Tier.EXACT, 0, 'live')
    assert found.source == cache.entries()[0].source
    assert double.asked == [1]


@pytest.mark.parametrize('order', [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_what_is_found_and_kept_does_not_depend_on_who_comes_first(order):
    def run(order):
        double, cache = Counted(), opened()
        rows = [[Call('double', {'n': n}), Call('double', {'n': 7})] for n in (1, 2, 1)]
        got = {row: ask(cache, [double.tool], *rows[row], task=f't{row}') for row in order}
        cache.commit()
        told = [(result.text, result.tier) for row in range(3) for result in got[row]]
        return told, cache.content_hash

    assert run(order) == run([0, 1, 2])


@pytest.mark.parametrize('failure', [None, Unavailable('x'), ValueError('x')])
def test_identical_misses_in_flight_run_once_and_share_the_outcome(failure):
    gate = threading.Event()

    def slow(n):
        gate.wait(5)
        if failure:
            raise failure
        return n

    double, cache = Counted(slow), opened()
    with ThreadPoolExecutor(8) as pool:
        waiting = [
            pool.submit(ask, cache, [double.tool], Call('double', {'n': 1}), sample=sample)
            for sample in range(8)
        ]
        gate.set()
        results = {each.result() for each in waiting}
    assert (len(double.asked), len(results)) == (1, 1)


def test_our_exception_reaches_all_who_wait():
    cache = opened()

    def broken():
        raise KeyError('start')

    for _ in range(2):
        with pytest.raises(KeyError):
            cache.open_session('task', SESSION, broken, 0).answer([Call('push', {'n': 1})])


def test_a_transient_failure_is_not_stored_and_a_lasting_one_is():
    failures = {1: Unavailable('x'), 2: TimeoutError(), 3: ValueError('x')}

    def fail(n):
        raise failures[n]

    cache = opened()
    ask(cache, [Counted(fail).tool], *(Call('double', {'n': n}) for n in failures))
    cache.commit()
    assert [entry.result.status for entry in cache.entries()] == [Status.TOOL_ERROR]


def test_a_later_turn_may_try_again_what_came_to_nothing():
    failures = iter([Unavailable('x')])

    def flaky(n):
        for failure in failures:
            raise failure
        return 'fine'

    session = opened().open_session('task', [Counted(flaky).tool], list, 0)
    first, second = (session.answer([Call('double', {'n': 1})])[0] for _ in range(2))
    assert (first.status, second.text) == (Status.UNAVAILABLE, 'fine')


def test_after_cached_answers_a_miss_finds_the_state_it_expects():
    cache = opened()
    ask(cache, SESSION, Call('push', {'n': 1}), Call('push', {'n': 2}))
    cache.commit()
    session = cache.open_session('task', SESSION, list, 1)
    told = session.answer([Call('push', {'n': 1}), Call('push', {'n': 2}), Call('total', {})])
    assert [(result.text, result.tier) for result in told] == [
        ('[1]', Tier.EXACT),
        ('[1, 2]', Tier.EXACT),
        ('3', Tier.LIVE),
    ]
    assert session.answer([Call('push', {'n': 3})])[0].text == '[1, 2, 3]'


def test_another_rollouts_run_moves_this_ones_state_as_well():
    cache = opened()
    one, other = (cache.open_session('task', SESSION, list, sample) for sample in range(2))
    assert texts(one.answer([Call('push', {'n': 1})])) == ['[1]']
    assert texts(other.answer([Call('push', {'n': 1}), Call('push', {'n': 5})])) == [
        '[1]',
        '[1, 5]',
    ]


def test_the_same_call_in_another_history_is_another_call():
    cache = opened()
    ask(cache, SESSION, Call('push', {'n': 1}), Call('total', {}))
    cache.commit()
    calls = [Call('total', {}), Call('push', {'n': 1}), Call('push', {'n': 1}), Call('total', {})]
    results = ask(cache, SESSION, *calls)
    assert texts(results) == ['0', '[1]', '[1, 1]', '2']
    assert [result.tier for result in results] == [Tier.LIVE, Tier.EXACT, Tier.LIVE, Tier.LIVE]


def test_the_samples_of_a_group_get_different_draws_and_always_the_same_ones():
    draws = iter(range(100))
    dice = Counted(lambda n: next(draws))
    settings = {'stochastic': ('double',), 'draws': 3}
    cache = opened(mode='read_through', **settings)

    def group():
        return [
            ask(cache, [dice.tool], Call('double', {'n': 1}), sample=sample)[0].text
            for sample in range(7)
        ]

    live = group()
    cache.commit()
    assert live == group() and len(set(live)) == 3 and len(dice.asked) == 3
    assert len(set(live[:3])) == 3


def test_a_demonstration_is_replayed_with_its_states():
    calls = [Call('push', {'n': 1}), Call('total', {}), Call('push', {'n': 2}), Call('total', {})]
    results = live_sessions().open_session('task', SESSION, list, 0).answer(calls)
    cache = opened(mode='replay')
    told = cache.record_results('task', SESSION, zip(calls, results, strict=True))
    assert told == {'stored': 4}
    replayed = ask(cache, SESSION, *calls)
    assert texts(replayed) == texts(results)
    assert {result.provenance for result in replayed} == {'teacher'}
    assert ask(cache, SESSION, *calls, task='other')[0].tier is Tier.MISS


def test_what_is_not_recorded_is_counted_under_its_reason():
    double, fine = Counted().tool, Result(status=Status.OK, text='2')
    clock = made('clock', lambda n: n, scope=Scope.NEVER)
    pairs = [
        (Call('double', {'n': 1}), fine),
        (Call('double', {'n': 1}), fine),
        (Call('double', {'n': 1}), Result(status=Status.OK, text='3')),
        (Call('double', {'n': 2}), Result(status=Status.TIMEOUT, text='')),
        (Call('double', {'n': 3}), Result(status=Status.OK, text='2', tier=Tier.FUZZY)),
        (Call('double', {'m': 1}), fine),
        (Call('clock', {'n': 1}), fine),
        (Call('nope', {}), fine),
        (ParseError('x', 'y'), Result(status=Status.PARSE_ERROR, text='')),
    ]
    told = opened().record_results('task', [double, clock], pairs)
    reasons = ['stored', 'known', 'differs', 'timeout', 'guessed', 'bad_arguments', 'never']
    assert told == dict.fromkeys([*reasons, 'unknown_tool', 'parse_error'], 1)


def test_a_simulated_answer_stays_one():
    double = Counted()
    cache = opened()
    simulated = Result(status=Status.OK, text='2', provenance='simulated')
    cache.record_results('task', [double.tool], [(Call('double', {'n': 1}), simulated)])
    assert ask(cache, [double.tool], Call('double', {'n': 1}))[0].provenance == 'simulated'


def test_a_stored_answer_is_cut_where_it_is_read():
    cache = opened(execute=ExecuteSettings(result_characters=100))
    double = Counted(lambda n: 'x' * 500)
    live = ask(cache, [double.tool], Call('double', {'n': 1}))
    cache.commit()
    again = ask(cache, [double.tool], Call('double', {'n': 1}))
    assert texts(live) == texts(again) and len(live[0].text) == 100
    assert len(cache.entries()[0].result.text) == 500


def test_another_content_than_demanded_is_refused(tmp_path):
    cache = opened(tmp_path / 'cache.db')
    ask(cache, [Counted().tool], Call('double', {'n': 1}))
    cache.commit()
    demanded = cache.content_hash
    cache.close()
    opened(tmp_path / 'cache.db', content_hash=demanded).close()
    with pytest.raises(ValueError, match='the settings demand 0000'):
        opened(tmp_path / 'cache.db', content_hash='0000')


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        ({'mode': 'replai'}, "mode must be one of .*'replay'.* got 'replai'"),
        ({'draws': 0}, 'draws must be at least 1, got 0'),
        ({'draws': 2}, 'stochastic names no tool'),
        ({'entries': 0}, 'entries must be at least 1, got 0'),
    ],
)
def test_nonsense_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        ToolCacheSettings(**settings)
