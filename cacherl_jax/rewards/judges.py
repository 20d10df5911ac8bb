"""Who says how good a final answer is.  An episode in; a score in [0, 1] out, or None to abstain.

A judge is any such function, so a learned reward model or a language model behind an endpoint is
one more function.  The matchers below are what a task's own checker is mostly built from.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable

from cacherl_jax.tasks.task import Episode

Judge = Callable[[Episode], float | None]

SCALES = {'thousand': 1e3, 'k': 1e3, 'million': 1e6, 'm': 1e6, 'mn': 1e6}
SCALES |= {'billion': 1e9, 'b': 1e9, 'bn': 1e9, 'trillion': 1e12, '%': 1e-2, 'percent': 1e-2}
NUMBER = re.compile(
    r'(?<![\w.])([-+−]?)[$€£]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(e[-+]?\d+)?'
    r'(?:\s?(' + '|'.join(sorted(SCALES, key=len, reverse=True)) + r')(?!\w))?',
    re.IGNORECASE,
)


def rule_judge(episode: Episode) -> float:
    """The task's own checker.  What it raises is our mistake and goes through."""
    return episode.task.score(episode)


def judged(judge: Judge, episode: Episode) -> float | None:
    """The judge's score, asked once; anything but a number in [0, 1] or None is refused."""
    score = judge(episode)
    if score is None:
        return None
    if isinstance(score, str) or not (math.isfinite(score) and 0 <= score <= 1):
        raise ValueError(
            f'a judge scores in [0, 1] or abstains with None, got {score!r} for {episode.task.id}'
        )
    return float(score)


def exact_match(answer: str, expected: str) -> float:
    """1 where both are the same words in the same order; case, articles and punctuation aside."""
    return float(_words(answer) == _words(expected))


def token_f1(answer: str, expected: str) -> float:
    """2 p r / (p + r) with p = shared / words in the answer, r = shared / words expected."""
    given, wanted = _words(answer), _words(expected)
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not given or not wanted:
        return float(given == wanted)
    return 2 * shared / (len(given) + len(wanted))


def numbers_in(text: str) -> list[float]:
    """Every number in the text, with thousands separators, currency signs and scale words read."""
    found = []
    for sign, digits, exponent, scale in NUMBER.findall(text):
        value = float(digits.replace(',', '') + exponent) * SCALES.get(scale.lower(), 1.0)
        found.append(-value if sign in ('-', '−') else value)
    return found


def numeric_match(
    answer: str, expected: float, *, tolerance_fraction: float = 0.005, most_numbers: int = 4
) -> float:
    """1 where a number of the answer is within the tolerance; 0 for many numbers, to hit one."""
    numbers = numbers_in(answer)
    if not 0 < len(numbers) <= most_numbers:
        return 0.0
    slack = tolerance_fraction * abs(expected) + 1e-9
    return float(any(abs(number - expected) <= slack for number in numbers))


def _words(text: str) -> list[str]:
    words = re.findall(r'-?\d+(?:[.,]\d+)*|\w+', unicodedata.normalize('NFC', text).casefold())
    return [word for word in words if word not in ('a', 'an', 'the')]
