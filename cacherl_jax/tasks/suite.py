"""What task suites share: seeded chance, invented names, small tools, demonstrations, text checks.

A suite is a name and a function from (split, level, number) to a task, the same for ever.  The two
ways to look for words are apart on purpose: rewards use `mentions`, evaluation uses `spaced`.
"""

import dataclasses
import hashlib
import inspect
import itertools
import json
import random
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

from cacherl_jax.tasks.task import AssistantTurn, Episode, Task, Termination, Turn
from cacherl_jax.tools.tool import Call, ParseError, Result, Scope, Status, Tool

SPLITS = ('train', 'validation', 'test')
LEVELS = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Suite:
    """A family of tasks; `task(split, level, number)` is the same task for ever."""

    name: str
    task: Callable[[str, int, int], Task]


def draw(suite: Suite, split: str, level: int, count: int, first: int = 0) -> tuple[Task, ...]:
    """`count` tasks in a row, beginning at number `first`."""
    return tuple(suite.task(split, level, number) for number in range(first, first + count))


def task_id(suite: str, split: str, level: int, number: int) -> str:
    """The name of a task, which is also the seed of everything drawn for it."""
    if split not in SPLITS:
        raise ValueError(f'split must be one of {SPLITS}, got {split!r}')
    if level not in LEVELS:
        raise ValueError(f'level must be one of {LEVELS}, got {level!r}')
    if number < 0:
        raise ValueError(f'number must be 0 or more, got {number!r}')
    return f'{suite}/{split}/{level}/{number:05d}'


def chance(*place: Any) -> random.Random:
    """Chance by address: the same place gives the same draws in every process."""
    digest = hashlib.sha256('/'.join(map(str, place)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], 'big'))


def invent(purpose: str, *syllables: str) -> tuple[str, ...]:
    """All names spelled with one syllable of each list, in an order fixed by the purpose."""
    names = [''.join(parts) for parts in itertools.product(*map(str.split, syllables))]
    names = list(dict.fromkeys(names))
    chance('names', purpose).shuffle(names)
    return tuple(names)


def tool(function: Callable, *, scope: Scope = Scope.PURE, changes_state: bool = False) -> Tool:
    """A tool from a documented function whose parameters are text, or a `Literal` of texts."""
    hints = typing.get_type_hints(function)
    names = list(inspect.signature(function).parameters)[scope is Scope.SESSION :]
    allowed = {name: typing.get_args(hints[name]) for name in names}
    properties = {
        name: {'type': 'string'} | ({'enum': list(values)} if values else {})
        for name, values in allowed.items()
    }
    return Tool(
        name=function.__name__,
        description=inspect.getdoc(function),
        parameters={'type': 'object', 'properties': properties, 'required': names},
        function=function,
        scope=scope,
        changes_state=changes_state,
    )


def ask(*calls: Call) -> AssistantTurn:
    """An expert's turn that only calls."""
    return AssistantTurn(calls=calls)


def read(result: Result) -> Any:
    """What a tool of ours answered, as data."""
    return json.loads(result.text)


def demonstrate(task: Task, answer: Callable[[Sequence[Call]], tuple[Result, ...]]) -> Episode:
    """The expert's episode; `answer` is a session's, and runs the calls of one turn."""
    expert, turns = task.expert(), []
    said = next(expert)
    while said.calls:
        results = answer(said.calls)
        turns.append(_turn(said, results))
        said = expert.send(results)
    turns.append(_turn(said, ()))
    return Episode(
        task=task, sample=0, step=-1, turns=tuple(turns), termination=Termination.ANSWERED
    )


def _turn(said: AssistantTurn, results: tuple[Result, ...]) -> Turn:
    return Turn(
        text=said.content,
        thinking=said.thinking,
        content=said.content,
        calls=said.calls,
        results=results,
    )


def called(turns: Sequence[Turn], name: str, **arguments: str) -> bool:
    """Whether a call of this tool with at least these arguments was answered well."""
    return any(
        not isinstance(call, ParseError)
        and call.name == name
        and result.status is Status.OK
        and arguments.items() <= dict(call.arguments).items()
        for turn in turns
        for call, result in zip(turn.calls, turn.results, strict=False)
    )


def mentions(text: str, phrase: str) -> bool:
    """Whether the phrase stands in the text as whole words, whatever the case.  For rewards."""
    return bool(re.search(rf'(?<!\w){re.escape(phrase)}(?!\w)', text, re.IGNORECASE))


def spaced(text: str) -> str:
    """The words of a text in small letters, one space around each.  For evaluation."""
    return ' ' + ' '.join(word.strip('.,;:!?()"\'') for word in text.lower().split()) + ' '
