"""Do the arguments fit the tool, and what do they mean?  Text and numbers only; nothing runs.

`problem` says what is wrong in words for the policy.  `fit` gives arguments that mean the same one
spelling: keys sorted, defaults filled in, Unicode NFC, and 1.0 written 1 where the schema says that
it is a number.  Tools are run with fitted arguments, so that a cached answer is the answer.
"""

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

from jsonschema.exceptions import ValidationError

from cacherl_jax.tools.tool import Tool

NUMERIC = frozenset({'number', 'integer'})
HUGE = 10**300  # Python refuses to write much longer integers
EXACT = 2**53  # from here on a float no longer says which integer it means


def problem(tool: Tool, arguments: Any) -> dict[str, Any] | None:
    """What is wrong with the arguments: which one, what was expected; None if nothing."""
    if not isinstance(arguments, Mapping):
        return {'expected': 'an object of arguments', 'got': type(arguments).__name__}
    names, schema = list(tool.parameters.get('properties', {})), tool.parameters
    for name in arguments:
        if name not in names and not _others_allowed(schema):
            return {'argument': name, 'problem': 'not known', 'allowed': names}
    try:
        errors = list(tool.validator.iter_errors(dict(arguments)))
        unclean = _unclean(arguments)
    except RecursionError:
        return {'expected': 'arguments that are nested less deeply'}
    if errors:
        return _explain(min(errors, key=lambda error: list(map(str, error.path))))
    return {'expected': unclean} if unclean else None


def _others_allowed(schema: Mapping) -> bool:
    """An argument that no property names is a slip, unless the schema speaks of such arguments."""
    return bool(schema.get('additionalProperties')) or 'patternProperties' in schema


def _explain(error: ValidationError) -> dict[str, Any]:
    path = '.'.join(map(str, error.path))
    if error.validator == 'required':
        missing = next(name for name in error.validator_value if name not in error.instance)
        expected = error.schema.get('properties', {}).get(missing, {}).get('type', 'a value')
        return {'argument': f'{path}.{missing}'.lstrip('.'), 'expected': expected, 'got': 'nothing'}
    told = {'argument': path} if path else {}
    if error.validator in ('type', 'enum', 'const', 'format', 'minimum', 'maximum'):
        expected = error.validator_value
        if error.validator in ('minimum', 'maximum'):
            expected = {error.validator: expected}
        got = error.instance if len(repr(error.instance)) <= 60 else type(error.instance).__name__
        return told | {'expected': expected, 'got': got}
    return told | {'expected': error.message[:200]}


def _unclean(value: Any) -> str:
    """What JSON text could not carry there and back; empty if all is well."""
    if isinstance(value, float) and not math.isfinite(value):
        return 'finite numbers'
    if isinstance(value, int) and abs(value) >= HUGE:
        return 'smaller numbers'
    if isinstance(value, str) and not value.isascii():
        return 'valid Unicode' if any('\ud800' <= letter <= '\udfff' for letter in value) else ''
    if isinstance(value, Mapping):
        return next(filter(None, map(_unclean, [*value, *value.values()])), '')
    if isinstance(value, list):
        return next(filter(None, map(_unclean, value)), '')
    return ''


def fit(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The one spelling of these arguments; fitting twice changes nothing."""
    return _fit(arguments, tool.parameters, tool)


def _fit(value: Any, schema: Any, tool: Tool) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize('NFC', value)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < EXACT
        return int(value) if whole and _is_number(chosen(schema, value, tool)) else value
    if isinstance(value, Mapping):
        return _fit_object(value, chosen(schema, value, tool), tool)
    if isinstance(value, (list, tuple)):
        schema = chosen(schema, value, tool)
        first, rest = schema.get('prefixItems', ()), schema.get('items', {})
        schemas = [*first, *[rest] * (len(value) - len(first))]
        return [_fit(item, part, tool) for item, part in zip(value, schemas, strict=False)]
    return value


def _fit_object(value: Mapping, schema: Mapping, tool: Tool) -> dict[str, Any]:
    properties, others = schema.get('properties', {}), schema.get('additionalProperties')
    others = others if isinstance(others, Mapping) else {}
    fitted = {}
    for name, part in value.items():
        plain = type(part) is str and part.isascii()  # most of them, and they stay as they are
        fitted[_fit(name, {}, tool)] = (
            part if plain else _fit(part, properties.get(name, others), tool)
        )
    for name, part in properties.items():
        if name not in fitted and isinstance(part, Mapping) and 'default' in part:
            fitted[name] = _fit(part['default'], part, tool)
    return {name: fitted[name] for name in sorted(fitted)}


def _is_number(schema: Mapping) -> bool:
    kind = schema.get('type', ())
    return kind in NUMERIC if isinstance(kind, str) else not NUMERIC.isdisjoint(kind)


def chosen(schema: Any, value: Any, tool: Tool) -> Mapping[str, Any]:
    """The plain schema that speaks about this value: references followed, alternatives decided."""
    for _ in range(16):  # a reference that leads back to itself says nothing
        if not isinstance(schema, Mapping):
            return {}
        branches = schema.get('anyOf') or schema.get('oneOf') or schema.get('allOf')
        if '$ref' in schema:
            schema = _referred(schema['$ref'], tool.parameters)
        elif branches and 'type' not in schema:
            schema = next((part for part in branches if _accepts(part, value, tool)), {})
        else:
            return schema
    return {}


def _accepts(schema: Any, value: Any, tool: Tool) -> bool:
    return tool.validator.evolve(schema=schema).is_valid(value)


def _referred(reference: str, root: Mapping) -> Any:
    part: Any = root
    for step in reference.lstrip('#/').split('/'):
        part = part.get(step.replace('~1', '/').replace('~0', '~'), {}) if step else part
    return part
