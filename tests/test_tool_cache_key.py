"""Keys are equal for calls that mean the same, and for no others."""

import copy
import json
import unicodedata

import hypothesis
import pytest
from hypothesis import strategies as st

from cacherl_jax.tool_cache.key import call_key, canonical_arguments, first_state, next_state
from cacherl_jax.tools.tool import Scope, Tool

SCHEMA = {
    'type': 'object',
    'properties': {
        'text': {'type': 'string'},
        'count': {'type': 'integer', 'default': 3},
        'share': {'type': 'number'},
        'flag': {'type': 'boolean'},
        'either': {'anyOf': [{'type': 'number'}, {'type': 'string'}]},
        'free': {},
        'inner': {'type': 'object', 'properties': {'depth': {'type': 'number', 'default': 1}}},
        'list': {'type': 'array', 'items': {'type': 'number'}},
    },
}


def made(schema=SCHEMA, **changes):
    fields = {'name': 'look', 'description': 'Looks.', 'function': lambda *a, **k: k}
    return Tool(parameters=schema, **(fields | changes))


TOOL = made()
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        'text': st.text(st.characters(exclude_categories=['Cs']), max_size=8),
        'count': st.integers(-9, 9),
        'share': st.integers(-9, 9) | st.floats(-9, 9),
        'flag': st.booleans(),
        'inner': st.dictionaries(st.sampled_from(['depth', 'a', 'b']), st.integers(0, 3)),
        'list': st.lists(st.integers(0, 3), max_size=3),
    },
)


def rewritten(arguments):
    """The same meaning in another spelling."""
    other = dict(reversed(copy.deepcopy(arguments).items()))
    other.setdefault('count', 3)
    if 'text' in other:
        other['text'] = unicodedata.normalize('NFD', other['text'])
    for name in ('count', 'share'):
        if name in other:
            other[name] = float(other[name])
    if 'list' in other:
        other['list'] = [float(number) for number in other['list']]
    if 'inner' in other:
        other['inner'] = {'depth': 1.0} | dict(reversed(other['inner'].items()))
    return json.loads(json.dumps(other, indent=3))


@hypothesis.given(ARGUMENTS)
def test_calls_that_mean_the_same_share_a_key(arguments):
    assert call_key(TOOL, arguments) == call_key(TOOL, rewritten(arguments))


def meaning(arguments):
    """The slow route: every part by type and value, defaults filled in."""
    full = {'count': 3} | arguments
    if 'inner' in full:
        full['inner'] = {'depth': 1} | full['inner']
    if 'text' in full:
        full['text'] = unicodedata.normalize('NFC', full['text'])
    return {name: (isinstance(value, bool), value) for name, value in full.items()}


@hypothesis.given(ARGUMENTS, ARGUMENTS)
def test_keys_are_equal_exactly_when_meanings_are(one, other):
    same = meaning(one) == meaning(other)
    assert (call_key(TOOL, one) == call_key(TOOL, other)) is same


@pytest.mark.parametrize(
    ('one', 'other', 'same'),
    [
        ({'share': 1}, {'share': 1.0}, True),
        ({'share': -0.0}, {'share': 0}, True),
        ({'either': 1}, {'either': 1.0}, True),
        ({'either': 1}, {'either': '1'}, False),
        ({'free': 1}, {'free': 1.0}, False),
        ({'free': 1}, {'free': True}, False),
        ({'free': 1}, {'free': '1'}, False),
        ({'free': None}, {}, False),
        ({'free': [1, 2]}, {'free': [2, 1]}, False),
        ({'free': {'a': {'x': 1, 'y': 2}}}, {'free': {'a': {'y': 2, 'x': 1}}}, True),
        ({'text': 'é'}, {'text': 'e\u0301'}, True),
        ({'text': 'a '}, {'text': 'a'}, False),
        ({'inner': {}}, {}, False),
    ],
)
def test_the_type_decides_whether_two_values_are_one(one, other, same):
    assert (canonical_arguments(TOOL, one) == canonical_arguments(TOOL, other)) is same


def test_name_version_and_schema_are_part_of_the_key():
    others = [made(name='see'), made(version='2'), made({'type': 'object', 'properties': {}})]
    assert len({call_key(each, {}) for each in (TOOL, *others)}) == 4


def test_references_say_which_type_a_value_has():
    schema = {'type': 'object', 'properties': {'a': {'$ref': '#/$defs/n'}}}
    tool = made(schema | {'$defs': {'n': {'type': 'number'}}})
    assert call_key(tool, {'a': 2}) == call_key(tool, {'a': 2.0})


def test_only_session_tools_depend_on_the_state():
    session = made(scope=Scope.SESSION)
    assert call_key(TOOL, {}, 'a') == call_key(TOOL, {}, 'b')
    assert call_key(session, {}, 'a') != call_key(session, {}, 'b')


def test_the_state_is_the_ordered_history_of_one_task():
    put = made(scope=Scope.SESSION, changes_state=True)

    def after(task, *counts):
        state = first_state(task)
        for count in counts:
            state = next_state(call_key(put, {'count': count}, state))
        return state

    states = [after('a'), after('b'), after('a', 1), after('a', 1, 2), after('a', 2, 1)]
    assert len({*states, after('a', 1, 1)}) == 6
    assert after('a', 1, 3) == after('a', 1.0, 3)
