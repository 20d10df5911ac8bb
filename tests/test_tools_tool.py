"""A tool is what its signature says, and one that cannot be called as it says is refused."""

import datetime
import enum
from types import SimpleNamespace
from typing import Annotated, Literal

import pytest

from cacherl_jax.tools.foreign import from_langchain, from_mcp
from cacherl_jax.tools.tool import Scope, Tool, specification, tool

CITY = {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}


class Unit(enum.Enum):
    CELSIUS = 'c'
    FAHRENHEIT = 'f'


@tool(example=({'city': 'Oslo'}, 'rain'))
def weather(
    city: str,
    day: Annotated[str, 'today or tomorrow'] = 'today',
    kind: Literal['short', 'long'] = 'short',
    title: str | None = None,
) -> str:
    """Tells the weather
    of a city.

    Args:
        city: where it is,
            in English
    """
    return f'{city} {day} {kind} {title}'


def test_a_typed_documented_function_is_a_tool_in_one_line():
    schema = weather.parameters
    assert weather.description == 'Tells the weather of a city.'
    assert schema['properties']['city'] == {
        'description': 'where it is, in English',
        'type': 'string',
    }
    assert schema['properties']['day']['description'] == 'today or tomorrow'
    assert schema['properties']['kind']['enum'] == ['short', 'long']
    assert schema['required'] == ['city']


def test_a_schema_has_no_titles_but_keeps_an_argument_of_that_name():
    assert weather.parameters['properties']['title'] == {
        'type': ['string', 'null'],
        'default': None,
    }
    assert repr(weather.parameters).count("'title'") == 1


def test_the_state_of_a_session_tool_is_no_argument():
    @tool(scope=Scope.SESSION, changes_state=True)
    def put(basket: list, item: str):
        """Puts an item into the basket."""

    assert list(put.parameters['properties']) == ['item']


def test_dates_and_choices_reach_the_function_as_such():
    @tool
    def plan(day: datetime.date, unit: Unit = Unit.CELSIUS):
        """Plans a day."""
        return day.year, unit

    assert plan.function(day='2024-01-02', unit='f') == (2024, Unit.FAHRENHEIT)
    assert plan.parameters['properties']['unit']['default'] == 'c'


def test_the_specification_is_what_a_chat_template_takes():
    told = specification(weather)
    assert told['type'] == 'function'
    assert set(told['function']) == {'name', 'description', 'parameters'}


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'description': ' '}, 'description is missing'),
        ({'name': 'two words'}, 'one word'),
        ({'parameters': {'type': 'string'}}, "of type 'object'"),
        ({'parameters': CITY | {'required': ['town']}}, 'town'),
        ({'parameters': {'type': 'object', 'properties': {'city': {'type': 'text'}}}}, 'no schema'),
        ({'parameters': {'type': 'object', 'properties': {'town': {}}}}, "allows \\['town'\\]"),
        ({'parameters': {'type': 'object', 'properties': {'city': {}}}}, "needs 'city'"),
        ({'parameters': CITY | {'additionalProperties': True}}, 'any name'),
        ({'parameters': CITY | {'$ref': 'https://example.com/a'}}, 'not fetched'),
        ({'function': lambda city, /: city}, 'positional only'),
        ({'time_limit_seconds': 0}, 'above 0, got 0'),
        ({'changes_state': True}, "scope 'session', got 'pure'"),
        ({'example': ({'city': 3}, '')}, 'the example does not fit'),
    ],
)
def test_a_tool_that_does_not_fit_is_refused_by_name(change, words):
    fields = {'name': 'look', 'description': 'Looks.', 'parameters': CITY}
    with pytest.raises(ValueError, match=words):
        Tool(**({**fields, 'function': lambda city: city} | change))


def test_a_parameter_without_a_type_is_refused():
    with pytest.raises(ValueError, match='needs a type'):
        tool(lambda city: city)


def test_a_function_with_keywords_takes_any_schema():
    assert Tool(name='look', description='Looks.', parameters=CITY, function=lambda **k: k)


def test_prose_does_not_change_a_tools_identity_and_types_do():
    def like(parameters):
        fields = {'name': 'look', 'description': 'Looks.', 'function': lambda **k: k}
        return Tool(parameters=parameters, **fields).identity

    told = {'city': {'type': 'string', 'description': 'where'}}
    assert like(CITY) == like(CITY | {'properties': told, 'title': 'Look'})
    assert like(CITY) != like(CITY | {'properties': {'city': {'type': 'integer'}}})


def test_tools_come_from_an_mcp_list_and_from_langchain():
    entry = {'name': 'look', 'description': 'Looks.', 'inputSchema': CITY | {'title': 'x'}}
    found = from_mcp(entry, lambda **arguments: arguments['city'], scope=Scope.NEVER)
    assert (found.parameters, found.function(city='Oslo')) == (CITY, 'Oslo')
    model = SimpleNamespace(model_json_schema=lambda: CITY | {'title': 'x', 'description': 'y'})
    foreign = SimpleNamespace(name='look', description='Looks.', args_schema=model)
    foreign.invoke = lambda arguments: arguments['city']
    assert from_langchain(foreign).function(city='Rome') == 'Rome'
    assert from_langchain(foreign).parameters == CITY
