"""What the policy reads after a call: results as text, failures as one short JSON object.

Every failure is `{"error": status, ...}` with the words that help to do better next time.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from cacherl_jax.tools.tool import Result, Status

ERROR_CHARACTERS = 300  # most that is shown of a tool's own error message


def failure(status: Status, **details: Any) -> Result:
    """The result of a call that came to nothing."""
    return Result(status=status, text=as_text({'error': str(status)} | details))


def describe(error: BaseException) -> str:
    """One line about an exception: its kind and its words."""
    words = ' '.join(str(error).split())[:ERROR_CHARACTERS]
    return f'{type(error).__name__}: {words}' if words else type(error).__name__


def as_text(value: Any) -> str:
    """Text as it is, anything else as compact JSON; letters outside ASCII stay as they are."""
    if isinstance(value, bytes):
        value = value.decode('utf-8', 'replace')
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=_plain)
    # Half a surrogate pair is no character: no file and no tokenizer would take it.
    return value if value.isascii() else value.encode('utf-8', 'replace').decode('utf-8')


def _plain(value: Any) -> Any:
    """What JSON can hold instead of this value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for method in ('model_dump', 'tolist', 'isoformat'):  # models, arrays, dates
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return str(value)


CUT = ' ...[cut: {} characters in all]'


def cut(result: Result, characters: int) -> Result:
    """The result, no longer than that; what was cut away is said at its end."""
    if len(result.text) <= characters:
        return result
    note = CUT.format(len(result.text))
    kept = result.text[: max(characters - len(note), 0)]
    return dataclasses.replace(result, text=(kept + note)[:characters])


def same_answer(told: Result, whole: Result) -> bool:
    """Whether a result says what was told before; that may have been cut."""
    if told.text.endswith(CUT.format(len(whole.text))):
        whole = cut(whole, len(told.text))
    return (told.status, told.text) == (whole.status, whole.text)
