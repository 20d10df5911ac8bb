"""How much of what an expert does was done: process accuracy where a suite has no gold calls."""

import json
from collections.abc import Callable, Mapping, Sequence

from cacherl_jax.tasks.bfcl_score import in_order
from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.task import Episode, Task, Turn
from cacherl_jax.tools.tool import Call


def calls_of(turns: Sequence[Turn]) -> list[Call]:
    """Those that could be read, in order."""
    return [call for turn in turns for call in turn.calls if isinstance(call, Call)]


def meaning(call: Call) -> str:
    """Equal for calls that mean the same, whatever the order of their arguments."""
    return json.dumps([call.name, call.arguments], sort_keys=True, default=str)


def share_done(made: Sequence[Call], expert: Sequence[Call]) -> float:
    """The share of the expert's calls that were made, in order and each once; 1 for none."""
    alike = in_order(made, expert, lambda one, other: float(meaning(one) == meaning(other)))
    return alike / len(expert) if expert else 1.0


def expert_accuracy(episodes: Sequence[Episode], open_session: Callable) -> Mapping[str, float]:
    """{suite: mean over its episodes}, against what the expert does in sessions opened here."""
    expert: dict[str, list[Call]] = {}
    found: dict[str, list[float]] = {}
    for episode in episodes:
        task = episode.task
        if task.id not in expert:
            expert[task.id] = calls_of(_played(task, open_session).turns)
        share = share_done(calls_of(episode.turns), expert[task.id])
        found.setdefault(task.suite, []).append(share)
    return {suite: sum(shares) / len(shares) for suite, shares in found.items()}


def _played(task: Task, open_session: Callable) -> Episode:
    session = open_session(task.id, task.tools, task.start, 0)
    try:
        return demonstrate(task, session.answer)
    finally:
        session.close()
