"""What a person sees while waiting and at the end: a progress bar, tables.  Keeps nothing.

Of several processes the first one speaks.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cacherl_jax.processes import is_first

LOG_LINE_SECONDS = 10.0  # a log file gets a line this often instead of a bar


def _shown(number) -> str:
    """Four meaning digits for a fraction, all digits for a count, a dash for nothing."""
    if number is None:
        return '–'
    return f'{number:.4g}' if isinstance(number, float) else str(number)


@contextlib.contextmanager
def progress(
    label: str, total: int, done: int = 0, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Yields `advance(**numbers)`, to be called once for each unit of work finished."""
    console = console or Console(stderr=True, quiet=not is_first())
    if not console.is_terminal:
        yield _log_lines(label, total, done, console)
        return
    columns = (
        TextColumn('[bold]{task.description}'),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn('{task.fields[numbers]}'),
    )
    with Progress(*columns, console=console) as bar:
        work = bar.add_task(label, total=total, completed=done, numbers='')

        def advance(**numbers):
            text = '  '.join(f'{name} {_shown(x)}' for name, x in numbers.items())
            bar.update(work, advance=1, numbers=text)

        yield advance


def _log_lines(label, total, done, console):
    """The bar's stand-in for a log file: a line now and then, and always the last."""
    said = -LOG_LINE_SECONDS

    def advance(**numbers):
        nonlocal done, said
        done += 1
        if done < total and time.monotonic() - said < LOG_LINE_SECONDS:
            return
        said = time.monotonic()
        text = '  '.join(f'{name} {_shown(x)}' for name, x in numbers.items())
        console.print(f'{label} {done}/{total}  {text}', markup=False, highlight=False)

    return advance


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence],
    console: Console | None = None,
) -> None:
    """First column to the left, numbers to the right."""
    table = Table(title=title, title_justify='left')
    for place, column in enumerate(columns):
        table.add_column(column, justify='right' if place else 'left')
    for row in rows:
        table.add_row(*(escape(_shown(cell)) for cell in row))
    (console or Console(quiet=not is_first())).print(table)
