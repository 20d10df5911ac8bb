"""Reading decoded JSON by its parts: each takes a value and says where it stood and what came."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cacherl_jax.chat.strict_json import SPACE, decode_json, kind, short, skip_space


def only(fields: Any, where: str, *, needed: Sequence[str] = (), allowed: Sequence[str] = ()):
    """The object with its null fields left out; ValueError for a field missing or not allowed."""
    if not isinstance(fields, dict):
        raise ValueError(f'{where} must be an object, got {kind(fields)}')
    fields = {name: value for name, value in fields.items() if value is not None}
    unknown = set(fields) - set(needed) - set(allowed)
    if unknown:
        raise ValueError(
            f'{where} has the fields {sorted(unknown)}; allowed: {sorted({*needed, *allowed})}'
        )
    missing = set(needed) - set(fields)
    if missing:
        raise ValueError(f'{where} lacks {sorted(missing)}; it has {sorted(fields)}')
    return fields


def text_of(value: Any, where: str) -> str:
    """A string; OpenAI's list of text parts counts as their text."""
    if isinstance(value, list):
        return ''.join(_part(part, f'{where}, part {n}') for n, part in enumerate(value, 1))
    if not isinstance(value, str):
        raise ValueError(f'{where} must be text, got {kind(value)}')
    return value


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict) or part.get('type') != 'text':
        came = short(part.get('type')) if isinstance(part, dict) else kind(part)
        raise ValueError(f'{where} must be of type "text", got {came}')
    return text_of(only(part, where, needed=('type', 'text'))['text'], where)


def one_of(value: Any, choices: Sequence[str], where: str) -> str:
    """A string out of a few."""
    if value not in choices:
        raise ValueError(f'{where} must be one of {list(choices)}, got {short(value)}')
    return value


def list_of(value: Any, where: str, empty: bool = False) -> list:
    """A list, with something in it unless `empty`."""
    if not isinstance(value, list) or not (value or empty):
        came = 'an empty one' if value == [] else kind(value)
        raise ValueError(f'{where} must be an array, got {came}')
    return value


def arguments_of(value: Any, where: str) -> Mapping[str, Any]:
    """The arguments of a call: an object, or text that is the JSON of one."""
    if isinstance(value, str):
        value = json_of(value, where)
    if not isinstance(value, dict):
        raise ValueError(f'{where} must be an object or its JSON, got {kind(value)}')
    return value


def json_of(text: str, where: str) -> Any:
    """The one JSON value that a text holds."""
    try:
        value, stop = decode_json(text, skip_space(text, 0))
    except ValueError as error:
        raise ValueError(f'{where}: {error}, in {short(text)}') from None
    if text[stop:].strip(SPACE):
        raise ValueError(f'{where}: more text after the JSON: {short(text[stop:])}')
    return value


def call_of(value: Any, where: str) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments of a call."""
    function = only(value, where, needed=('name', 'arguments'))
    if not isinstance(function['name'], str) or not function['name']:
        raise ValueError(f'{where} must have a name, got {short(function["name"])}')
    return function['name'], arguments_of(function['arguments'], f'{where}, arguments')


def tools_of(value: Any, where: str = 'tools') -> tuple[Mapping, ...]:
    """Declared tools in the form that chat templates read, from a list or the JSON of one.

    Each is a function's description, bare or under `function`; fields it may lack are filled in.
    """
    value = json_of(value, where) if isinstance(value, str) and value.strip(SPACE) else value
    if value in (None, ''):
        return ()
    found = list_of(value, where, empty=True)
    return tuple(_tool(each, f'{where}, tool {number}') for number, each in enumerate(found, 1))


def _tool(value: Any, where: str) -> Mapping:
    if isinstance(value, dict) and 'function' in value:
        one_of(value.get('type', 'function'), ('function',), f'{where}, type')
        value = only(value, where, needed=('function',), allowed=('type',))['function']
    optional = ('description', 'parameters', 'strict')
    described = only(value, where, needed=('name',), allowed=optional)
    if not isinstance(described['name'], str) or not described['name']:
        raise ValueError(f'{where} must have a name, got {short(described["name"])}')
    parameters = described.get('parameters') or {'type': 'object', 'properties': {}}
    if not isinstance(parameters, dict):
        raise ValueError(f'{where}, parameters must be an object, got {kind(parameters)}')
    described = {
        'name': described['name'],
        'description': text_of(described.get('description', ''), f'{where}, description'),
        'parameters': parameters,
    }
    return {'type': 'function', 'function': json.loads(json.dumps(described))}
