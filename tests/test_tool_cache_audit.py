"""A hit is held to the truth in the state it was given in, and nothing else runs for it."""

import pytest

from cacherl_jax.tool_cache.audit import agreement, hits, judged, reexecuted, sampled
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tools.tool import Call, ParseError, Result, Scope, Status, Tier, Tool

NUMBER = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}
NOTHING = {'type': 'object', 'properties': {}}


def made(name, function, parameters=NUMBER, **settings):
    return Tool(name=name, description='x', parameters=parameters, function=function, **settings)


def push(stack, n):
    stack.append(n)
    return stack


PUSH = made('push', push, scope=Scope.SESSION, changes_state=True)
SLY = made('push', push, scope=Scope.SESSION)  # changes the state and does not say so
TOTAL = made('total', sum, NOTHING, scope=Scope.SESSION)
CALLS = [Call('push', {'n': 1}), Call('total', {}), Call('push', {'n': 2}), Call('total', {})]


def played(tools, *rounds):
    """Each round a list of turns; the last one's calls and results, answered after a commit."""
    cache = make_tool_cache(':memory:', ToolCacheSettings())
    for turns in rounds:
        session = cache.open_session('task', tools, list, 0)
        told = [(calls, session.answer(calls)) for calls in turns]
        cache.commit()
    return told


def check(tools, turns):
    return reexecuted('task', tools, list, turns, set(hits(turns)))


def test_hits_in_a_changing_state_are_true_when_the_state_is_part_of_the_key():
    turns = [CALLS[:2], CALLS[2:]]
    told = check([PUSH, TOTAL], played([PUSH, TOTAL], turns, turns))
    assert [(each.tier, each.same) for each in told] == [(Tier.EXACT, True)] * 4


def test_a_tool_wrongly_called_read_only_is_found_out():
    tools = [SLY, TOTAL]
    told = check(tools, played(tools, [CALLS[:2]], [CALLS[1:2]]))
    assert [(each.served, each.true, each.same) for each in told] == [('1', '0', False)]


def test_only_the_chosen_hits_and_the_changes_before_them_run():
    asked = []
    look = made('look', lambda n: asked.append(n) or n)
    turns = played([look], *[[[Call('look', {'n': n}) for n in range(3)]]] * 2)
    asked.clear()
    (told,) = reexecuted('task', [look], list, turns, {(0, 1)})
    assert asked == [1] and told.same


def test_parse_errors_and_live_answers_are_no_hits():
    broken, live = ParseError('x', 'y'), Result(status=Status.OK, text='1')
    error = Result(status=Status.PARSE_ERROR, text='x')
    assert hits([([broken, CALLS[1]], [error, live])]) == []


@pytest.mark.parametrize('count', [0, 2, 7, 100])
def test_a_sample_has_so_many_hits_and_is_the_same_every_time(count):
    hit = Result(status=Status.OK, text='1', tier=Tier.EXACT)
    episodes = [[(CALLS[:2], [hit, hit])] * number for number in range(4)]
    drawn = sampled(episodes, count)
    assert sum(map(len, drawn)) == min(count, 12) and drawn == sampled(episodes, count)
    every = [set(hits(turns)) for turns in episodes]
    assert all(part <= whole for part, whole in zip(drawn, every, strict=True))


@pytest.mark.parametrize(
    ('one', 'other', 'share'),
    [
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', 1.0),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', 0.5),
        ('{"a": 1}', '{"b": 1}', 0.0),
        ('[1, 2]', '[2, 1]', 1.0),
        ('[1, 1]', '[1]', 2 / 3),
        ('two words', 'two others', 0.5),
        ('', '', 1.0),
        ('{"a": 1}', '', 0.0),
    ],
)
def test_agreement_is_the_share_of_values_in_both(one, other, share):
    assert agreement(one, other) == agreement(other, one) == pytest.approx(share)


def test_only_the_order_of_names_is_forgiven():
    def same(one, other, status=Status.OK):
        answers = [Result(status=Status.OK, text=one), Result(status=status, text=other)]
        return judged('task', CALLS[0], *answers).same

    assert same('{"a": 1, "b": [1, 2]}', '{"b": [1, 2], "a": 1}')
    assert not same('[1, 2]', '[2, 1]') and not same('1', '1', Status.TOOL_ERROR)
