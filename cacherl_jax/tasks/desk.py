"""A desk with one table in hand, and the session tools that work on it.

Loading, filtering and grouping change what lies on the desk; the other tools read it.  So an answer
holds only after the same changes in the same order.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

from cacherl_jax.tools.tool import Scope, tool

HOW = {'sum': sum, 'max': max, 'min': min}


@dataclasses.dataclass
class Desk:
    """What the session tools see: the tables, and the rows and grouping in hand."""

    tables: Mapping[str, tuple[dict, ...]]
    rows: tuple[dict, ...] = ()
    group: str = ''

    def check(self, column: str) -> None:
        if not self.rows:
            raise ValueError('no rows; load a table')
        if column not in self.rows[0]:
            raise ValueError(f'no column {column}; columns: {", ".join(self.rows[0])}')

    def groups(self, how: str, column: str) -> dict[str, int]:
        """The figure of each group by name; of all rows, under '', where nothing is grouped."""
        self.check(column)
        if not isinstance(self.rows[0][column], int):
            raise ValueError(f'{column} has no numbers')
        parts = {}
        for row in self.rows:
            parts.setdefault(row.get(self.group, ''), []).append(row[column])
        return {name: HOW[how](parts[name]) for name in sorted(parts)}


def load_table(desk: Desk, table: str) -> dict:
    """Open a table."""
    if table not in desk.tables:
        raise ValueError(f'no table {table}')
    desk.rows, desk.group = desk.tables[table], ''
    return {'rows': len(desk.rows)}


def filter_rows(desk: Desk, column: str, value: str) -> dict:
    """Keep rows with a value."""
    desk.check(column)
    kept = tuple(row for row in desk.rows if str(row[column]) == value)
    if not kept:
        raise ValueError(f'no row has {column} {value}')
    desk.rows = kept
    return {'rows': len(kept)}


def group_rows(desk: Desk, column: str) -> dict:
    """Group rows by a column."""
    desk.check(column)
    desk.group = column
    return {'groups': len({row[column] for row in desk.rows})}


def aggregate(desk: Desk, how: Literal['sum', 'max', 'min'], column: str) -> dict:
    """Figure of a column."""
    figures = desk.groups(how, column)
    return figures if desk.group else {how: figures['']}


def top_group(desk: Desk, column: str) -> dict:
    """Group with the largest sum."""
    if not desk.group:
        raise ValueError('no groups; group rows first')
    figures = desk.groups('sum', column)
    top = max(figures, key=figures.get)
    return {'top': top, 'sum': figures[top]}


def list_tables(desk: Desk) -> dict:
    """Names of all tables."""
    return {'tables': sorted(desk.tables)}


_changing = functools.partial(tool, scope=Scope.SESSION, changes_state=True)
_reading = functools.partial(tool, scope=Scope.SESSION)
TOOLS = (
    *map(_changing, (load_table, filter_rows, group_rows)),
    *map(_reading, (aggregate, top_group, list_tables)),
)
