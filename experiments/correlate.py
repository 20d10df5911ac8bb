"""Do a run's rewards agree with people?  Pearson, Spearman, Kendall, with intervals over tasks.

    ./launch.sh correlate runs/small --page scores.html     # to read, score and save scores.csv
    ./launch.sh correlate runs/small --sheet scores.csv     # or a sheet to fill in
    ./launch.sh correlate runs/small --scores scores.csv    # the table

An episode that several people scored, a line each, counts with their mean.
"""

import dataclasses
import json
import pathlib
from typing import Any, Literal

import tyro

from cacherl_jax.evaluate.human import (
    blank_sheet,
    human_agreement,
    read_sheet,
    scoring_page,
)
from cacherl_jax.evaluate.record import MEASURES, content_hash, episode_lines, read_records
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelateSettings:
    """Which episodes, and whose scores."""

    run: tyro.conf.Positional[pathlib.Path]  # a run folder, or a file of evaluate --episodes
    scores: pathlib.Path | None = None  # the sheet, filled in
    sheet: pathlib.Path | None = None  # where an empty sheet goes
    page: pathlib.Path | None = None  # where a page to score on goes
    stage: str = ''  # train, supervised or final; not given: the one written last
    # What is held against people's scores; `reward` is what training paid, so of stage train only.
    reward: Literal['score', 'success', 'reward'] = 'score'
    json: pathlib.Path | None = None  # where the numbers go, with the settings they belong to

    def __post_init__(self):
        if [self.scores, self.sheet, self.page].count(None) != 2:
            raise ValueError(
                'give either --page FILE, to get a page to score on, or --sheet FILE, a sheet to '
                'fill in, or --scores FILE, the one that was filled in'
            )
        for new in (self.sheet, self.page):
            if new is not None and new.exists():
                raise ValueError(f'{new} is there already; give another name')


def correlate(settings: CorrelateSettings) -> dict[str, Any]:
    """Numbers by suite: how many episodes, and the three coefficients."""
    records = read_records(settings.run, settings.stage)
    if not settings.scores.is_file():
        raise Refusal(f'{settings.scores} is not there', allowed='a CSV file')
    found = human_agreement(records, read_sheet(settings.scores), MEASURES[settings.reward])
    return {
        suite: {'episodes': count} | {name: plain(one) for name, one in agreements.items()}
        for suite, (count, agreements) in found.items()
    }


def table(suites: dict[str, Any]) -> tuple[list[str], list[list]]:
    """Columns and rows: three for each suite."""
    rows = []
    for suite, numbers in suites.items():
        for name in ('pearson', 'spearman', 'kendall'):
            one = numbers[name]
            low, high = one['interval'] or (None, None)
            interval = None if low is None else f'{low:.2f} to {high:.2f}'
            row = [suite, numbers['episodes'], name, one['coefficient'], interval, one['p_value']]
            rows.append(row)
    return ['suite', 'episodes', 'measure', 'coefficient', '95%', 'p'], rows


@refusing(ValueError)
def main() -> None:
    """The command."""
    settings = tyro.cli(CorrelateSettings, description=__doc__)
    for new, render in ((settings.sheet, blank_sheet), (settings.page, scoring_page)):
        if new is not None:
            write_atomically(new, render(read_records(settings.run, settings.stage)))
            print(new)
            return
    suites = correlate(settings)
    print_table(f'{settings.reward} of {settings.run} against people', *table(suites))
    if settings.json:
        hashes = {
            'episodes': content_hash(episode_lines(settings.run)),
            'scores': content_hash(settings.scores),
        }
        told = {'settings': plain(settings), 'suites': suites}
        told |= {'hashes': hashes, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
