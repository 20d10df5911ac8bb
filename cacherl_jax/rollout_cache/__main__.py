"""Review what waits in a run's quarantine: list it, look at one record, approve, reject.

python -m cacherl_jax.rollout_cache review runs/small
python -m cacherl_jax.rollout_cache review runs/small --show 3fa91c
python -m cacherl_jax.rollout_cache review runs/small --approve 3fa91c 77b0d2 --reject 90ab12
"""

import dataclasses
import json
import pathlib
import sys
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cacherl_jax.rollout_cache.record import Record
from cacherl_jax.rollout_cache.review import decide, decisions, shown, waiting

SHOWN_CHARACTERS = 100  # of an answer in the list


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReviewSettings:
    """Which run, and what is decided."""

    command: tyro.conf.Positional[Literal['review']]  # the one thing to do here
    folder: tyro.conf.Positional[pathlib.Path]  # of a run
    show: str = ''  # a record to look at in full, by the beginning of its identity
    approve: tuple[str, ...] = ()  # records that may be used
    reject: tuple[str, ...] = ()  # records that may not
    json: pathlib.Path | None = None  # where the list goes as JSON


def visible(text: str) -> Text:
    """Text of the policy for a terminal: control characters are shown, not obeyed; no markup."""
    return Text(''.join(c if c.isprintable() or c == '\n' else repr(c)[1:-1] for c in text))


def print_list(records: list[Record], console: Console) -> None:
    """A line for each record that waits."""
    if not records:
        console.print('nothing waits')
        return
    table = Table(title=f'{len(records)} records wait', title_justify='left')
    for column in ('record', 'task', 'step', 'return', 'tier', 'why', 'answer'):
        table.add_column(column, overflow='fold')
    for record in records:
        told = shown(record)
        answer = ' '.join(str(told['answer']).split())[:SHOWN_CHARACTERS]
        cells = [str(told[name]) for name in ('task', 'step', 'return', 'tier', 'why')]
        table.add_row(record.identity[:8], *map(visible, cells), visible(answer))
    console.print(table)


def print_record(records: list[Record], name: str, console: Console) -> None:
    """One record with all its turns."""
    found = [record for record in records if record.identity.startswith(name)]
    if len(found) != 1:
        raise ValueError(f'{name!r} names {len(found)} of the {len(records)} records that wait')
    told = shown(found[0])
    for name in ('record', 'task', 'step', 'return', 'rewards', 'tier', 'why'):
        console.print(visible(f'{name}: {told[name]}'))
    for number, turn in enumerate(told['turns']):
        console.print(visible(f'turn {number}: {turn["text"]}'))
        for result in turn['results']:
            console.print(visible(f'  {result}'))


def review(settings: ReviewSettings) -> None:
    """Decides what is to be decided, then shows what is left."""
    console = Console()
    if settings.show:
        print_record(waiting(settings.folder), settings.show, console)
        return
    for identity, approved in decide(settings.folder, settings.approve, settings.reject).items():
        console.print(f'{identity[:8]} {"approved" if approved else "rejected"}')
    records = waiting(settings.folder)
    print_list(records, console)
    if settings.json:
        told = {'waiting': list(map(shown, records)), 'decided': decisions(settings.folder)}
        settings.json.parent.mkdir(parents=True, exist_ok=True)
        settings.json.write_text(json.dumps(told, indent=2) + '\n', encoding='utf-8')


def main() -> None:
    """The command; a mistake ends with one message and code 2."""
    settings = tyro.cli(ReviewSettings, description=__doc__)
    try:
        review(settings)
    except ValueError as mistake:
        print(f'refused: {mistake}', file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == '__main__':
    main()
