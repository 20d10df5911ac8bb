"""Questions to a table in several rounds: load, filter, group, aggregate; each builds on the last.

Level 1: one figure over some rows.  Level 2: the group with the largest sum.  Level 3: one of them,
and the table must be found first or a column's real name learnt from an error, or both.
"""

import dataclasses
import functools
import random
import re
from collections.abc import Mapping

from cacherl_jax.tasks.desk import HOW, TOOLS, Desk
from cacherl_jax.tasks.suite import (
    Question,
    Suite,
    ask,
    called,
    goal,
    invent,
    mentions,
    read,
    spaced,
)
from cacherl_jax.tasks.task import AssistantTurn, Expert, Subgoal
from cacherl_jax.tools.tool import Call, Status

ANSWER_CHARACTERS = 80
_NAMES = invent(
    'values', 'b d f g k l m n p r s t', 'a e i o u', 'b d l m n r s t', 'a e i o', 'n r s l'
)
TABLES = {'train': _NAMES[:500], 'validation': _NAMES[500:700], 'test': _NAMES[700:1000]}
VALUES = {'train': _NAMES[1000:1600], 'validation': _NAMES[1600:1900], 'test': _NAMES[1900:2300]}
COLUMNS = {  # two columns of words and one of numbers
    'train': (
        ('area', 'item', 'units'), ('shop', 'color', 'price'), ('team', 'game', 'points'),
        ('city', 'food', 'cost'), ('road', 'car', 'speed'), ('lake', 'fish', 'count'),
        ('room', 'lamp', 'power'), ('class', 'book', 'pages'), ('tree', 'bird', 'height'),
        ('hotel', 'guest', 'nights'), ('plant', 'metal', 'grams'), ('school', 'sport', 'medals'),
        ('band', 'song', 'plays'), ('street', 'house', 'rent'), ('park', 'gate', 'visits'),
        ('river', 'boat', 'length'), ('desk', 'pen', 'hours'), ('club', 'dance', 'score'),
    ),
    'validation': (('farm', 'crop', 'tons'), ('line', 'stop', 'riders')),
    'test': (('ward', 'drug', 'doses'), ('port', 'ship', 'weight')),
}  # fmt: skip
MONTHS = ('may', 'june', 'july', 'march', 'april')
SUFFIXES = ('_name', '_list', '_of_day', '_here')
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
UNSEEN_ONE_FIGURE = ('Please compute {how} of {number} from {table}, only {column} {value}.',)
UNSEEN_LARGEST_GROUP = ('Please name the top {group} in {number}, {table}, only {column} {value}.',)


@dataclasses.dataclass(frozen=True)
class Reading(Question):
    """One figure, or the leading group, of some rows of a table."""

    tables: Mapping[str, tuple[dict, ...]]
    table: str  # its real name
    suffix: str  # what real names of columns end with, unsaid in the request
    column: str
    value: str
    group: str
    number: str
    how: str
    largest: bool  # the group with the largest sum is asked, not one figure

    @property
    def entity(self) -> str:
        return self.words[0]

    def requests(self, unseen: bool) -> list[str]:
        """A table that must be found is named by its words, not as it is spelled."""
        said = vars(self) | {'table': ' '.join(self.words)}
        seen, other = ONE_FIGURE, UNSEEN_ONE_FIGURE
        if self.largest:
            seen, other = LARGEST_GROUP, UNSEEN_LARGEST_GROUP
        return [wording.format(**said) for wording in seen + other * unseen]

    @property
    def words(self) -> list[str]:
        """The table's words, the month last."""
        return sorted(self.table.split('_'), key=lambda word: word in MONTHS)

    def real(self, name: str) -> str:
        return name + self.suffix

    def start(self) -> Desk:
        return Desk(self.tables)

    def figures(self, value: str | None, table: str) -> dict[str, int]:
        """Figure of each group ('' where one figure is asked), over rows of a value or all."""
        column, group, number = map(self.real, (self.column, self.group, self.number))
        parts = {}
        for row in self.tables[table]:
            if value in (None, row[column]):
                name = row[group] if self.largest else ''
                parts.setdefault(name, []).append(row[number])
        return {name: HOW[self.how](part) for name, part in parts.items()}

    def truth(self, value: str | None, table: str) -> tuple[str, int]:
        """The winning group and its figure."""
        return max(self.figures(value, table).items(), key=lambda item: item[1])

    @functools.cached_property
    def right(self) -> tuple[str, int]:
        return self.truth(self.value, self.table)

    @functools.cached_property
    def near(self) -> list[tuple[str, int]]:
        """What comes out for all rows, for another value, from another table."""
        values = {row[self.real(self.column)] for row in self.tables[self.table]} - {self.value}
        truths = [self.truth(value, self.table) for value in (None, *sorted(values))]
        return truths + [self.truth(self.value, name) for name in self.tables if name != self.table]

    @property
    def is_decided(self) -> bool:
        """No tie, and no other way to the same figure."""
        figures = list(self.figures(self.value, self.table).values())
        others = {figure for _, figure in self.near}
        return len(set(figures)) == len(figures) and self.right[1] not in others

    def say(self, group: str, figure: int) -> str:
        if self.largest:
            return f'The top {self.group} is {group} with {figure}.'
        return f'The {self.how} of {self.number} is {figure}.'

    def expert(self) -> Expert:
        """Find the table, filter (an error tells the column's real name), group, answer."""
        table, suffix = self.words[0], ''
        named = f'Table {" ".join(self.words)}.'
        if len(self.words) > 1:
            (listed,) = yield ask(Call('list_tables', {}), noting=named)
            names = read(listed)['tables']
            table = next(name for name in names if {*name.split('_')} == {*self.words})
            yield ask(Call('load_table', {'table': table}))
        else:
            yield ask(Call('load_table', {'table': table}), noting=named)
        (kept,) = yield ask(Call('filter_rows', {'column': self.column, 'value': self.value}))
        if kept.status is not Status.OK:
            suffix = re.search(rf'\b{self.column}(_\w+)', kept.text)[1]
            yield ask(Call('filter_rows', {'column': self.column + suffix, 'value': self.value}))
        number = self.number + suffix
        if self.largest:
            yield ask(Call('group_rows', {'column': self.group + suffix}))
            (told,) = yield ask(Call('top_group', {'column': number}))
            yield AssistantTurn(content=self.say(read(told)['top'], read(told)['sum']))
        else:
            (told,) = yield ask(Call('aggregate', {'how': self.how, 'column': number}))
            yield AssistantTurn(content=self.say('', read(told)[self.how]))

    def score(self, answer: str) -> float:
        """1 for figure (and group), 0.4 for the group alone, 0.3 for its figure, else 0."""
        group, figure = self.right
        numbers = set(re.findall(r'-?\d+(?:[.,]\d+)*', answer))
        groups = {row[self.real(self.group)] for row in self.tables[self.table]}
        named = {name for name in groups if mentions(answer, name)}
        if len(answer) > ANSWER_CHARACTERS or numbers - {str(figure)} or named - {group}:
            return 0.0
        if not self.largest:
            return float(bool(numbers))
        return 1.0 if numbers and named else 0.3 * bool(numbers) + 0.4 * bool(named)

    def solved(self, answer: str) -> bool:
        """The figure and the group stand in a short answer, and no other figure or group does."""
        group, figure = self.right
        words = spaced(answer).split()
        groups = {row[self.real(self.group)] for rows in self.tables.values() for row in rows}
        return (
            len(answer) <= ANSWER_CHARACTERS
            and {word for word in words if any(map(str.isdigit, word))} == {str(figure)}
            and groups.intersection(words) == ({group} if self.largest else set())
        )

    def wrong_answers(self) -> tuple[str, ...]:
        """Figures of other rows, another group, a figure off by one, all at once."""
        group, figure = self.right
        groups = sorted(self.figures(self.value, self.table).keys() - {group})
        wrong = [*self.near, (group, figure + 1), *((other, figure) for other in groups)]
        said = [self.say(*each) for each in wrong]
        return (*said, ' '.join([*said, self.say(group, figure)]))

    def subgoals(self) -> tuple[Subgoal, ...]:
        """The steps, each reached with all before it: load, filter, group where asked, read."""
        column, group, number = map(self.real, (self.column, self.group, self.number))
        steps = [
            ('table loaded', 'load_table', {'table': self.table}),
            ('rows filtered', 'filter_rows', {'column': column, 'value': self.value}),
        ]
        if self.largest:
            steps += [('rows grouped', 'group_rows', {'column': group})]
            steps += [('figure read', 'top_group', {'column': number})]
        else:
            steps += [('figure read', 'aggregate', {'how': self.how, 'column': number})]

        def reached(count, turns):
            return all(called(turns, name, **arguments) for _, name, arguments in steps[:count])

        tools = {'load_table': ('list_tables', 'load_table')}
        return tuple(
            goal(label, functools.partial(reached, count), *tools.get(name, (name,)))
            for count, (label, name, _) in enumerate(steps, 1)
        )


def _table(draws, columns: tuple[str, ...], values, groups) -> tuple[dict, ...]:
    """Eight to ten rows; every value stands at least twice, in two groups."""
    pairs = [(value, group) for value in values for group in groups]
    rows = draws.sample(pairs, len(pairs)) + draws.choices(pairs, k=draws.randint(2, 4))
    cells = [(*pair, draws.randint(2, 60)) for pair in rows]
    # Columns stand in the order of the alphabet, so that their place does not tell their part.
    return tuple(dict(sorted(zip(columns, row, strict=True))) for row in cells)


def question(split: str, level: int, draws: random.Random) -> Reading:
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
        asked = Reading(tables, names[-1], suffix, column, values[0], group, number, how, largest)
        if asked.is_decided:
            return asked


ANALYSIS = Suite(name='analysis', tools=(TOOLS[:4], TOOLS[:5], TOOLS), question=question)
