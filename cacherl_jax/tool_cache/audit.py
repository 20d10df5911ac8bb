"""Were the cached answers true?  Hits are executed again, in the state they were given in.

An episode's calls and results go in; for each of its hits out comes what was served beside what the
tool says.  The state-changing calls of the episode run again in their order, in a world of their
own, so that a tool that is wrongly called read-only is found out.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cacherl_jax.tools.execute import ExecuteSettings, by_name, live_sessions
from cacherl_jax.tools.tool import Call, ParseError, Result, Tier, Tool
from cacherl_jax.tools.world import LASTING

HITS = frozenset({Tier.EXACT, Tier.FUZZY, Tier.BEST_EFFORT})
SEVERAL = 1000  # calls of a turn that may run again; the turn's own limit is behind us

Turns = Sequence[tuple[Sequence[Call | ParseError], Sequence[Result]]]


class Judged(NamedTuple):
    """A hit beside the truth."""

    task: str
    tool: str
    arguments: Mapping[str, Any]
    tier: Tier
    similarity: float
    source: str
    served: str
    true: str
    same: bool  # status and text agree; of JSON objects the order of their names does not count
    agreement: float  # of the values in both answers, in [0, 1]


def judged(task: str, call: Call, served: Result, true: Result) -> Judged:
    """A hit beside the truth, compared."""
    same = served.status == true.status and _spelled(served.text) == _spelled(true.text)
    return Judged(
        task, call.name, call.arguments, served.tier, served.similarity, served.source,
        served.text, true.text, same, 1.0 if same else agreement(served.text, true.text),
    )  # fmt: skip


def agreement(one: str, other: str) -> float:
    """2 |A and B| / (|A| + |B|) over the values in two answers, each with its place (Dice 1945).

    Places in lists do not count; text that is no JSON counts as its words.
    """
    first, second = _values(one), _values(other)
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


def _spelled(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _values(text: str) -> Counter:
    try:
        return Counter(_leaves(json.loads(text), ()))
    except (ValueError, RecursionError):
        return Counter(text.split())


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part, path)
    else:
        yield (*path, json.dumps(value))


def hits(turns: Turns) -> list[tuple[int, int]]:
    """(turn, place) of each call that a cache answered."""
    return [
        (number, place)
        for number, (calls, results) in enumerate(turns)
        for place, (call, result) in enumerate(zip(calls, results, strict=True))
        if isinstance(call, Call) and result.tier in HITS
    ]


def sampled(episodes: Sequence[Turns], count: int, seed: int = 0) -> list[set[tuple[int, int]]]:
    """Which hits of each episode are to be executed again: at most `count`, drawn evenly."""
    every = [(number, hit) for number, turns in enumerate(episodes) for hit in hits(turns)]
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return [{hit for place, hit in drawn if place == number} for number in range(len(episodes))]


def reexecuted(
    task: str,
    tools: Sequence[Tool],
    start: Callable[[], Any],
    turns: Turns,
    chosen: set[tuple[int, int]],
    *,
    result_characters: int = ExecuteSettings().result_characters,
) -> list[Judged]:
    """The chosen hits of an episode beside what the tools say now; nothing else runs but the calls
    that change the state before them."""
    settings = ExecuteSettings(calls_per_turn=SEVERAL, result_characters=result_characters)
    named, told = by_name(tools), []
    session = live_sessions(settings).open_session(task, tools, start)
    for number, (calls, results) in enumerate(turns):
        again = [
            place
            for place, (call, result) in enumerate(zip(calls, results, strict=True))
            if (number, place) in chosen or _moves(named, call, result)
        ]
        answers = session.answer([calls[place] for place in again])
        told += [
            judged(task, calls[place], results[place], answer)
            for place, answer in zip(again, answers, strict=True)
            if (number, place) in chosen
        ]
    session.close()
    return told


def _moves(tools: Mapping[str, Tool], call: Call | ParseError, result: Result) -> bool:
    """Whether a call changed the state of its episode."""
    known = isinstance(call, Call) and call.name in tools
    return known and tools[call.name].changes_state and result.status in LASTING
