"""JSON as a policy must write it: text in; a value that any later reader can bear, or ValueError.

Python's decoder takes more than JSON (NaN, the last of two equal keys) and breaks on more than
broken text (deep nesting, long numbers); here both are refused with a short reason.
"""

import json
import math
from typing import Any

SPACE = ' \t\r\n'  # what JSON calls white space; other spaces are text
NESTING = 64  # levels of objects and arrays; whoever walks a value may recurse
DIGITS = 300  # of a whole number; a longer one fits no float and breaks whoever converts it


def skip_space(text: str, position: int) -> int:
    """The first position at or after `position` that holds no white space."""
    while position < len(text) and text[position] in SPACE:
        position += 1
    return position


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The value that begins at `start` and where it stops; ValueError says what came instead."""
    try:
        value, stop = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise ValueError(f'broken JSON: {error.msg} at character {error.pos - start}') from None
    except RecursionError:
        raise ValueError(f'more than {NESTING} levels of nesting') from None
    _refuse_unbearable(value)
    return value, stop


def kind(value: Any) -> str:
    """What a decoded value is, in JSON's words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return {str: 'a string', list: 'an array', dict: 'an object'}.get(type(value), 'a number')


def short(value: Any, most: int = 60) -> str:
    """The value as JSON for a message, cut after `most` characters."""
    written = json.dumps(value, ensure_ascii=False).encode(errors='backslashreplace').decode()
    return written if len(written) <= most else f'{written[:most]}...'


def _refuse_unbearable(value: Any) -> None:
    level, depth = [value], 0
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
        if depth > NESTING:
            raise ValueError(f'more than {NESTING} levels of nesting')
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError('half of a surrogate pair, which is no character') from None


def _children(value: Any) -> list:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError(f'an object with a key twice: {short(sorted(keys))}')
    return dict(pairs)


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f'a whole number of {len(digits)} digits where {DIGITS} are the most')
    return int(digits)


def _finite(written: str) -> float:
    number = float(written)
    if not math.isfinite(number):
        raise ValueError(f'{short(written)}, which is no finite number')
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole, parse_float=_finite, parse_constant=_finite
)
