"""An ablation: every row by every seed from one supervised start a seed; a table with intervals.

    ./launch.sh ablate paper --dry-run                    # the runs, and how long they may take
    ./launch.sh ablate paper --seeds 0 1 2 --parallel 2
    ./launch.sh ablate thin-cache --rows 'no tiers' --steps 40 --evaluation.unseen 32

Options that are not the ablation's own change the settings that all rows share, --preset included;
without one the runs are short.  An ablation that was stopped or killed goes on when the same
command is given again: finished runs are kept, half-done ones go on from their checkpoint.
"""

import dataclasses
import json
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro

from cacherl_jax.compose.command import read_config
from cacherl_jax.config import RunConfig
from cacherl_jax.run.ending import State
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, settings_hash, versions
from cacherl_jax.run.stop import leave_if, listen_for_stop
from cacherl_jax.run.terminal import print_table, progress
from experiments.ablations.definition import Ablation
from experiments.ablations.figure import draw
from experiments.ablations.jobs import Job, Planned, jobs_of, plan
from experiments.ablations.measures import Outcome, outcome
from experiments.ablations.named import ABLATIONS
from experiments.ablations.table import cells, entries, markdown, runs_csv, table_csv
from experiments.launching.side_by_side import Ended, Ending, room_for, run_jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class AblateSettings:
    """Which ablation, and how it is run."""

    name: tyro.conf.Positional[str]  # of the ablation
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # one run of every row for each
    rows: tuple[str, ...] = ()  # only these, and the baseline
    parallel: int = 1  # runs side by side, as far as memory allows
    run_gib: float = 3.0  # memory that one run may take
    out: pathlib.Path = pathlib.Path('runs/ablations')  # runs, starts, and a folder for each table
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False  # print the runs, make none

    def __post_init__(self):
        if self.parallel < 1 or self.run_gib <= 0:
            raise ValueError(
                'parallel must be at least 1 and run_gib above 0, '
                f'got {self.parallel} and {self.run_gib}'
            )


def ablation_named(name: str) -> Ablation:
    """The definition; Refusal for a name that there is not."""
    if name not in ABLATIONS:
        raise Refusal(f'no ablation {name!r}', allowed=', '.join(ABLATIONS))
    return ABLATIONS[name]


def shared_config(ablation: Ablation, others: Sequence[str]) -> RunConfig:
    """What all rows share: options over the ablation's settings over the preset."""
    named = any(word.split('=')[0] == '--preset' for word in others)
    return read_config(__doc__, list(others), lambda preset: ablation.start(preset, not named))


def explain(ablation: Ablation, planned: Sequence[Planned], parallel: int) -> str:
    """Every run with its command, what sets its row apart, and how long it may take."""
    lines = []
    for number, one in enumerate(planned, start=1):
        differences = plain(ablation.rows[one.job.row])
        told = [f'{name} = {json.dumps(value)}' for name, value in differences.items()]
        told = [told_of(one), *(told or ['the baseline'])]
        lines.append(f'# {number}: {one.job.row}, seed {one.job.config.seed}: {"; ".join(told)}')
        lines.append(shlex.join(one.job.command))
    seconds = [one.seconds for one in planned]
    hours = max(sum(seconds) / parallel, max(seconds, default=0)) / 3600
    done = sum(one.state is State.FINISHED for one in planned)
    lines.append(f'{len(planned)} runs, {done} finished; about {60 * hours:.0f} minutes to come')
    return '\n'.join(lines)


def told_of(one: Planned) -> str:
    if one.state is State.FINISHED:
        return 'finished'
    start = ', makes its start' if one.makes_start else ''
    return f'{one.state}{start}, about {one.seconds:.0f} s'


def outcomes_of(jobs: Sequence[Job]) -> dict[str, dict[int, Outcome]]:
    """What the finished runs came to, by row and seed."""
    found: dict[str, dict[int, Outcome]] = {job.row: {} for job in jobs}
    for job in jobs:
        if job.state is State.FINISHED:
            found[job.row][job.config.seed] = outcome(job.folder)
    return found


def write_table(
    name: str, ablation: Ablation, shared: RunConfig, jobs: Sequence[Job], out: pathlib.Path
) -> list[dict[str, Any]]:
    """table.md, table.csv, runs.csv, figure.svg and ablation.json, of the runs finished so far."""
    outcomes = outcomes_of(jobs)
    found = entries(outcomes, ablation.baseline, ablation.target)
    drawn = draw(ablation.question, found, outcomes, ablation.baseline, ablation.target)
    folder = out / name
    write_atomically(folder / 'table.md', markdown(*cells(found)))
    write_atomically(folder / 'table.csv', table_csv(found))
    write_atomically(folder / 'runs.csv', runs_csv(outcomes, ablation.target))
    write_atomically(folder / 'figure.svg', drawn)
    told = {
        'ablation': name,
        'question': ablation.question,
        'baseline': ablation.baseline,
        'differences': plain(ablation.rows),
        'shared': plain(shared),
        'shared_hash': settings_hash(shared),
        'entries': [{key: plain_estimate(value) for key, value in one.items()} for one in found],
        'runs': [run_line(job) for job in jobs],
        'versions': versions(),
    }
    write_atomically(folder / 'ablation.json', json.dumps(told, indent=2) + '\n')
    return found


def plain_estimate(value: Any) -> Any:
    return value._asdict() if hasattr(value, '_asdict') else value


def run_line(job: Job) -> Mapping[str, Any]:
    seed, state = job.config.seed, str(job.state)
    return {'row': job.row, 'seed': seed, 'folder': str(job.folder), 'state': state}


def run_all(planned: Sequence[Planned], parallel: int, stop) -> list[Ending]:
    """Runs what is not finished, with a bar."""
    todo = [one.job for one in planned if one.state is not State.FINISHED]
    with progress('ablation', len(planned), done=len(planned) - len(todo)) as advance:

        def tell(ending: Ending) -> None:
            where = f'{ending.job.row}, seed {ending.job.config.seed}'
            if ending.told:
                print(f'{where}: {ending.told}', file=sys.stderr)
            advance(run=where, ended=str(ending.ended))

        return run_jobs(todo, parallel, tell, stop)


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings, others = tyro.cli(AblateSettings, description=__doc__, return_unknown_args=True)
    ablation = ablation_named(settings.name)
    shared = shared_config(ablation, others)
    jobs = jobs_of(ablation.configs(shared, settings.rows), settings.seeds, settings.out)
    parallel = room_for(settings.parallel, settings.run_gib)
    if parallel < settings.parallel:
        print(f'memory for {parallel} of {settings.parallel} runs at a time', file=sys.stderr)
    planned = plan(jobs)
    if settings.dry_run:
        print(explain(ablation, planned, parallel))
        return
    stop = listen_for_stop()
    endings = run_all(planned, parallel, stop)
    found = write_table(settings.name, ablation, shared, jobs, settings.out)
    print_table(ablation.question, *cells(found))
    print(f'{settings.out / settings.name}/table.md, table.csv, runs.csv, figure.svg')
    leave_if(stop(), 'by hand; the same command goes on')
    if unfinished := [ending for ending in endings if ending.ended is not Ended.FINISHED]:
        raise Refusal(
            f'{len(unfinished)} runs have no result, and the table is without them:\n  '
            + '\n  '.join(f'{e.job.row}, seed {e.job.config.seed}: {e.told}' for e in unfinished),
            remedy='see what they say; the same command tries them again',
        )


if __name__ == '__main__':
    main()
