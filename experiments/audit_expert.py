"""A policy without a model: the tasks' own experts, now and then careless in what they ask.

A careless call words its free text otherwise, or asks again what the episode asked before; so the
lower tiers of a cache have something to answer.  What an expert says next depends on the answers.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.task import Episode, Task, Termination, Turn
from cacherl_jax.tool_cache.tiers import split
from cacherl_jax.tools.arguments import fit
from cacherl_jax.tools.tool import Call, Result, Tool

WORDINGS = (str.lower, str.upper, 'the {}'.format)


class CarelessSession:
    """Makes an expert's calls, some of them changed; remembers what it really asked."""

    def __init__(self, session: Any, tools: Sequence[Tool], share: float, seed: str):
        self._session, self._share, self._draw = session, share, random.Random(seed)
        self._tools = {tool.name: tool for tool in tools}
        self.asked: list[tuple[Call, ...]] = []

    def answer(self, calls: Sequence[Call]) -> tuple[Result, ...]:
        """The results of what is asked instead of the calls."""
        made = tuple(self._changed(call) for call in calls)
        self.asked.append(made)
        return self._session.answer(made)

    def _changed(self, call: Call) -> Call:
        tool = self._tools[call.name]
        if tool.changes_state or self._draw.random() >= self._share:
            return call
        before = [each for calls in self.asked for each in calls if each.name == call.name]
        if before and self._draw.random() < 0.3:
            return self._draw.choice(before)
        return Call(call.name, self._worded(tool, call.arguments))

    def _worded(self, tool: Tool, arguments: Any) -> dict[str, Any]:
        free = split(tool, fit(tool, arguments))[1]
        worded = self._draw.choice(WORDINGS)
        return {
            name: worded(value) if isinstance(value, str) and value in free else value
            for name, value in arguments.items()
        }


def play_experts(
    tasks: Sequence[Task], samples: int, carelessness: float, seed: int, open_session: Callable
) -> list[Episode]:
    """One episode for each sample of each task; the same slips whatever answers.

    An expert that cannot read an answer gives up: its episode ends there, without an answer.
    """
    return [
        _play(task, sample, carelessness, f'{seed}/{task.id}/{sample}', open_session)
        for task in tasks
        for sample in range(samples)
    ]


def _play(task: Task, sample: int, share: float, seed: str, open_session: Callable) -> Episode:
    session = open_session(task.id, task.tools, task.start, sample)
    careless = CarelessSession(session, task.tools, share, seed)
    told: list[tuple[Result, ...]] = []

    def answer(calls: Sequence[Call]) -> tuple[Result, ...]:
        told.append(careless.answer(calls))
        return told[-1]

    try:
        episode = demonstrate(task, answer)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError):
        episode = Episode(
            task=task, sample=sample, step=-1, turns=(), termination=Termination.MAX_TURNS
        )
    session.close()
    turns = [
        Turn(text=repr(calls), calls=calls, results=results)
        for calls, results in zip(careless.asked, told, strict=True)
    ]
    last = episode.turns[len(told) :]  # the final answer; none where the expert gave up
    return dataclasses.replace(episode, sample=sample, turns=(*turns, *last))
