"""Company research: find the right report, read one figure from it, say what drove the year.

The world is a fixed catalogue of reports of invented companies.  Level 1: one company, two years.
Level 2: sister companies with like names, and a tool of no use.  Level 3: many a report is out of
service, and its copy must be had from the archive.  Test companies make drugs, the others software.
"""

import dataclasses
import functools
import itertools
import random
import re

from cacherl_jax.tasks.suite import (
    LEVELS,
    SPLITS,
    Question,
    Suite,
    ask,
    called,
    chance,
    goal,
    invent,
    mentions,
    read,
    spaced,
)
from cacherl_jax.tasks.task import AssistantTurn, Expert, Subgoal
from cacherl_jax.tools.tool import Call, Status, Unavailable, tool

ANSWER_CHARACTERS = 160
STARTS, MIDDLES = (
    'Al Bel Cor Dan El Far Gal Hel In Jor Kel Lan Mar Nor Or Pal Ral Sol Tar Vel',
    'a e i o an en or ar',
)
_TECHNICAL = invent('technical', STARTS, MIDDLES, 'tek soft net byte ware')
_MEDICAL = invent('medical', STARTS, MIDDLES, 'gen cure pharm vax med')
FAMILIES = {'train': _TECHNICAL[:480], 'validation': _TECHNICAL[480:660], 'test': _MEDICAL[:240]}
SISTERS = ('Labs', 'Group', 'Works', 'Global', 'Home')
FIELDS = ('revenue', 'profit', 'cash', 'debt')
UNITS = ('billion USD', 'million USD', 'billion EUR', 'million EUR')
UP, DOWN = ('rose', 'grew', 'climbed'), ('fell', 'dropped', 'shrank')
TECHNICAL_DRIVERS = ('cloud demand', 'chip sales', 'phone sales', 'game sales', 'data fees')
MEDICAL_DRIVERS = ('vaccine sales', 'drug prices', 'insulin demand', 'trial costs', 'patent fees')
DRIVERS = TECHNICAL_DRIVERS + MEDICAL_DRIVERS
WORDINGS = (
    "Find {company}'s {year} {field} and summarise.",
    'What was the {field} of {company} in {year}? Add a summary.',
    'Give me the {year} {field} of {company} and a short summary.',
    'Look up {field} for {company} in {year} and sum up the report.',
    'I need {company} {field} for {year}, with a summary.',
    'How much {field} did {company} report for {year}, and why?',
)
UNSEEN_WORDINGS = (
    'Please report {company} {field}, year {year}, plus the main driver.',
    'For {year}, tell me the {field} at {company} and what moved sales.',
)


def _companies(split: str, level: int) -> tuple[str, ...]:
    """Every third family: of level 1 a single company, of levels 2 and 3 two sisters."""
    families = FAMILIES[split][level - 1 :: 3]
    sisters = [chance('sisters', family).sample(SISTERS, 2) for family in families]
    pairs = zip(families, sisters, strict=True)
    return families if level == 1 else tuple(f'{one} {name}' for one, two in pairs for name in two)


def _years(company: str) -> tuple[int, int]:
    first = chance('years', company.split()[0]).randint(2018, 2023)
    return first, first + 1


COMPANIES = {(split, level): _companies(split, level) for split in SPLITS for level in LEVELS}
LEVEL = {company: level for (_, level), those in COMPANIES.items() for company in those}
# Every report has an original and a copy; the numbers are scattered, so no id can be guessed.
_REPORTS = [
    (company, year, copy) for company in LEVEL for year in _years(company) for copy in (0, 1)
]
_DOCUMENT = {report: f'd{1000 + index * 3989 % 8999}' for index, report in enumerate(_REPORTS)}
_TEXT = {report: f't{1000 + index * 5003 % 8999}' for index, report in enumerate(_REPORTS)}
_BY_DOCUMENT = {name: report for report, name in _DOCUMENT.items()}
_BY_TEXT = {name: report for report, name in _TEXT.items()}
_BY_FAMILY = {
    family.lower(): list(reports)
    for family, reports in itertools.groupby(_REPORTS, lambda report: report[0].split()[0])
}


def is_out(company: str, year: int) -> bool:
    """Whether the original report is out of service."""
    return LEVEL[company] == 3 and chance('out', company, year).random() < 0.75


def figure_of(company: str, year: int, field: str) -> str:
    unit = chance('unit', company).choice(UNITS)
    value = chance('figure', company, year, field).randint(101, 998)
    return f'{value / 100:.2f} {unit}' if unit.startswith('billion') else f'{value} {unit}'


def outlook_of(company: str, year: int) -> tuple[str, str]:
    """The direction word and the driver of a year."""
    drivers = MEDICAL_DRIVERS if company.split()[0] in FAMILIES['test'] else TECHNICAL_DRIVERS
    draws = chance('outlook', company, year)
    return draws.choice(UP + DOWN), draws.choice(drivers)


def search(query: str) -> dict:
    """Find reports of a company."""
    words = set(re.findall(r'[a-z0-9]+', query.lower()))
    known = [report for word in words for report in _BY_FAMILY.get(word, ()) if not report[2]]
    titles = {_DOCUMENT[report]: f'{report[0]} {report[1]}' for report in known}
    best = sorted(titles, key=lambda name: (-len(words & set(titles[name].lower().split())), name))
    return {titles[name]: name for name in sorted(best[:3])}


def parse_document(document: str) -> dict:
    """Open a report."""
    company, year, copy = report = _known(_BY_DOCUMENT, document)
    if is_out(company, year) and not copy:
        raise Unavailable(document)
    return {'text': _TEXT[report]}


def extract_data(text: str, field: str) -> dict:
    """Read a figure from an open report."""
    company, year, _ = _known(_BY_TEXT, text)
    if field not in FIELDS:
        raise ValueError(f'no field {field}; fields: {", ".join(FIELDS)}')
    return {field: figure_of(company, year, field)}


def summarize(text: str) -> dict:
    """Sum up an open report."""
    company, year, _ = _known(_BY_TEXT, text)
    return {'summary': 'Sales {} on {}.'.format(*outlook_of(company, year))}


def share_price(company: str) -> dict:
    """Price of a share today."""
    return {'price': f'{chance("share", company).randint(11, 98)} USD'}


def archive(document: str) -> dict:
    """Find the copy of an unavailable report."""
    company, year, _ = _known(_BY_DOCUMENT, document)
    return {'copy': _DOCUMENT[company, year, 1]}


def _known(shelf: dict, name: str) -> tuple:
    if name not in shelf:
        raise ValueError(f'nothing called {name}')
    return shelf[name]


_tool = functools.partial(tool, outage_lasts=True)  # whether a report is out is up to the report
TOOLS = tuple(map(_tool, (search, parse_document, extract_data, summarize, share_price, archive)))


@dataclasses.dataclass(frozen=True)
class Figure(Question):
    """A figure of one company and year, and what drove sales."""

    company: str
    year: int
    field: str

    @property
    def entity(self) -> str:
        return self.company.split()[0]

    def requests(self, unseen: bool) -> list[str]:
        wordings = WORDINGS + UNSEEN_WORDINGS * unseen
        return [wording.format(**dataclasses.asdict(self)) for wording in wordings]

    @property
    def figure(self) -> str:
        return figure_of(self.company, self.year, self.field)

    @property
    def outlook(self) -> tuple[str, str]:
        return outlook_of(self.company, self.year)

    @property
    def sisters(self) -> list[str]:
        family = _BY_FAMILY[self.company.split()[0].lower()]
        return sorted({company for company, _, _ in family} - {self.company})

    def say(self, figure: str, summary: str) -> str:
        return f'{self.company} {self.year} {self.field}: {figure}. {summary}'

    def expert(self) -> Expert:
        """Search, open (a copy where the report is out), read figure and summary, answer."""
        title = f'{self.company} {self.year}'
        (found,) = yield ask(Call('search', {'query': title}))
        chosen = read(found)[title]
        (opened,) = yield ask(
            Call('parse_document', {'document': chosen}), noting=f'{title}: {chosen}.'
        )
        if opened.status is not Status.OK:
            (stored,) = yield ask(Call('archive', {'document': chosen}))
            (opened,) = yield ask(Call('parse_document', {'document': read(stored)['copy']}))
        text = read(opened)['text']
        data, summary = yield ask(
            Call('extract_data', {'text': text, 'field': self.field}),
            Call('summarize', {'text': text}),
        )
        said = self.say(read(data)[self.field], read(summary)['summary'])
        yield AssistantTurn(content=said)

    def score(self, answer: str) -> float:
        """0.7 for the right figure with its unit, 1 if also named and soundly summarised."""
        verb, driver = self.outlook
        value, unit = self.figure.split(maxsplit=1)
        numbers = [one for one in re.findall(r'\d[\d.,]*\d|\d', answer) if one != str(self.year)]
        strangers = {*self.sisters, *FIELDS, *UNITS} - {self.field, unit}
        if (
            len(answer) > ANSWER_CHARACTERS
            or not mentions(answer, self.figure)
            or numbers != [value]
            or any(mentions(answer, other) for other in strangers)
        ):
            return 0.0
        directions = {word in UP for word in UP + DOWN if mentions(answer, word)}
        drivers = {other for other in DRIVERS if mentions(answer, other)}
        named = mentions(answer, self.company) and mentions(answer, self.field)
        return 1.0 if named and directions == {verb in UP} and drivers == {driver} else 0.7

    def solved(self, answer: str) -> bool:
        """Company, field, figure, direction and driver are all said, and nothing against them."""
        said, (verb, driver) = spaced(answer), self.outlook
        words = set(said.split())
        wanted = (self.company, self.field, self.figure, driver)
        right_verbs, wrong_verbs = (UP, DOWN) if verb in UP else (DOWN, UP)
        wrong = {*FIELDS, *wrong_verbs} - {self.field}
        value = self.figure.split()[0]
        digits = [word for word in said.split() if any(map(str.isdigit, word))]
        return (
            len(answer) <= ANSWER_CHARACTERS
            and all(f' {phrase.lower()} ' in said for phrase in wanted)
            and not words.isdisjoint(right_verbs)
            and words.isdisjoint(wrong)
            and sum(f' {other} ' in said for other in DRIVERS) == 1
            and [word for word in digits if word != str(self.year)] == [value]
        )

    def wrong_answers(self) -> tuple[str, ...]:
        """Wrong unit, year, field or company, in perfect form; no figure; all figures."""
        value, scale, currency = self.figure.split()
        summary = 'Sales {} on {}.'.format(*self.outlook)
        other_scale = 'million' if scale == 'billion' else 'billion'
        other_year = sum(_years(self.company)) - self.year
        every = [figure_of(self.company, self.year, field) for field in FIELDS]
        figures = [
            value,
            f'{value} {other_scale} {currency}',
            figure_of(self.company, other_year, self.field),
            *every,
            *(figure_of(sister, self.year, self.field) for sister in self.sisters),
            ', '.join(every),
        ]
        swapped = [dataclasses.replace(self, company=sister) for sister in self.sisters]
        swapped.append(dataclasses.replace(self, year=other_year))
        return (
            summary,
            *(self.say(wrong, summary) for wrong in figures if wrong != self.figure),
            *(other.say(self.figure, summary) for other in swapped),
        )

    def subgoals(self) -> tuple[Subgoal, ...]:
        """Report opened, figure read, summary read; of the original or of its copy."""
        reports = [(self.company, self.year, copy) for copy in (0, 1)]

        def opened(turns):
            names = [_DOCUMENT[report] for report in reports]
            return any(called(turns, 'parse_document', document=name) for name in names)

        def used(name, turns, **arguments):
            texts = [_TEXT[report] for report in reports]
            return any(called(turns, name, text=text, **arguments) for text in texts)

        extracted = functools.partial(used, 'extract_data', field=self.field)
        summarised = functools.partial(used, 'summarize')
        return (
            goal('report obtained', opened, 'search', 'parse_document', 'archive'),
            goal('figure extracted', extracted, 'extract_data'),
            goal('report summarised', summarised, 'summarize'),
        )


def question(split: str, level: int, draws: random.Random) -> Figure:
    """One figure of one company and year."""
    company = draws.choice(COMPANIES[split, level])
    return Figure(company, draws.choice(_years(company)), draws.choice(FIELDS))


RESEARCH = Suite(name='research', tools=(TOOLS[:4], TOOLS[:5], TOOLS), question=question)
