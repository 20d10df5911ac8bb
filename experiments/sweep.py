"""Train at many settings: over a grid, or where Optuna looks; a table of all results.

    ./launch.sh sweep --vary seed 0 1 2 --vary mix.share.start 0 0.3 --mix.share.end 0
    ./launch.sh sweep --vary curriculum.suites trip research,trip --dry-run --steps 10
    ./launch.sh sweep --search learning-rate 1e-3 1e-2 log --trials 20 --vary seed 0 1 --parallel 2
    ./launch.sh sweep --vary seed 0 1 2 --where slurm --slurm.partition gpu --slurm.hours 4
    ./launch.sh sweep --vary seed 0 1 2 --where hosts --hosts.names tpu-0 tpu-1

Options that are not the sweep's own go to train.py as they are.  A sweep that was stopped or killed
goes on when the same command is given again: finished runs are kept, half-done ones go on from
their checkpoint.  What a run says is in output.txt of its folder.
"""

import dataclasses
import itertools
import json
import math
import pathlib
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import tyro

from cacherl_jax.run.ending import State, state_of
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.stop import leave_if, listen_for_stop
from cacherl_jax.run.terminal import print_table, progress
from experiments.launching.hosts import Hosts, HostSettings
from experiments.launching.search import DRAWN, Search, read_range
from experiments.launching.side_by_side import (
    Cores,
    Ended,
    Ending,
    Running,
    room_for,
    run_jobs,
)
from experiments.launching.slurm import Slurm, SlurmSettings, parameters, slurm_command
from experiments.launching.table import (
    Numbers,
    cells,
    comma_separated,
    markdown,
    numbers_of,
    summary,
)

TRAIN = pathlib.Path(__file__).with_name('train.py')
SEARCHED = 4  # runs of a search in a queue: what the next trial is depends on those that ended


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What varies, where it runs, and where it goes."""

    vary: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()  # NAME VALUE VALUE ...
    search: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()  # NAME LOW HIGH [log] [int]
    trials: int = 20  # of a search; each is run at every point that varies
    score: str = 'final mean'  # what a search raises: a column of the table
    search_seed: int = 0
    out: pathlib.Path = pathlib.Path('runs/sweep')  # a folder for each run, and the tables
    where: Literal['here', 'slurm', 'hosts'] = 'here'
    # Runs at a time; 0: one here, one on each host, all in a queue but four of a search.
    parallel: int = 0
    run_gib: float = 3.0  # memory that one run may take here
    slurm: SlurmSettings = SlurmSettings()
    hosts: HostSettings = HostSettings()
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False  # print the jobs, run none

    def __post_init__(self):
        names = [name for name, *_ in (*self.vary, *self.search)]
        for name, *values in self.vary:
            if not values or len(set(values)) < len(values) or names.count(name) > 1:
                raise ValueError(
                    f'vary needs a name once and different values, got {name} {values}'
                )
        ranges = [read_range(words) for words in self.search]
        if len({each.name for each in ranges}) < len(ranges):
            raise ValueError(f'search needs every name once, got {names}')
        if self.trials < 1 or self.parallel < 0 or self.run_gib <= 0:
            raise ValueError(
                'trials must be at least 1, parallel 0 or more and run_gib above 0, '
                f'got {self.trials}, {self.parallel} and {self.run_gib}'
            )
        if (self.where == 'hosts') != bool(self.hosts.names):
            raise ValueError('--where hosts and --hosts.names NAME ... go together')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run."""

    point: Mapping[str, str]  # the settings that vary
    folder: pathlib.Path
    arguments: tuple[str, ...]  # of train.py

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, str(TRAIN), *self.arguments, '--run-dir', str(self.folder))

    @property
    def state(self) -> State:
        return state_of(self.folder)

    @property
    def result(self) -> pathlib.Path:
        return self.folder / 'result.json'

    def prepare(self) -> None:
        """Write down what the folder is for; it belongs to the command that began it."""
        said, command = self.folder / 'command.txt', shlex.join(self.command[2:])
        if not said.exists():
            return write_atomically(said, command)
        before = said.read_text(encoding='utf-8')
        if before != command:
            raise Refusal(
                f'{self.folder} was begun by another command:\n  {before}\nand this one is\n  '
                f'{command}',
                remedy='give that command again, or another --out',
            )


def jobs(
    settings: SweepSettings, others: Sequence[str], chosen: Mapping[str, str] | None = None,
    prefix: str = '',
) -> list[Job]:  # fmt: skip
    """One for each combination; the first setting varies slowest.  Commas part a list's items."""
    names = [name for name, *_ in settings.vary]
    found = []
    for values in itertools.product(*(values for _, *values in settings.vary)):
        varied = dict(zip(names, values, strict=True))
        name = ' '.join(f'{n}={v}' for n, v in varied.items()).replace('/', '_').replace(' ', '__')
        name = '__'.join(filter(None, [prefix, name])) or 'run'
        point = dict(chosen or {}) | varied
        words = [word for n, v in point.items() for word in (f'--{n}', *v.split(','))]
        found.append(Job(point=point, folder=settings.out / name, arguments=(*others, *words)))
    return found


class Course:
    """The jobs in the order they are begun, and what becomes of a search while they end."""

    def __init__(self, settings: SweepSettings, others: Sequence[str]):
        self.settings, self.others = settings, others
        self.made: list[Job] = []
        self.search, self._open = None, {}  # trial: its jobs, and those of them that have ended
        if settings.search:
            ranges = [read_range(words) for words in settings.search]
            self.search = Search(ranges, settings.search_seed, settings.out / 'search.json')

    @property
    def size(self) -> int:
        """How many jobs there will be."""
        points = math.prod(len(values) for _, *values in self.settings.vary)
        return points * (self.settings.trials if self.search else 1)

    def asked(self, trials: int) -> Iterator[list[Job]]:
        """The jobs of every trial in turn; all of a grid at once."""
        if self.search is None:
            self.made = jobs(self.settings, self.others)
            yield self.made
            return
        for number in range(trials):
            found = jobs(self.settings, self.others, self.search.ask(), f'trial-{number:03d}')
            self.made += found
            yield found

    def jobs(self) -> Iterator[Job]:
        """Each job when there is room for it.  Refusal for a folder of another command."""
        for number, found in enumerate(self.asked(self.settings.trials)):
            for job in found:
                job.prepare()
            if self.search:
                self.search.write()
                self._open[number] = found, {j.folder for j in found if j.state is State.FINISHED}
                self._settle(number)
            yield from found

    def heard(self, ending: Ending) -> None:
        """A job has ended."""
        for number, (found, ended) in list(self._open.items()):
            if ending.job in found:
                ended.add(ending.job.folder)
                self._settle(number)

    def _settle(self, number: int) -> None:
        found, ended = self._open[number]
        if len(ended) < len(found):
            return
        del self._open[number]
        name, numbers = self.settings.score, results_of(found)[1]
        if any(name not in one for one in numbers):
            raise Refusal(f'no score {name!r}', allowed=', '.join(numbers[0]))
        whole = len(numbers) == len(found)
        self.search.tell(number, statistics.fmean(n[name] for n in numbers) if whole else None)


def results_of(found: Sequence[Job]) -> tuple[list[Mapping[str, str]], list[Numbers]]:
    """Points and numbers of those that have a result."""
    done = [job for job in found if job.result.exists()]
    texts = (job.result.read_text(encoding='utf-8') for job in done)
    return [job.point for job in done], [numbers_of(json.loads(text)) for text in texts]


def place_of(settings: SweepSettings, size: int) -> tuple[Callable[[Job], Running], int]:
    """What begins a job where it is to run, and how many may run at a time."""
    if settings.where == 'slurm':
        many = settings.parallel or (SEARCHED if settings.search else size)
        return Slurm(settings.slurm, settings.out / 'slurm').begin, many
    if settings.where == 'hosts':
        hosts = Hosts(settings.hosts, TRAIN.parents[1])
        many = len(settings.hosts.names)
        return hosts.begin, min(settings.parallel or many, many)
    asked = settings.parallel or 1
    room = room_for(asked, settings.run_gib)
    if room < asked:
        print(f'memory for {room} of {asked} runs at a time', file=sys.stderr)
    return Cores(room).begin, room


def explain(settings: SweepSettings, course: Course) -> None:
    """Print every job that is known before the first has run."""
    if settings.where == 'slurm':
        print(f'# each in the queue with {parameters(settings.slurm)}')
    hosts = Hosts(settings.hosts, TRAIN.parents[1])
    known = min(settings.trials, DRAWN)
    for number, job in enumerate(job for found in course.asked(known) for job in found):
        command: Sequence[str] = job.command
        if settings.where == 'slurm':
            command = slurm_command(job)
        if settings.where == 'hosts':
            names = settings.hosts.names
            command = hosts.command(job, names[number % len(names)])
        print(f'{shlex.join(command)}{"  # done" if job.result.exists() else ""}')
    if more := course.size - len(course.made):
        print(f'# and {more} more, at what the scores of these will say')


def write_tables(out: pathlib.Path, found: Sequence[Job]) -> list[dict]:
    """sweep.json, sweep.csv and sweep.md, of the runs that have a result."""
    points, numbers = results_of(found)
    entries = summary(points, numbers)
    columns, rows = cells(entries)
    print_table(f'{len(numbers)} runs: mean (least to largest)', columns, rows)
    write_atomically(out / 'sweep.json', json.dumps(entries, indent=2) + '\n')
    write_atomically(out / 'sweep.csv', comma_separated(points, numbers))
    write_atomically(out / 'sweep.md', markdown(columns, rows))
    return entries


def run_all(course: Course, begin, parallel: int, stop: Callable[[], bool]) -> list[Ending]:
    """Runs what is not finished, with a bar."""
    with progress('sweep', course.size) as advance:

        def tell(ending: Ending) -> None:
            course.heard(ending)
            if ending.told:
                print(f'{ending.job.folder}: {ending.told}', file=sys.stderr)
            advance(run=ending.job.folder.name, ended=str(ending.ended))

        def todo() -> Iterator[Job]:
            for job in course.jobs():
                if job.state is State.FINISHED:
                    advance(run=job.folder.name, ended='before')
                yield job

        return run_jobs(todo(), parallel, tell, stop, begin)


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings, others = tyro.cli(SweepSettings, description=__doc__, return_unknown_args=True)
    course = Course(settings, others)
    if settings.dry_run:
        return explain(settings, course)
    stop = listen_for_stop()
    endings = run_all(course, *place_of(settings, course.size), stop)
    if any(job.result.exists() for job in course.made):
        entries = write_tables(settings.out, course.made)
        if course.search:
            best = max(entries, key=lambda entry: entry[settings.score][0])
            print(f'best {settings.score}: {best[settings.score][0]:.3f} at {best["settings"]}')
    leave_if(stop(), 'by hand; the same command goes on')
    if unfinished := [each for each in endings if each.ended is not Ended.FINISHED]:
        told = '\n  '.join(f'{each.job.folder}: {each.told}' for each in unfinished)
        raise Refusal(
            f'{len(unfinished)} runs have no result, and the tables are without them:\n  {told}',
            remedy='see what they say; the same command tries them again',
        )


if __name__ == '__main__':
    main()
