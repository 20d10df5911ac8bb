"""What the watchdog would have said of runs, step by step; nothing is trained.

    ./launch.sh watch runs/small runs/other
    ./launch.sh watch runs/ablations/runs/* --signs.kl 0.2 --json alarms.json

A run that goes on can be looked at too.  Signs are those of the settings given here, whatever the
run was watched by: so they can be tried before they are set.
"""

import dataclasses
import json
import pathlib
from typing import Any

import tyro

from cacherl_jax.compose.watching import HISTORY_STEPS
from cacherl_jax.run.degeneration import DegenerationSettings, degenerations
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.metrics import written_numbers
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """Which runs, and what counts as a degeneration."""

    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]]  # folders of runs
    signs: DegenerationSettings = DegenerationSettings()
    json: pathlib.Path | None = None  # where the alarms go, with the settings they belong to

    def __post_init__(self):
        if not self.runs:
            raise ValueError('name the folder of a run, or several')


def alarms_of(folder: pathlib.Path, signs: DegenerationSettings) -> dict[str, Any]:
    """A run's steps and its alarms: of each the first step, how many steps, and its first words."""
    history = written_numbers(folder, 'rewards/judged', last=10**9)
    if not history:
        raise Refusal(f'{folder} holds no metrics of RL', allowed='folders that train wrote to')
    found: dict[str, dict[str, Any]] = {}
    for end in range(1, len(history) + 1):
        for alarm in degenerations(history[max(0, end - HISTORY_STEPS) : end], signs):
            step = int(history[end - 1]['step'])
            first = {'first_step': step, 'steps': 0, 'message': alarm.message}
            found.setdefault(alarm.name, first)['steps'] += 1
    return {'run': str(folder), 'steps': len(history), 'alarms': found}


def rows_of(told: dict[str, Any]) -> list[tuple]:
    """A line for each alarm of a run, one with a dash where nothing sounded."""
    run = (pathlib.Path(told['run']).name, told['steps'])
    lines = [
        (*run, name, each['first_step'], each['steps'], each['message'])
        for name, each in told['alarms'].items()
    ]
    return lines or [(*run, None, None, 0, '')]


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(WatchSettings, description=__doc__)
    told = [alarms_of(folder, settings.signs) for folder in settings.runs]
    quiet = sum(not each['alarms'] for each in told)
    columns = ('run', 'steps', 'alarm', 'first step', 'steps of it', 'what was seen')
    rows = [row for each in told for row in rows_of(each)]
    print_table(f'{quiet} of {len(told)} runs sound no alarm', columns, rows)
    if settings.json:
        kept = {'settings': plain(settings), 'runs': told, 'versions': versions()}
        write_atomically(settings.json, json.dumps(kept, indent=2) + '\n')


if __name__ == '__main__':
    main()
