"""Which calls ask for what was asked before.  Calls in order in, likeness out; no penalties.

Three kinds of call look like repeats and are none: a question about a state that has changed since,
a second try after a failure that passes, and a neighbour that differs in a number, a name or a
negation.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from rapidfuzz import fuzz

from cacherl_jax.tools.tool import Call, Result, Scope, Status, Tool

Likeness = Literal['new', 'near', 'identical']
PASSING = {Status.TIMEOUT, Status.UNAVAILABLE, Status.OVER_BUDGET}  # to ask again is right
FILLERS = {'a', 'an', 'the', 'of', 'for', 'please'}  # words that change no question


def call_key(call: Call) -> str:
    """Equal for calls that mean the same: argument order is nothing; 1, 1.0 and true differ."""
    return json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=False, default=repr)


def near_identical(one: Any, other: Any, alike: float) -> bool:
    """Arguments that ask the same in other letters: only text may differ, and only in spelling.

    Words are compared in their order, one with one, so that a swapped pair, another number, another
    name and an added `not` are differences; case, punctuation, fillers and plurals are not.
    """
    if isinstance(one, str) and isinstance(other, str):
        words, others = _words(one), _words(other)
        pairs = zip(words, others, strict=False)
        return len(words) == len(others) and all(_same_word(a, b, alike) for a, b in pairs)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            near_identical(one[name], other[name], alike) for name in one
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(near_identical(a, b, alike) for a, b in pairs)
    return type(one) is type(other) and one == other


def _words(text: str) -> list[str]:
    words = re.findall(r'-?\w+(?:[.:/-]\w+)*', text.casefold())
    return [word for word in words if word not in FILLERS]


def _same_word(one: str, other: str, alike: float) -> bool:
    if one == other:
        return True
    # A digit makes an identifier or an amount; another first letter mostly a negation (un-, in-).
    if one[0] != other[0] or any(letter.isdigit() for letter in one + other):
        return False
    return fuzz.ratio(one, other) >= 100 * alike


@dataclasses.dataclass
class Asked:
    """What an episode has asked so far.  One for each episode; `add` in call order."""

    tools: Mapping[str, Tool]  # by name
    alike: float  # likeness of spelling from which two words are one, in (0, 1]
    changes: int = 0  # state-changing calls that did something
    answered: dict[str, list[tuple[int, Call, str]]] = dataclasses.field(default_factory=dict)

    def add(self, call: Call, result: Result) -> Likeness:
        """How the call compares with the calls before it that were answered and are still true.

        A change made again is the same call only where it had the same result (`load` twice); a
        step that leads on each time (`next_page`) is not.
        """
        tool = self.tools.get(call.name)
        changing = tool is not None and tool.changes_state
        stateful = changing or (tool is not None and tool.scope is Scope.SESSION)
        likeness = self._compare(call, result.text if changing else None, stateful)
        if result.status not in PASSING:
            if changing and result.status is Status.OK and likeness != 'identical':
                self.changes += 1
            state = self.changes if stateful else 0
            self.answered.setdefault(call.name, []).append((state, call, result.text))
        return likeness

    def _compare(self, call: Call, text: str | None, stateful: bool) -> Likeness:
        state = self.changes if stateful else 0
        earlier = [
            old
            for then, old, result in self.answered.get(call.name, ())
            if then == state and text in (None, result)
        ]
        if any(call_key(old) == call_key(call) for old in earlier):
            return 'identical'
        asked = dict(call.arguments)
        near = any(near_identical(asked, dict(old.arguments), self.alike) for old in earlier)
        return 'near' if near else 'new'
