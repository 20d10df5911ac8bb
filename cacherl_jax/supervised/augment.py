"""Many conversations and one teacher: thoughts are asked once, kept in a file, within a budget.

The file is JSON Lines, a thought a line; a run that was stopped goes on where it was.
A conversation whose thoughts are not all there is left out and counted, never half thought.
"""

import collections
import dataclasses
import json
import math
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tenacity

from cacherl_jax.supervised.conversations import Conversation
from cacherl_jax.supervised.thinking import (
    Question,
    Teacher,
    UnusableThought,
    checked_thought,
    questions,
    with_thoughts,
)


class NoAnswer(Exception):
    """The teacher could not be had this time; another try may help."""


class Spent(Exception):
    """The budget allows no further request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """What one run may spend.  Requests under way when a limit is met are finished and kept."""

    calls: int = 10_000  # requests, repeated ones counted
    tokens: int = 5_000_000  # read and written, as the teacher counts them
    seconds: float = 3600.0
    attempts: int = 3  # at one thought
    failures: int = 5  # questions in a row without an answer after which the run gives up
    workers: int = 8  # requests at a time

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0 < value < math.inf:
                raise ValueError(f'{field.name} must be above 0 and finite, got {value}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmented:
    """What came of it."""

    conversations: list[Conversation]  # with a thought before every turn
    kept: list[int]  # which conversations they are
    counts: dict[str, int]  # questions, distinct, remembered, asked, tokens, unthought, reasons


class Journal:
    """Thoughts of one teacher by key, in a file; without a path in memory only."""

    def __init__(self, path: str | os.PathLike | None = None, teacher: str = ''):
        self.path, self.teacher = path and pathlib.Path(path), teacher
        self.thoughts: dict[str, str] = {}
        if self.path and self.path.exists():
            self._read()
        elif self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def _read(self):
        written = self.path.read_bytes()
        whole = written[: written.rfind(b'\n') + 1]
        for number, line in enumerate(whole.split(b'\n')[:-1], 1):
            try:
                record = json.loads(line)
                key, thought, teacher = (record[name] for name in ('key', 'thought', 'teacher'))
                self.thoughts[key] = checked_thought(thought)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f'{self.path}, line {number}: a line has key, thought, tokens and teacher; '
                    f'{error!r}'
                ) from None
            if teacher != self.teacher:
                raise ValueError(
                    f'{self.path}, line {number}: a thought of {teacher!r}, and the teacher is '
                    f'{self.teacher!r}; give another file'
                )
        if whole != written:  # a kill cut the last line short
            with self.path.open('r+b') as file:
                file.truncate(len(whole))

    def add(self, key: str, thought: str, tokens: int) -> None:
        """Remember a thought, on the disk before anything else."""
        if self.path:
            record = {'key': key, 'thought': thought, 'tokens': tokens, 'teacher': self.teacher}
            with self.path.open('a', encoding='utf-8', newline='\n') as file:
                file.write(json.dumps(record) + '\n')
        self.thoughts[key] = thought


class _Ledger:
    """Counts what is spent; shared by the workers."""

    def __init__(self, budget: Budget, clock: Callable[[], float]):
        self.budget, self.clock, self.lock = budget, clock, threading.Lock()
        self.until = clock() + budget.seconds
        self.calls = self.tokens = self.failures = 0
        self.stopped = ''

    def take(self) -> None:
        """One request more, or Spent."""
        with self.lock:
            if self.calls >= self.budget.calls:
                self.stopped = self.stopped or 'budget of calls'
            elif self.tokens >= self.budget.tokens:
                self.stopped = self.stopped or 'budget of tokens'
            elif self.clock() >= self.until:
                self.stopped = self.stopped or 'budget of seconds'
            if self.stopped:
                raise Spent(self.stopped)
            self.calls += 1

    def note(self, answered: bool) -> None:
        """Whether a question got an answer in the end."""
        with self.lock:
            self.failures = 0 if answered else self.failures + 1
            if self.failures >= self.budget.failures:
                self.stopped = self.stopped or 'teacher does not answer'


def augment(
    conversations: Sequence[Conversation],
    teacher: Teacher,
    *,
    journal: Journal | None = None,
    budget: Budget | None = None,
    tell: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    wait: tenacity.wait.wait_base | None = None,
) -> Augmented:
    """Give every conversation its thoughts; `tell` is called after each distinct question.

    `teacher` may raise NoAnswer, which is tried again, after `wait`; anything else it raises ends
    the run, and what was answered before is in the journal.
    """
    journal, budget = journal or Journal(), budget or Budget()
    asked = [questions(conversation) for conversation in conversations]
    distinct = {each.key: each for found in asked for each in found.values()}
    counts = collections.Counter(
        questions=sum(map(len, asked)),
        distinct=len(distinct),
        remembered=sum(key in journal.thoughts for key in distinct),
    )
    ledger = _Ledger(budget, clock)
    wait = wait or tenacity.wait_random_exponential(max=min(30.0, budget.seconds))

    def answer(question: Question) -> str:
        ended = 'end'
        try:
            known = question.key in journal.thoughts
            reason = '' if known else _ask(question, teacher, journal, ledger, wait)
            ended = ''
        finally:
            ledger.stopped = ledger.stopped or ended
        tell()
        return reason

    with ThreadPoolExecutor(budget.workers) as pool:
        try:
            reasons = list(pool.map(answer, distinct.values()))
        finally:
            ledger.stopped = ledger.stopped or 'end'  # whoever still waits asks no more
    counts.update(f'unthought/{reason}' for reason in reasons if reason)
    counts.update(asked=ledger.calls, tokens=ledger.tokens)
    kept = [
        place
        for place, found in enumerate(asked)
        if all(each.key in journal.thoughts for each in found.values())
    ]
    thoughts = (
        {place: journal.thoughts[each.key] for place, each in asked[number].items()}
        for number in kept
    )
    done = [with_thoughts(conversations[n], found) for n, found in zip(kept, thoughts, strict=True)]
    counts['left_out'] = len(conversations) - len(kept)
    return Augmented(conversations=done, kept=kept, counts=dict(counts))


def _ask(question, teacher, journal, ledger, wait) -> str:
    """Ask until there is a thought that can be used; else the reason why there is none."""
    tries = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(ledger.budget.attempts),
        wait=wait,
        retry=tenacity.retry_if_exception_type((NoAnswer, UnusableThought)),
        reraise=True,
    )
    try:
        thought, tokens = tries(_once, question, teacher, ledger)
    except Spent as spent:
        return str(spent)
    except NoAnswer:
        ledger.note(answered=False)
        return 'no answer'
    except UnusableThought:
        ledger.note(answered=True)
        return 'unusable thought'
    ledger.note(answered=True)
    with ledger.lock:
        journal.add(question.key, thought, tokens)
    return ''


def _once(question, teacher, ledger):
    ledger.take()
    reply = teacher(question)
    with ledger.lock:
        ledger.tokens += reply.tokens
    return checked_thought(reply.thought), reply.tokens
