"""Questions to a table in several rounds: load, filter, group, aggregate; each builds on the last.

Level 1: one figure over some rows.  Level 2: the group with the largest sum.  Level 3: either, where
the table must be found first, or a column's real name learnt from an error, or both.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Literal

from cacherl_jax.tasks.suite import (
    Suite,
    ask,
    called,
    chance,
    invent,
    mentions,
    read,
    spaced,
    task_id,
    tool,
)
from cacherl_jax.tasks.task import AssistantTurn, Episode, Subgoal, Task
from cacherl_jax.tools.tool import Call, Scope, Status

ANSWER_CHARACTERS = 80
_NAMES = invent(
    'values', 'b d f g k l m n p r s t', 'a e i o u', 'b d l m n r s t', 'a e i o', 'n r s l'
)
TABLES = {'train': _NAMES[:500], 'validation': _NAMES[500:700], 'test': _NAMES[700:1000]}
VALUES = {'train': _NAMES[1000:1600], 'validation': _NAMES[1600:1900], 'test': _NAMES[1900:2300]}
COLUMNS = {  # two columns of words and one of numbers
    'train': (('area', 'item', 'units'), ('shop', 'color', 'price'), ('team', 'game', 'points')),
    'validation': (('farm', 'crop', 'tons'), ('line', 'stop', 'riders')),
    'test': (('ward', 'drug', 'doses'), ('port', 'ship', 'weight')),
}
MONTHS = ('may', 'june', 'july', 'march', 'april')
SUFFIXES = ('_name', '_list', '_of_day', '_here')
HOW = {'sum': sum, 'max': max, 'min': min}
ONE_FIGURE = (
    'In table {table}, what is the {how} of {number} where {column} is {value}?',
    'Give me the {how} of {number} in {table} for {column} {value}.',
    'Find the {how} of {number} with {column} {value} in the {table} table.',
    'For {column} {value}, what is the {how} of {number} in {table}?',
    'Look into {table}: {how} of {number} where {column} is {value}.',
    'Tell me the {how} of {number} for {column} {value}, table {table}.',
)
LARGEST_GROUP = (
    'In table {table}, which {group} has the largest sum of {number} where {column} is {value}?',
    'Which {group} leads in sum of {number} for {column} {value} in {table}?',
    'Find the top {group} by sum of {number} with {column} {value} in the {table} table.',
    'For {column} {value}, which {group} has the top sum of {number} in {table}?',
    'Look into {table}: top {group} by sum of {number} where {column} is {value}.',
    'Tell me the {group} with most {number} for {column} {value}, table {table}.',
)
UNSEEN = {
    False: ('Please compute {how} of {number} from {table}, only {column} {value}.',),
    True: (
        'Please rank each {group} of {table} by sum of {number}, only {column} {value}: who wins?',
    ),
}


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
        names = sorted({row.get(self.group, '') for row in self.rows})
        parts = {
            name: [r[column] for r in self.rows if r.get(self.group, '') == name] for name in names
        }
        return {name: HOW[how](part) for name, part in parts.items()}


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


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked of which table, and the truth about it."""

    tables: Mapping[str, tuple[dict, ...]]
    table: str  # its real name
    suffix: str  # what real names of columns end with, unsaid in the request
    column: str
    value: str
    group: str
    number: str
    how: str
    largest: bool  # the group with the largest sum is asked, not one figure

    def real(self, name: str) -> str:
        return name + self.suffix

    def desk(self) -> Desk:
        return Desk(self.tables)

    def truth(self, value: str | None, table: str = '') -> tuple[str, int]:
        """Winning group ('' where one figure is asked) and figure, over rows of a value or all."""
        column, group, number = map(self.real, (self.column, self.group, self.number))
        parts = {}
        for row in self.tables[table or self.table]:
            if value in (None, row[column]):
                name = row[group] if self.largest else ''
                parts.setdefault(name, []).append(row[number])
        figures = {name: HOW[self.how](part) for name, part in parts.items()}
        best = max(figures, key=figures.get)
        return best, figures[best]

    def answer(self, group: str, figure: int) -> str:
        if self.largest:
            return f'The top {self.group} is {group} with {figure}.'
        return f'The {self.how} of {self.number} is {figure}.'


def expert(asked: Question):
    """Find the table, filter (by the column's real name, once an error told it), group, answer."""
    table, suffix = asked.table, ''
    if '_' in table:
        (names,) = yield ask(Call('list_tables', {}))
        table = next(name for name in read(names)['tables'] if name == table)
    yield ask(Call('load_table', {'table': table}))
    (kept,) = yield ask(Call('filter_rows', {'column': asked.column, 'value': asked.value}))
    if kept.status is not Status.OK:
        suffix = re.search(rf'\b{asked.column}(_\w+)', kept.text)[1]
        yield ask(Call('filter_rows', {'column': asked.column + suffix, 'value': asked.value}))
    number = asked.number + suffix
    if asked.largest:
        yield ask(Call('group_rows', {'column': asked.group + suffix}))
        (told,) = yield ask(Call('top_group', {'column': number}))
        yield AssistantTurn(content=asked.answer(read(told)['top'], read(told)['sum']))
    else:
        (told,) = yield ask(Call('aggregate', {'how': asked.how, 'column': number}))
        yield AssistantTurn(content=asked.answer('', read(told)[asked.how]))


def score(asked: Question, episode: Episode) -> float:
    """1 for figure (and group); 0.4 for the group alone, 0.3 for its figure; 0 for a wrong one."""
    answer, (group, figure) = episode.answer, asked.truth(asked.value)
    numbers = set(re.findall(r'-?\d+(?:[.,]\d+)*', answer))
    groups = {row[asked.real(asked.group)] for row in asked.tables[asked.table]}
    named = {name for name in groups if mentions(answer, name)}
    if len(answer) > ANSWER_CHARACTERS or numbers - {str(figure)} or named - {group}:
        return 0.0
    if not asked.largest:
        return float(bool(numbers))
    return 1.0 if numbers and named else 0.3 * bool(numbers) + 0.4 * bool(named)


def solved(asked: Question, episode: Episode) -> bool:
    """The figure and the group stand in a short answer, and no other figure or group does."""
    group, figure = asked.truth(asked.value)
    words = spaced(episode.answer).split()
    groups = {row[asked.real(asked.group)] for rows in asked.tables.values() for row in rows}
    return (
        len(episode.answer) <= ANSWER_CHARACTERS
        and {word for word in words if any(map(str.isdigit, word))} == {str(figure)}
        and groups.intersection(words) == ({group} if asked.largest else set())
    )


def wrong_answers(asked: Question) -> tuple[str, ...]:
    """Figures of all rows, of another value or group; a figure off by one; all at once."""
    group, figure = asked.truth(asked.value)
    values = {row[asked.real(asked.column)] for row in asked.tables[asked.table]} - {asked.value}
    groups = {row[asked.real(asked.group)] for row in asked.tables[asked.table]} - {group}
    truths = [asked.truth(None), *map(asked.truth, sorted(values)), (group, figure + 1)]
    wrong = [truth for truth in truths if truth != (group, figure)]
    if asked.largest:
        wrong += [(other, figure) for other in sorted(groups)]
    said = [asked.answer(*truth) for truth in wrong if truth[1] != figure or truth[0] != group]
    return (*said, ' '.join(said + [asked.answer(group, figure)]))


def subgoals(asked: Question) -> tuple[Subgoal, ...]:
    """The table in hand, its rows filtered, the figure read."""
    column, group, number = map(asked.real, (asked.column, asked.group, asked.number))
    last = {'name': 'aggregate', 'how': asked.how, 'column': number}
    if asked.largest:
        last = {'name': 'top_group', 'column': number}

    def loaded(turns):
        return called(turns, 'load_table', table=asked.table)

    def filtered(turns):
        return loaded(turns) and called(turns, 'filter_rows', column=column, value=asked.value)

    def grouped(turns):
        return filtered(turns) and called(turns, 'group_rows', column=group)

    def figured(turns):
        return (grouped if asked.largest else filtered)(turns) and called(turns, **last)

    steps = [('table loaded', loaded, {'list_tables', 'load_table'})]
    steps += [('rows filtered', filtered, {'filter_rows'})]
    steps += [('rows grouped', grouped, {'group_rows'})] * asked.largest
    steps += [('figure read', figured, {last['name']})]
    return tuple(
        Subgoal(name=name, reached=reached, tools=frozenset(tools))
        for name, reached, tools in steps
    )


def _table(draws, columns: tuple[str, ...], values, groups) -> tuple[dict, ...]:
    """Eight to ten rows; every value stands at least twice, in two groups."""
    pairs = [(value, group) for value in values for group in groups]
    rows = draws.sample(pairs, len(pairs)) + draws.choices(pairs, k=draws.randint(2, 4))
    return tuple(dict(zip(columns, (*pair, draws.randint(2, 60)), strict=True)) for pair in rows)


def _question(split: str, level: int, draws) -> Question:
    """One that has a single right answer, which the rows left out would change."""
    word, kind = draws.choice(TABLES[split]), draws.choice(('column', 'table', 'both'))
    hunt, suffixed = level == 3 and kind != 'column', level == 3 and kind != 'table'
    *columns, number = draws.choice(COLUMNS[split])
    words = draws.sample(VALUES[split], 5)
    groups, values = words[:3], words[3:]
    column, group = draws.sample(columns, 2)
    suffix = draws.choice(SUFFIXES) if suffixed else ''
    months = draws.sample(MONTHS, 2)
    pattern = draws.choice(('{0}_{1}', '{1}_{0}'))
    names = [pattern.format(word, month) if hunt else word for month in months]
    real = [name + suffix for name in (column, group, number)]
    largest = level == 2 or (level == 3 and draws.random() < 0.5)
    how = 'sum' if largest else draws.choice(tuple(HOW))
    while True:
        tables = {name: _table(draws, real, values, groups) for name in names}
        asked = Question(tables, names[-1], suffix, column, values[0], group, number, how, largest)
        if _is_decided(asked):
            return asked


def _is_decided(asked: Question) -> bool:
    column, group, number = map(asked.real, (asked.column, asked.group, asked.number))
    sums = dict.fromkeys((row[group] for row in asked.tables[asked.table]), 0)
    for row in asked.tables[asked.table]:
        sums[row[group]] += row[number] * (row[column] == asked.value)
    others = [
        asked.truth(None),
        *(asked.truth(asked.value, name) for name in asked.tables if name != asked.table),
    ]
    figure = asked.truth(asked.value)[1]
    return len(set(sums.values())) == len(sums) and all(other[1] != figure for other in others)


def task(split: str, level: int, number: int) -> Task:
    """One figure, or the leading group, of some rows of a table."""
    draws = chance(task_id('analysis', split, level, number))
    asked = _question(split, level, draws)
    wordings = LARGEST_GROUP if asked.largest else ONE_FIGURE
    if (split, level) == ('test', 3):
        wordings += UNSEEN[asked.largest]
    said = {name: getattr(asked, name) for name in ('column', 'value', 'group', 'number', 'how')}
    # A table that must be found is named by its words, not as it is spelled.
    request = draws.choice(wordings).format(table=' '.join(asked.table.split('_')), **said)
    return Task(
        id=task_id('analysis', split, level, number),
        suite='analysis',
        split=split,
        level=level,
        entity=next(word for word in asked.table.split('_') if word not in MONTHS),
        messages=({'role': 'user', 'content': request},),
        tools=TOOLS[: level + 3],
        start=asked.desk,
        expert=functools.partial(expert, asked),
        subgoals=subgoals(asked),
        score=functools.partial(score, asked),
        solved=functools.partial(solved, asked),
        wrong_answers=('', request, *wrong_answers(asked)),
    )


ANALYSIS = Suite('analysis', task)
