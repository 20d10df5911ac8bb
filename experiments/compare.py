"""Is one run better than another?  A paired test over the tasks that both were measured on.

    ./launch.sh compare runs/first runs/second
    ./launch.sh compare base.jsonl runs/second --measure score --json compare.json

The second minus the first, with a 95% interval over tasks and the p value of a sign-flip
permutation test, which for one attempt a task is McNemar's exact test.
"""

import dataclasses
import json
import pathlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import tyro

from cacherl_jax.evaluate.record import MEASURES, content_hash, episode_lines, read_records
from cacherl_jax.evaluate.statistics import Comparison, compare_paired
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tasks.task import Termination


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """What is compared."""

    first: tyro.conf.Positional[pathlib.Path]  # a run folder, or a file of evaluate --episodes
    second: tyro.conf.Positional[pathlib.Path]  # the same of the other one
    stage: str = ''  # train, supervised or final; not given: the one written last in each
    measure: Literal[*MEASURES] = 'success'  # of an episode; its mean is a task's number
    json: pathlib.Path | None = None  # where the numbers go, with the settings they belong to


def task_means(records: Sequence[Mapping[str, Any]], measure) -> dict[str, dict[str, float]]:
    """{suite: {task: mean over attempts}}; what infrastructure spoiled is left out."""
    attempts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record['termination'] != Termination.TOOL_INFRASTRUCTURE:
            attempts[record['suite']][record['task']].append(measure(record))
    return {
        suite: {task: sum(values) / len(values) for task, values in of_suite.items()}
        for suite, of_suite in attempts.items()
    }


def compare(settings: CompareSettings) -> dict[str, Comparison]:
    """Each suite that both have, all tasks together under 'all' first."""
    measure = MEASURES[settings.measure]
    first, second = (
        task_means(read_records(source, settings.stage), measure)
        for source in (settings.first, settings.second)
    )
    whole = [
        {task: mean for of_suite in side.values() for task, mean in of_suite.items()}
        for side in (first, second)
    ]
    found = {'all': compare_paired(*whole)}
    shared = sorted(first.keys() & second.keys())
    for suite in shared if len(shared) > 1 else ():
        found[suite] = compare_paired(first[suite], second[suite])
    return found


def table(found: Mapping[str, Comparison]) -> tuple[list[str], list[list]]:
    """Columns and rows, one for each suite."""
    columns = ['suite', 'tasks', 'first', 'second', 'difference', '95%', 'better', 'worse', 'p']
    rows = []
    for suite, one in found.items():
        interval = f'{one.interval[0]:+.2f} to {one.interval[1]:+.2f}'
        row = [suite, one.tasks, one.first, one.second, one.difference, interval]
        rows.append([*row, one.better, one.worse, one.p_value])
    return columns, rows


@refusing(ValueError)
def main() -> None:
    """The command."""
    settings = tyro.cli(CompareSettings, description=__doc__)
    found = compare(settings)
    title = f'{settings.measure}: {settings.second} against {settings.first}'
    print_table(title, *table(found))
    if settings.json:
        sources = {'first': settings.first, 'second': settings.second}
        hashes = {name: content_hash(episode_lines(source)) for name, source in sources.items()}
        told = {'settings': plain(settings), 'suites': plain(found)}
        told |= {'hashes': hashes, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
