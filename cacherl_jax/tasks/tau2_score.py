"""How well an episode did a tau2 telecom task: reward from its calls, success from where they led.

The reward compares state-changing calls with gold and runs nothing; success makes the calls again
in a fresh world and asks the task's assertions, and knows nothing of the reward.
"""

import functools
from collections.abc import Sequence
from typing import Any

from cacherl_jax.tasks import tau2_world
from cacherl_jax.tasks.task import Episode, Subgoal, Termination, Turn
from cacherl_jax.tools.tool import Call, Status


def calls_made(turns: Sequence[Turn]) -> list[Call]:
    """The calls that ran, whatever came of them."""
    return [
        call
        for turn in turns
        for call, result in zip(turn.calls, turn.results, strict=False)
        if isinstance(call, Call) and result.status in (Status.OK, Status.TOOL_ERROR)
    ]


def matches(gold: Any, call: Call) -> bool:
    """Whether a call is a gold action, in the arguments that the task compares."""
    if call.name != gold.name:
        return False
    compared = call.arguments.keys() if gold.compare_args is None else gold.compare_args
    return all(call.arguments.get(name) == gold.arguments.get(name) for name in compared)


def acts(entry: Any, calls: Sequence[Call]) -> list[Call]:
    """The calls that change something, or that gold asks for by name; looking around is free."""
    asked = {gold.name for gold in entry.evaluation_criteria.actions}
    return [call for call in calls if call.name in asked or tau2_world.changes_state(call.name)]


def matched(entry: Any, calls: Sequence[Call]) -> int:
    """Gold actions that were done, each call counting for one of them at most, in any order."""
    left = list(calls)
    for gold in entry.evaluation_criteria.actions:
        found = next((call for call in left if matches(gold, call)), None)
        if found is not None:
            left.remove(found)
    return len(calls) - len(left)


def score(entry: Any, episode: Episode) -> float:
    """2 matched / (acted + gold): what was done beside gold costs something."""
    done = acts(entry, calls_made(episode.turns))
    return 2 * matched(entry, done) / (len(done) + len(entry.evaluation_criteria.actions))


def process_accuracy(episode: Episode) -> float:
    """The share of gold actions that were done.  For evaluation."""
    entry = tau2_world.entries()[episode.task.entity]
    return matched(entry, calls_made(episode.turns)) / len(entry.evaluation_criteria.actions)


def subgoals(entry: Any) -> tuple[Subgoal, ...]:
    """One for each gold action; whatever only looks around serves all of them."""
    looking = {name for name in tau2_world.documents() if not tau2_world.changes_state(name)}

    def reached(turns: Sequence[Turn], gold: Any) -> bool:
        return any(matches(gold, call) for call in calls_made(turns))

    return tuple(
        Subgoal(
            name=f'{gold.name} {place + 1}',
            reached=functools.partial(reached, gold=gold),
            tools=frozenset({gold.name} | looking),
        )
        for place, gold in enumerate(entry.evaluation_criteria.actions)
    )


def solved(entry: Any, episode: Episode) -> bool:
    """The benchmark's verdict: every assertion holds at the end, and where the task asks for
    actions, each of them was among the calls.
    """
    if episode.termination is not Termination.ANSWERED:
        return False
    criteria, calls = entry.evaluation_criteria, calls_made(episode.turns)
    if 'ACTION' in {basis.value for basis in criteria.reward_basis} and not all(
        any(matches(gold, call) for call in calls) for gold in criteria.actions
    ):
        return False
    world = tau2_world.start_world(entry.id)
    tau2_world.replay(world, calls)
    return all(tau2_world.holds(world, assertion) for assertion in criteria.env_assertions or ())
