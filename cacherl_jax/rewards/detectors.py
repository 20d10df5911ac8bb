"""Ways to see that a sub-goal was reached, beside a predicate in Python.  Turns in, yes or no out.

Each returns what `Subgoal(reached=...)` wants.  A sub-goal stays reached, so a detector that looks
at single turns says yes from the first turn on that shows it.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Literal

from cacherl_jax.rewards.classifier import Classifier
from cacherl_jax.tasks.task import Turn
from cacherl_jax.tools.tool import ParseError, Status

Detector = Callable[[Sequence[Turn]], bool]
Place = Literal['results', 'messages']


def keyword_detector(
    patterns: Sequence[str], place: Place = 'results', need: Literal['any', 'all'] = 'all'
) -> Detector:
    """Regular expressions, whatever the case, in what tools answered well or the agent told.

    Messages are written by the policy that is paid for them: a sub-goal of having *learned*
    something belongs to the results.
    """
    if not patterns or place not in Place.__args__ or need not in ('any', 'all'):
        raise ValueError(
            f'patterns must not be empty, place is one of {Place.__args__} and need any or all, '
            f'got {list(patterns)}, {place!r}, {need!r}'
        )
    try:
        known = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    except re.error as wrong:
        raise ValueError(f'{wrong.pattern!r} is no regular expression: {wrong}') from wrong
    quantifier = all if need == 'all' else any

    def reached(turns):
        texts = [text for turn in turns for text in _told(turn, place)]
        return quantifier(any(one.search(text) for text in texts) for one in known)

    return reached


def classifier_detector(classifier: Classifier) -> Detector:
    """A trained classifier's yes to the text of some turn."""
    return lambda turns: any(classifier.says_yes(turn_text(turn)) for turn in turns)


def score_detector(score: Callable[[Sequence[Turn]], float], threshold: float) -> Detector:
    """A reward model's score of the turns so far, which must have reached the threshold once."""
    return lambda turns: any(score(turns[:end]) >= threshold for end in range(1, len(turns) + 1))


def turn_text(turn: Turn) -> str:
    """What a classifier reads of a turn: calls with the status and text of their results, words."""
    lines = [turn.content]
    for call, result in zip(turn.calls, turn.results, strict=False):
        asked = 'broken call' if isinstance(call, ParseError) else _spelled(call)
        lines.append(f'{asked} {result.status.value} {result.text}')
    return '\n'.join(lines)


def _spelled(call) -> str:
    return f'{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=repr)}'


def _told(turn: Turn, place: Place) -> list[str]:
    if place == 'messages':
        return [turn.content]
    return [result.text for result in turn.results if result.status is Status.OK]
