"""Train once for each point of a grid of settings, one after the other; a table of all results.

    ./launch.sh sweep --vary seed 0 1 2 --vary mix.share.start 0 0.3 --mix.share.end 0
    ./launch.sh sweep --vary curriculum.suites trip research,trip --dry-run --steps 10

Options that are not the sweep's own go to train.py as they are.  A sweep that was stopped goes on
when the same command is given again: runs with a result.json are done.
"""

import csv
import dataclasses
import io
import itertools
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro

from cacherl_jax.run.ending import why_unfinished
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.terminal import print_table

TRAIN = pathlib.Path(__file__).with_name('train.py')
Numbers = dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What varies, and where it goes."""

    vary: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()  # NAME VALUE VALUE ...
    out: pathlib.Path = pathlib.Path('runs/sweep')  # a folder for each run, and the tables
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False  # print the jobs, run none

    def __post_init__(self):
        names = [name for name, *_ in self.vary]
        for name, *values in self.vary:
            if not values or len(set(values)) < len(values) or names.count(name) > 1:
                raise ValueError(
                    f'vary needs a name once and different values, got {name} {values}'
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run."""

    point: Mapping[str, str]  # the settings that vary
    folder: pathlib.Path
    command: tuple[str, ...]

    @property
    def result(self) -> pathlib.Path:
        return self.folder / 'result.json'


def jobs(settings: SweepSettings, others: Sequence[str]) -> list[Job]:
    """One for each combination; the first setting varies slowest.  Commas part a list's items."""
    names = [name for name, *_ in settings.vary]
    found = []
    for values in itertools.product(*(values for _, *values in settings.vary)):
        point = dict(zip(names, values, strict=True))
        name = ' '.join(f'{n}={v}' for n, v in point.items()).replace('/', '_').replace(' ', '__')
        folder = settings.out / (name or 'run')
        varied = [word for n, v in point.items() for word in (f'--{n}', *v.split(','))]
        command = (sys.executable, str(TRAIN), *others, *varied, '--run-dir', str(folder))
        found.append(Job(point=point, folder=folder, command=command))
    return found


def run(job: Job) -> None:
    """Train, unless the result is there; a folder belongs to the command that began it."""
    said = job.folder / 'command.txt'
    command = shlex.join(job.command[2:])  # without the interpreter and the script
    if said.exists() and said.read_text(encoding='utf-8') != command:
        raise Refusal(
            f'{job.folder} was begun by another command:\n  {said.read_text(encoding="utf-8")}\n'
            f'and this one is\n  {command}',
            remedy='give that command again, or another --out',
        )
    if job.result.exists():
        return
    write_atomically(said, command)
    print(f'{shlex.join(job.command)}', file=sys.stderr)
    code = subprocess.run(job.command).returncode
    if not job.result.exists():
        raise Refusal(
            f'the run in {job.folder} {why_unfinished(job.folder, code)}',
            remedy='see what it said; the same command goes on with this run',
        )


def numbers_of(result: Mapping[str, Any]) -> Numbers:
    """Success by suite and stage out of a result.json, with the means over suites."""
    found = {
        f'{stage} {suite}': stages[stage]['success']
        for stage in ('supervised', 'final')
        for suite, stages in result['suites'].items()
    }
    for stage in ('supervised', 'final'):
        of_stage = [value for name, value in found.items() if name.startswith(f'{stage} ')]
        found[f'{stage} mean'] = statistics.fmean(of_stage)
    return found | {'seconds': result['seconds']}


def summary(points: Sequence[Mapping[str, str]], numbers: Sequence[Numbers]) -> list[dict]:
    """One entry for each combination of settings other than the seed: mean, least and largest."""
    groups: dict[tuple, list[Numbers]] = {}
    for point, found in zip(points, numbers, strict=True):
        key = tuple((name, value) for name, value in point.items() if name != 'seed')
        groups.setdefault(key, []).append(found)
    return [
        {'settings': dict(key), 'runs': len(found)}
        | {
            name: [statistics.fmean(values), min(values), max(values)]
            for name in found[0]
            for values in [[one[name] for one in found]]
        }
        for key, found in groups.items()
    ]


def cells(entries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of text: settings, runs, then `mean (least to largest)` of every number."""
    columns = [*entries[0]['settings'], *(name for name in entries[0] if name != 'settings')]
    rows = []
    for entry in entries:
        shown = [
            f'{x[0]:.3f} ({x[1]:.3f} to {x[2]:.3f})' if isinstance(x, list) else str(x)
            for name, x in entry.items()
            if name != 'settings'
        ]
        rows.append([*entry['settings'].values(), *shown])
    return columns, rows


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ['---'] * len(columns), *rows]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def comma_separated(points: Sequence[Mapping[str, str]], numbers: Sequence[Numbers]) -> str:
    """One line for each run."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*points[0], *numbers[0]], lineterminator='\n')
    writer.writeheader()
    writer.writerows(point | found for point, found in zip(points, numbers, strict=True))
    return text.getvalue()


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings, others = tyro.cli(SweepSettings, description=__doc__, return_unknown_args=True)
    todo = jobs(settings, others)
    if settings.dry_run:
        for job in todo:
            print(f'{shlex.join(job.command)}{"  # done" if job.result.exists() else ""}')
        return
    for job in todo:
        run(job)
    points = [job.point for job in todo]
    numbers = [numbers_of(json.loads(job.result.read_text())) for job in todo]
    entries = summary(points, numbers)
    columns, rows = cells(entries)
    print_table(f'{len(todo)} runs: mean (least to largest)', columns, rows)
    write_atomically(settings.out / 'sweep.json', json.dumps(entries, indent=2) + '\n')
    write_atomically(settings.out / 'sweep.csv', comma_separated(points, numbers))
    write_atomically(settings.out / 'sweep.md', markdown(columns, rows))


if __name__ == '__main__':
    main()
