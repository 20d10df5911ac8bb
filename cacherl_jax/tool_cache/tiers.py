"""How near is a recorded call to this one?  Compared argument by argument.

The likeness of whole calls separates nothing: a flight one day later reads almost the same.
`split` parts the arguments into what must be equal (numbers, booleans, choices, ids, dates) and the
free text, which may differ as far as `alike` allows.  `closeness` is the weaker measure for the
nearest answer there is; of free text it may go by meaning where a local encoder is given.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rapidfuzz import fuzz

from cacherl_jax.tool_cache.alike import alike
from cacherl_jax.tool_cache.embedding import make_meaning
from cacherl_jax.tools.arguments import chosen
from cacherl_jax.tools.tool import Tool

# Arguments with such a word in their name are identifiers, whatever their schema says.
IDENTIFIER = frozenset(
    re.findall(
        r'\w+',
        'id ids uuid guid key keys code codes token hash command script '
        'path url uri link email mail phone number '
        'date dates time datetime timestamp year month day iban isin symbol ticker version '
        'currency file filename folder directory username user password sql regex pattern '
        'expression formula zip postcode',
    )
)
FIXED = ('enum', 'const', 'format', 'pattern')  # keywords that make text a choice or an identifier
NAME_WORD = re.compile(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TierSettings:
    """What may stand in for an exact answer, and how near it must be."""

    fuzzy: bool = True  # answer from a call that differs in free text only
    fuzzy_threshold: float = 0.9  # least similarity of each text, in [0, 1]
    best_effort: bool = True  # in replay: answer from the nearest call of the same tool
    best_effort_floor: float = 0.5  # least mean similarity of the arguments, in [0, 1]
    embedding: str = ''  # folder of a sentence encoder for best effort's texts; empty: by letters
    own_gold: bool = False  # best effort may use what the task's own demonstration recorded

    def __post_init__(self):
        for name in ('fuzzy_threshold', 'best_effort_floor'):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f'{name} must be in 0..1, got {getattr(self, name)}')


def split(tool: Tool, fitted: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """What must be equal, as one text with gaps, and the free texts in the gaps."""
    texts: list[str] = []
    frame = _frame(fitted, tool.parameters, '', tool, texts)
    return json.dumps(frame, ensure_ascii=False), tuple(texts)


def _frame(value: Any, schema: Any, name: str, tool: Tool, texts: list[str]) -> Any:
    if isinstance(value, str) and _is_free_text(chosen(schema, value, tool), name):
        texts.append(value)
        return {'text': len(texts)}
    if isinstance(value, Mapping):
        properties = chosen(schema, value, tool).get('properties', {})
        return [
            [key, _frame(part, properties.get(key, {}), key, tool, texts)]
            for key, part in value.items()
        ]
    if isinstance(value, list):
        items = chosen(schema, value, tool).get('items', {})
        return {'list': [_frame(part, items, name, tool, texts) for part in value]}
    return value


def _is_free_text(schema: Mapping, name: str) -> bool:
    kind = schema.get('type', ())
    if 'string' not in ([kind] if isinstance(kind, str) else kind):
        return False
    if any(keyword in schema for keyword in FIXED):
        return False
    return IDENTIFIER.isdisjoint(word.lower() for word in NAME_WORD.findall(name))


def likeness(texts: tuple[str, ...], others: tuple[str, ...]) -> float:
    """The least alike pair decides."""
    least = 1.0
    for one, other in zip(texts, others, strict=True):
        least = min(least, alike(one, other))
        if not least:
            break
    return least


Compare = Callable[[str, str, str], float]  # name of an argument, two texts: in [0, 1]


def by_letters(name: str, one: str, other: str) -> float:
    """How many letters two texts share, whatever the case."""
    return fuzz.ratio(one.casefold(), other.casefold()) / 100


def text_comparison(tool: Tool, settings: TierSettings) -> Compare:
    """How best effort compares the texts of a tool: free ones by meaning, if an encoder is given.

    Raises ValueError where the folder holds none.
    """
    if not settings.embedding:
        return by_letters
    meaning, properties = make_meaning(settings.embedding), tool.parameters.get('properties', {})

    def compare(name: str, one: str, other: str) -> float:
        free = _is_free_text(chosen(properties.get(name, {}), one, tool), name)
        return meaning(one, other) if free else by_letters(name, one, other)

    return compare


def closeness(
    one: Mapping[str, Any], other: Mapping[str, Any], compare: Compare = by_letters
) -> float:
    """Mean over all arguments of either call: 1 where equal, the likeness of texts."""
    names = one.keys() | other.keys()
    near = (_closeness(one, other, name, compare) for name in names)
    return sum(near) / len(names) if names else 1.0


def _closeness(one: Mapping, other: Mapping, name: str, compare: Compare) -> float:
    if name not in one or name not in other:
        return 0.0
    value, recorded = one[name], other[name]
    if isinstance(value, str) and isinstance(recorded, str):
        return compare(name, value, recorded)
    return float(json.dumps(value) == json.dumps(recorded))
