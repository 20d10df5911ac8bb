"""How well an episode did a BFCL task: reward from its calls, success from the states they lead to.

The reward compares calls with gold and runs nothing; success runs the calls again in fresh worlds
and knows nothing of the reward.
"""

import functools
from collections.abc import Callable, Sequence

from cacherl_jax.tasks import bfcl_world
from cacherl_jax.tasks.bfcl_world import Entry
from cacherl_jax.tasks.task import Episode, Subgoal, Termination, Turn
from cacherl_jax.tools.tool import Call, Status


def calls_by_request(turns: Sequence[Turn]) -> list[list[Call]]:
    """The calls that ran, for each of the user's messages so far."""
    made: list[list[Call]] = [[]]
    for turn in turns:
        made[-1] += [
            call
            for call, result in zip(turn.calls, turn.results, strict=False)
            if isinstance(call, Call) and result.status in (Status.OK, Status.TOOL_ERROR)
        ]
        if turn.user:
            made.append([])
    return made


def paired(entry: Entry, turns: Sequence[Turn]) -> list[tuple[list[Call], tuple[Call, ...]]]:
    """(calls made, gold calls) of each user turn; nothing made where the episode did not get to."""
    made = calls_by_request(turns)
    made += [[]] * (len(entry.gold) - len(made))
    return list(zip(made, entry.gold, strict=False))


def same(entry: Entry, call: Call, gold: Call) -> bool:
    """Whether two calls mean the same."""
    read = bfcl_world.complete
    return call.name == gold.name and read(call, entry.services) == read(gold, entry.services)


def likeness(entry: Entry, call: Call, gold: Call) -> float:
    """Half for the function, half for the share of arguments that agree; 0 for another function."""
    if call.name != gold.name:
        return 0.0
    one, other = (bfcl_world.complete(each, entry.services) for each in (call, gold))
    names = one.keys() | other.keys()
    agree = sum(one.get(name) == other.get(name) for name in names)
    return 0.5 + 0.5 * (agree / len(names) if names else 1.0)


def in_order(
    made: Sequence[Call], gold: Sequence[Call], worth: Callable[[Call, Call], float]
) -> float:
    """The most that gold calls are worth when each is matched at most once, in order."""
    best = [0.0] * (len(gold) + 1)
    for call in made:
        before = best
        best = [0.0]
        for place, wanted in enumerate(gold):
            best.append(max(before[place + 1], best[place], before[place] + worth(call, wanted)))
    return best[-1]


def score(entry: Entry, episode: Episode) -> float:
    """2 matched / (made + gold), averaged over the user turns: calls beside gold cost something.

    Nothing is executed for it.  A user turn that needs no call is worth 1 only where none was made
    after the user had spoken.
    """
    worth = functools.partial(likeness, entry)
    reached = len(calls_by_request(episode.turns))
    total = 0.0
    for place, (made, gold) in enumerate(paired(entry, episode.turns)):
        if made or gold:
            total += 2 * in_order(made, gold, worth) / (len(made) + len(gold))
        else:
            total += place < reached
    return total / len(entry.gold)


def process_accuracy(episode: Episode) -> float:
    """The share of gold calls that were made exactly, in order.  For evaluation."""
    category, number = episode.task.id.rsplit('/', 1)[1].rsplit('_', 1)
    entry = next(each for each in bfcl_world.entries(category) if each.number == int(number))
    pairs = paired(entry, episode.turns)
    matched = sum(in_order(made, gold, functools.partial(same, entry)) for made, gold in pairs)
    return matched / sum(map(len, entry.gold))


def subgoals(entry: Entry) -> tuple[Subgoal, ...]:
    """One for each user turn that needs calls."""

    def reached(turns: Sequence[Turn], place: int) -> bool:
        made, gold = paired(entry, turns)[place]
        return in_order(made, gold, functools.partial(same, entry)) == len(gold)

    return tuple(
        Subgoal(
            name=f'request {place + 1}',
            reached=functools.partial(reached, place=place),
            tools=frozenset(call.name for call in calls),
        )
        for place, calls in enumerate(entry.gold)
        if calls
    )


def solved(entry: Entry, episode: Episode) -> bool:
    """The benchmark's verdict: equal states and no gold answer missing after each user turn.

    The calls are made again, in worlds of their own, and compared by the benchmark's code.
    """
    if episode.termination is not Termination.ANSWERED:
        return False
    ours, theirs, answers = entry.start(), entry.start(), []
    checker = bfcl_world.checker()
    for place, (made, gold) in enumerate(paired(entry, episode.turns)):
        answers += bfcl_world.replay(ours, made)
        wanted = bfcl_world.replay(theirs, gold)
        if not gold:
            continue
        if not made or not checker.state_checker(ours, theirs)['valid']:
            return False
        if not checker.response_checker(answers, wanted, place)['valid']:
            return False
    return True
