"""Is an exact hit right where calls change the state?  Real benchmarks, every hit executed again.

    python experiments/bench_tool_cache_state.py --json state.json
    python experiments/bench_tool_cache_state.py --benchmark tau2 --samples 2 --noise 0.3

Two caches answer the same calls: one knows a call by name and arguments alone, the other by the
state as well (`session` scope).  They are asked twice.  Held-out tasks play gold after all other
tasks have.  And every task is played by a careless expert, who leaves calls out, repeats, swaps and
adds some, after other such episodes of the same task: as the samples of a group do.
"""

import dataclasses
import json
import pathlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import tyro

from cacherl_jax.evaluate.statistics import wilson_interval
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tasks import bfcl_world
from cacherl_jax.tasks.bfcl import BfclSettings, make_task
from cacherl_jax.tasks.suite import SPLITS, demonstrate
from cacherl_jax.tasks.tau2 import Tau2Settings, tau2_tasks
from cacherl_jax.tool_cache.audit import Judged, Turns, hits, judged, reexecuted
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.tiers import TierSettings
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Call, Scope, Tool, Unavailable

EXACT_ONLY = TierSettings(fuzzy=False, best_effort=False)
HELD_OUT = 5  # one task in so many


class Game(NamedTuple):
    """A task as far as its calls go."""

    task: str
    number: int  # tasks of one number share their content
    tools: tuple[Tool, ...]
    start: Callable[[], Any]
    gold: tuple[Call, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateSettings:
    """Which tasks, and how careless their players are."""

    benchmark: Literal['bfcl', 'tau2'] = 'bfcl'
    category: Literal['base', 'miss_param', 'long_context'] = 'base'  # of BFCL
    tasks: int = 0  # 0: all
    samples: int = 4  # episodes of a task that fill the cache, and as many that ask it
    noise: float = 0.2  # share of calls that are left out, repeated, swapped or made up
    seed: int = 0
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        if not 0 <= self.noise <= 1:
            raise ValueError(f'noise must be in 0..1, got {self.noise}')
        if self.samples < 1:
            raise ValueError(f'samples must be at least 1, got {self.samples}')


def bfcl_games(category: str) -> Iterator[Game]:
    """BFCL's tasks with all their functions and their gold calls."""
    everything = BfclSettings(category=category, distractor_tools=None)
    for entry in bfcl_world.entries(category):
        task = make_task(entry, everything)
        gold = tuple(call for calls in entry.gold for call in calls)
        yield Game(task.id, entry.number, task.tools, task.start, gold)


def tau2_games() -> Iterator[Game]:
    """The 114 base tasks of tau2-bench telecom in solo mode, with all their tools."""
    everything = Tau2Settings(distractor_tools=None, policy='none')
    tasks = (task for split in SPLITS for task in tau2_tasks(split, everything))
    for number, task in enumerate(sorted(tasks, key=lambda task: task.id)):
        session = live_sessions().open_session(task.id, task.tools, task.start)
        turns = demonstrate(task, session.answer).turns
        gold = tuple(call for turn in turns for call in turn.calls)
        yield Game(task.id, number, task.tools, task.start, gold)


def careless(game: Game, noise: float, seed: str) -> list[Call]:
    """Gold with slips."""
    draw, calls = random.Random(seed), []
    for call in game.gold:
        slip = draw.choice(('skip', 'repeat', 'swap', 'other')) if draw.random() < noise else ''
        if slip == 'swap' and calls:
            calls.insert(-1, call)
        elif slip != 'skip':
            calls.append(call)
        if slip == 'repeat':
            calls.append(call)
        elif slip == 'other':
            calls.append(draw.choice(game.gold))
    return calls


def stateless(tool: Tool) -> Tool:
    """The tool as a cache sees it that knows no states; it cannot run."""

    def closed(**arguments: Any) -> str:
        raise Unavailable('a stateless tool is looked up only')

    return dataclasses.replace(tool, scope=Scope.PURE, changes_state=False, function=closed)


def play(open_session: Callable, game: Game, calls: Iterable[Call], sample: int = 0) -> Turns:
    """An episode of one call a turn."""
    session = open_session(game.task, game.tools, game.start, sample)
    turns = [((call,), session.answer((call,))) for call in calls]
    session.close()
    return turns


def by_name_and_arguments(
    filling: Sequence[tuple[Game, Turns]], asking: Sequence[tuple[Game, Turns]]
) -> list[Judged]:
    """The hits of a cache without states; both parts were played live."""
    cache = make_tool_cache(':memory:', ToolCacheSettings(mode='replay', tiers=EXACT_ONLY))
    blind = {game.task: [stateless(tool) for tool in game.tools] for game, _ in asking + filling}
    for game, turns in filling:
        pairs = [(calls[0], results[0]) for calls, results in turns]
        cache.record_results(game.task, blind[game.task], pairs)
    told = []
    for game, turns in asking:
        session = cache.open_session(game.task, blind[game.task], game.start)
        for (call,), (true,) in turns:
            served = session.answer((call,))
            if hits([((call,), served)]):
                told.append(judged(game.task, call, served[0], true))
    cache.close()
    return told


def by_session(
    filling: Sequence[tuple[Game, Sequence[Call]]], asking: Sequence[tuple[Game, Sequence[Call]]]
) -> list[Judged]:
    """The hits of a cache with `session` scope, misses run; each executed again."""
    cache = make_tool_cache(':memory:', ToolCacheSettings(mode='read_through', tiers=EXACT_ONLY))
    for game, calls in filling:
        play(cache.open_session, game, calls)
        cache.commit()
    told = []
    for sample, (game, calls) in enumerate(asking, start=1):
        turns = play(cache.open_session, game, calls, sample)
        told += reexecuted(game.task, game.tools, game.start, turns, set(hits(turns)))
    cache.close()
    return told


def compared(filling: Sequence, asking: Sequence) -> dict[str, dict[str, Any]]:
    """{scope: calls, hits and how many were right}."""
    live = live_sessions().open_session
    played = [
        [(game, play(live, game, calls)) for game, calls in part] for part in (filling, asking)
    ]
    calls = sum(len(part) for _, part in asking)
    told = {
        'name, arguments': by_name_and_arguments(*played),
        'session': by_session(filling, asking),
    }
    return {scope: numbers(calls, part) for scope, part in told.items()}


def numbers(calls: int, told: Sequence[Judged]) -> dict[str, Any]:
    """Counts, with the interval of the share that is right."""
    right = sum(each.same for each in told)
    share = right / len(told) if told else None
    return {
        'calls': calls,
        'hits': len(told),
        'hit_rate': len(told) / calls,
        'right': right,
        'right_share': share,
        'right_wilson': wilson_interval(share or 0.0, len(told)),
    }


def measure(games: Sequence[Game], settings: StateSettings) -> dict[str, dict[str, Any]]:
    """{situation: {scope: numbers}}."""

    def kept(wanted: bool) -> list:
        part = [game for game in games if (game.number % HELD_OUT == HELD_OUT - 1) is wanted]
        return [(game, game.gold) for game in part]

    def careless_ones(first: int) -> list:
        return [
            (game, careless(game, settings.noise, f'{settings.seed}/{game.task}/{first + sample}'))
            for game in games
            for sample in range(settings.samples)
        ]

    return {
        'held-out tasks': compared(kept(False), kept(True)),
        'samples of a group': compared(careless_ones(0), careless_ones(settings.samples)),
    }


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(StateSettings, description=__doc__)
    bfcl = settings.benchmark == 'bfcl'
    with refusing(ModuleNotFoundError):
        games = list(bfcl_games(settings.category) if bfcl else tau2_games())
    told = measure(games[: settings.tasks or None], settings)
    rows = [
        [f'{situation}, {scope}', row['calls'], row['hits'], f'{row["hit_rate"]:.1%}', row['right']]
        + ['–' if row['right_share'] is None else f'{row["right_share"]:.1%}']
        + ['{:.1%}–{:.1%}'.format(*row['right_wilson'])]
        for situation, scopes in told.items()
        for scope, row in scopes.items()
    ]
    columns = ['calls known by', 'calls', 'hits', 'of calls', 'right', 'of hits', '95%']
    material = f'bfcl {settings.category}' if bfcl else 'tau2 telecom'
    print_table(f'exact hits in {material}, executed again', columns, rows)
    if settings.json:
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
