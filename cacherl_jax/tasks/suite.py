"""What task suites share: how a question becomes a task, seeded chance, names, text checks.

A suite is a name, tools, and a function from (split, level, chance) to a question; the number of a
task is the seed of its chance, so it is the same task for ever.  The two ways to look for words are
apart on purpose: rewards use `mentions`, evaluation uses `spaced`.
"""

import dataclasses
import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

from cacherl_jax.tasks.task import AssistantTurn, Episode, Expert, Subgoal, Task, Termination, Turn
from cacherl_jax.tools.tool import Call, ParseError, Result, Status, Tool

SPLITS = ('train', 'validation', 'test')
LEVELS = (1, 2, 3)


class Question(Protocol):
    """What a suite draws: what is asked, and the truth about it.  Suites derive from this."""

    @property
    def entity(self) -> str:
        """What splits are made by."""

    def requests(self, unseen: bool) -> Sequence[str]:
        """Wordings to draw from; `unseen` adds those that only the hardest test tasks use."""

    def start(self) -> Any:
        """A fresh state for the session tools; None where there are none."""
        return None

    def expert(self) -> Expert:
        """Plays well, looking at the results."""

    def subgoals(self) -> Sequence[Subgoal]:
        """The milestones."""

    def score(self, answer: str) -> float:
        """The reward of an answer, in [0, 1]."""

    def solved(self, answer: str) -> bool:
        """Whether everything is right, for evaluation; not by way of `score`."""

    def wrong_answers(self) -> Sequence[str]:
        """Answers that look right and are not."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A family of tasks."""

    name: str
    tools: tuple[tuple[Tool, ...], ...]  # for each level
    question: Callable[[str, int, random.Random], Question]  # of a split, a level and chance

    def task(self, split: str, level: int, number: int) -> Task:
        """The task of this number, the same for ever."""
        name = task_id(self.name, split, level, number)
        draws = chance(name)
        asked = self.question(split, level, draws)
        request = draws.choice(asked.requests((split, level) == ('test', max(LEVELS))))
        return Task(
            id=name,
            suite=self.name,
            split=split,
            level=level,
            entity=asked.entity,
            messages=({'role': 'user', 'content': request},),
            tools=self.tools[level - 1],
            start=asked.start,
            expert=asked.expert,
            subgoals=tuple(asked.subgoals()),
            score=lambda episode: asked.score(' '.join(episode.answer.split())),
            solved=lambda episode: asked.solved(episode.answer),
            wrong_answers=('', request, *asked.wrong_answers()),
        )


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


def ask(*calls: Call, noting: str = '') -> AssistantTurn:
    """An expert's turn that calls; `noting` says first what it goes by, where that is a choice."""
    return AssistantTurn(content=noting, calls=calls)


def ask_each(
    calls: Mapping[str, Call], noting: str = ''
) -> Generator[AssistantTurn, tuple[Result, ...], dict]:
    """Asks side by side in one turn; the results come back under the keys of their calls."""
    results = yield ask(*calls.values(), noting=noting)
    return dict(zip(calls, results, strict=True))


def read(result: Result) -> Any:
    """What a tool of ours answered, as data."""
    return json.loads(result.text)


def demonstrate(task: Task, answer: Callable[[Sequence[Call]], tuple[Result, ...]]) -> Episode:
    """The expert's episode, to its last answer; `answer`, a session's, runs the calls of a turn."""
    expert, turns, waiting = task.expert(), [], list(task.follow_ups)
    said = next(expert)
    while said.calls or waiting:
        results = answer(said.calls) if said.calls else ()
        turns.append(_turn(said, results, '' if said.calls else waiting.pop(0)))
        said = expert.send(results)
    turns.append(_turn(said, ()))
    return Episode(
        task=task, sample=0, step=-1, turns=tuple(turns), termination=Termination.ANSWERED
    )


def _turn(said: AssistantTurn, results: tuple[Result, ...], user: str = '') -> Turn:
    return Turn(
        text=said.content,
        thinking=said.thinking,
        content=said.content,
        calls=said.calls,
        results=results,
        user=user,
    )


def goal(name: str, reached: Callable[[Sequence[Turn]], bool], *tools: str) -> Subgoal:
    """A milestone and the tools that serve it."""
    return Subgoal(name=name, reached=reached, tools=frozenset(tools))


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
