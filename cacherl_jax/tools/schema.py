"""JSON Schema of a tool's arguments: made from a signature, made compact, held against a function.

A typed function goes in, a small schema comes out.  Whether a call fits a schema is the business of
`arguments`.  Prompts are read by small models, so a schema carries no titles and no empty fields.
"""

import functools
import hashlib
import inspect
import itertools
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

import pydantic
import pydantic_core
from jsonschema import exceptions, validators

# Below these keywords stand names, and below those, values that are no schemas.
NAMED = ('properties', '$defs', 'definitions', 'patternProperties')
VERBATIM = ('default', 'const', 'enum', 'examples', 'required', 'type')
SECTION = re.compile(
    r'\s*(args|arguments|parameters|returns?|raises|yields|examples?)\s*:\s*', re.I
)
ARGUMENT = re.compile(r'^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$')


def without(schema: Any, keywords: frozenset[str]) -> Any:
    """The schema without these keywords; properties that happen to bear such a name stay."""
    if isinstance(schema, list):
        return [without(part, keywords) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {}
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, Mapping):
            kept[keyword] = {name: without(part, keywords) for name, part in value.items()}
        elif keyword in VERBATIM:
            kept[keyword] = value
        elif keyword not in keywords:
            kept[keyword] = without(value, keywords)
    return kept


def schema_hash(schema: Mapping[str, Any]) -> str:
    """Equal for schemas that accept the same calls in the same words; prose does not count."""
    bare = without(schema, frozenset({'title', 'description', 'examples', '$schema', '$comment'}))
    text = json.dumps(bare, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def read_docstring(function: Callable) -> tuple[str, dict[str, str]]:
    """The description and what the `Args:` section says about each parameter."""
    lines = (inspect.getdoc(function) or '').splitlines()
    sections = [index for index, line in enumerate(lines) if SECTION.fullmatch(line)]
    description = ' '.join(' '.join(lines[: sections[0] if sections else None]).split())
    arguments: dict[str, str] = {}
    for start, stop in itertools.pairwise([*sections, len(lines)]):
        if lines[start].strip().lower().startswith(('arg', 'param')):
            section = '\n'.join(lines[start + 1 : stop])
            arguments |= _read_arguments(inspect.cleandoc('\n' + section))
    return description, arguments


def _read_arguments(section: str) -> dict[str, str]:
    arguments, name = {}, ''
    for line in section.splitlines():
        found = ARGUMENT.match(line)
        if found:
            name, text = found[1].lstrip('*'), found[2].strip()
            arguments[name] = text
        elif name and line.strip():
            arguments[name] = f'{arguments[name]} {line.strip()}'.strip()
    return arguments


def schema_from_signature(function: Callable, takes_state: bool) -> dict[str, Any]:
    """The schema of a typed function's parameters; the first one is left out if it is the state."""
    hints = typing.get_type_hints(function, include_extras=True)
    told = read_docstring(function)[1]
    properties, required, definitions = {}, [], {}
    for parameter in named_parameters(function, takes_state):
        name = parameter.name
        if name not in hints:
            raise ValueError(
                f'parameter {name!r} of {function.__name__!r} needs a type, as in {name}: str'
            )
        schema = _property(hints[name], told.get(name, ''))
        definitions |= schema.pop('$defs', {})
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            schema['default'] = pydantic_core.to_jsonable_python(parameter.default)
        properties[name] = schema
    schema = {'type': 'object', 'properties': properties}
    schema |= {'required': required, '$defs': definitions}
    return {keyword: value for keyword, value in schema.items() if value or keyword == 'properties'}


def _property(annotation: Any, told: str) -> dict[str, Any]:
    described = told
    if typing.get_origin(annotation) is typing.Annotated:
        words = [note for note in annotation.__metadata__ if isinstance(note, str)]
        described = words[0] if words else told
    schema = without(pydantic.TypeAdapter(annotation).json_schema(), frozenset({'title'}))
    branches = schema.get('anyOf', [])
    if branches and all(set(branch) == {'type'} for branch in branches):
        schema['type'] = [branch['type'] for branch in schema.pop('anyOf')]
    return {'description': described, **schema} if described else schema


def named_parameters(function: Callable, takes_state: bool) -> list[inspect.Parameter]:
    """The parameters a call fills by name."""
    every = list(inspect.signature(function).parameters.values())
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if takes_state and every and every[0].kind not in variadic:
        every = every[1:]
    return [parameter for parameter in every if parameter.kind not in variadic]


def takes_anything(function: Callable) -> bool:
    """The function has **keywords, or a signature that Python cannot read."""
    try:
        every = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return True
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in every)


def check_schema(schema: Any) -> None:
    """Refuses what is no JSON Schema of an object."""
    if not isinstance(schema, Mapping) or schema.get('type') != 'object':
        raise ValueError(f"parameters must be a schema of type 'object', got {schema!r:.200}")
    try:
        _check_text(json.dumps(schema))
    except exceptions.SchemaError as error:
        where = list(error.path)
        raise ValueError(f'parameters are no schema: {error.message} at {where}') from error
    except TypeError as error:
        raise ValueError(f'parameters hold what JSON cannot: {error}') from error
    unknown = set(schema.get('required', ())) - set(schema.get('properties', {}))
    if unknown:
        raise ValueError(f'required names no property: {sorted(unknown)}')


@functools.lru_cache(maxsize=4096)
def _check_text(text: str) -> None:
    schema = json.loads(text)
    if re.search(r'"\$ref": "(?!#)', text):
        raise ValueError('parameters refer to another document, which is not fetched')
    validators.validator_for(schema, validators.Draft202012Validator).check_schema(schema)


def check_fit(schema: Mapping[str, Any], function: Callable, takes_state: bool) -> None:
    """Refuses a function that some call allowed by the schema cannot be handed to."""
    if takes_anything(function):
        return
    parameters = {each.name: each for each in named_parameters(function, takes_state)}
    properties, required = schema.get('properties', {}), set(schema.get('required', ()))
    only = inspect.Parameter.POSITIONAL_ONLY
    positional = [name for name, each in parameters.items() if each.kind is only]
    if positional:
        raise ValueError(f'arguments are passed by name, but {positional} are positional only')
    extra = sorted(set(properties) - set(parameters))
    if extra or schema.get('additionalProperties'):
        raise ValueError(
            f'the schema allows {extra or "any name"}, the function takes {sorted(parameters)} only'
        )
    for name, parameter in parameters.items():
        filled = name in required or 'default' in properties.get(name, {})
        if parameter.default is inspect.Parameter.empty and not filled:
            raise ValueError(
                f'the function needs {name!r}, but the schema neither requires it nor has a default'
            )
