"""How an episode was played, whatever came of it.  Episode in, four shares in [0, 1] out."""

from collections.abc import Mapping, Sequence

from cacherl_jax.tasks.task import Episode, Subgoal, Turn
from cacherl_jax.tools.tool import Call, Status

PROCESS_PARTS = ('format', 'validity', 'order', 'no_leak')
MISUSES = {Status.UNKNOWN_TOOL, Status.BAD_ARGUMENTS, Status.PARSE_ERROR}


def process_parts(
    episode: Episode, first: Mapping[str, int | None], markers: Sequence[str]
) -> tuple[tuple[float, ...], tuple[bool, ...]]:
    """The shares in the order of PROCESS_PARTS, and which of them the task says something about.

    `first` is the turn that reached each sub-goal, by name.  Order is known of tasks that declare
    one.  A task with sub-goals that was played without a
    call has validity 0: to do nothing is no flawless way of doing it.
    """
    turns, goals = episode.turns, episode.task.subgoals
    ordered = [goal for goal in goals if goal.after]
    order = [held for goal in ordered for held in precedences(goal, first)]
    results = [result for turn in turns for result in turn.results]
    leaked = any(marker in turn.content for turn in turns for marker in markers)
    shares = (
        _share([_well_formed(turn) for turn in turns]),
        _share([result.status not in MISUSES for result in results]),
        _share(order),
        float(bool(turns) and not leaked),
    )
    return shares, (True, bool(results or goals), bool(ordered), True)


def precedences(goal: Subgoal, first: Mapping[str, int | None]) -> list[bool]:
    """For each sub-goal declared to come before this one: both were reached, and not after it."""
    reached = first[goal.name]
    return [
        reached is not None and first[other] is not None and first[other] <= reached
        for other in sorted(goal.after)
    ]


def is_answer(turn: Turn) -> bool:
    """A complete message that says something and calls nothing; a text cut by a limit is none."""
    return not turn.calls and turn.ended and bool(turn.content.strip())


def _well_formed(turn: Turn) -> bool:
    """Ended by the policy; readable calls throughout, or an answer."""
    readable = all(isinstance(call, Call) for call in turn.calls)
    return turn.ended and readable and (bool(turn.calls) or is_answer(turn))


def _share(true: Sequence[bool]) -> float:
    """The share that is true; 0 of nothing."""
    return sum(true) / max(len(true), 1)
