"""Day trips: the sky decides between an indoor plan and a route with an outdoor plan.

Level 1: one day.  Level 2: two days, one of them wet at least, and a tool of no use.  Level 3: the
same, and for one of the days (mostly) the weather service is out, so that the backup must be asked.
"""

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Sequence

from cacherl_jax.tasks.suite import (
    Question,
    Suite,
    ask_each,
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

ANSWER_CHARACTERS = 80, 160  # most for one day and for two; the longest plan of a day has 65
_NAMES = invent(
    'cities',
    'Ba Ca De Fo Ga Ho Li Mo Na Pa Ri So Ta Vi',
    'l m n r s t',
    'a e i o',
    'na ra ton by ville',
)
CITIES = {'train': _NAMES[:800], 'validation': _NAMES[800:1100], 'test': _NAMES[1100:1500]}
DAYS = ('Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday')
WET = ('rain', 'drizzle', 'storm', 'showers', 'thunder', 'sleet')
DRY = ('sunny', 'clear', 'bright', 'fair', 'dry', 'cloudless')
BRANCHES = {'wet': 'indoor', 'dry': 'route'}  # the tool that a sky asks for


def _phrases(*words: str) -> tuple[str, ...]:
    return tuple(map(' '.join, itertools.product(*map(str.split, words))))


INDOOR = _phrases(
    'glass toy old art sea rail coin map', 'museum library hall theatre gallery baths'
)
ROUTES = _phrases('river hill forest coast garden canal bridge mill', 'path trail walk lane')
OUTDOOR = _phrases(
    'picnic swim climb market rowing games', 'at', 'Long Red West High Low', 'Lake Park Beach Hill'
)
WORDINGS = (
    'Plan {days} in {city} by the weather.',
    'What should I do in {city} on {days}?',
    'I am in {city} on {days}. Any plan that fits the weather?',
    'Find something to do in {city} for {days}.',
    'We visit {city} on {days}; what suits the sky?',
    'Make a plan for {city}, {days}.',
)
UNSEEN_WORDINGS = (
    'Please suggest a visit to {city} for {days}, rain or shine.',
    '{days} we are in {city}. How do we spend the time?',
)


_KNOWN = frozenset(_NAMES)


def sky_of(city: str, day: str) -> str:
    if city not in _KNOWN or day not in DAYS:
        raise ValueError(f'no city {city}' if day in DAYS else f'no day {day}')
    return chance('sky', city, day).choice(WET + DRY)


def is_out(city: str, day: str) -> bool:
    """Whether the weather service has nothing for this day."""
    return chance('weather service', city, day).random() < 0.3


def weather(city: str, day: str) -> dict:
    """Sky on a day."""
    sky = sky_of(city, day)
    if is_out(city, day):
        raise Unavailable(day)
    return {'sky': sky}


def indoor(city: str, day: str) -> dict:
    """For a wet day: indoor plan."""
    sky_of(city, day)
    return {'plan': chance('indoor', city, day).choice(INDOOR)}


def route(city: str, day: str) -> dict:
    """For a dry day: route."""
    sky_of(city, day)
    return {'route': chance('route', city, day).choice(ROUTES)}


def outdoor(city: str, path: str) -> dict:
    """Plan along a route."""
    if path not in {route(city, day)['route'] for day in DAYS}:
        raise ValueError(f'no route {path} in {city}')
    return {'plan': chance('outdoor', city, path).choice(OUTDOOR)}


def hotel(city: str) -> dict:
    """Hotel in a city."""
    return {'hotel': f'Hotel {chance("hotel", city).choice(DAYS)}'}


def forecast(city: str, day: str) -> dict:
    """Backup when weather fails."""
    return {'sky': sky_of(city, day)}


_tool = functools.partial(tool, outage_lasts=True)  # a day without weather stays without
TOOLS = tuple(map(_tool, (weather, indoor, route, outdoor, hotel, forecast)))


def say(day: str, sky: str, phrases: Sequence[str]) -> str:
    return f'{day}: {sky}, so {" and ".join(phrases)}.'


_PLANS = re.compile('|'.join(INDOOR + ROUTES + OUTDOOR), re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Visit(Question):
    """A city and the days there."""

    city: str
    days: tuple[str, ...]

    @property
    def entity(self) -> str:
        return self.city

    def requests(self, unseen: bool) -> list[str]:
        days = ' and '.join(self.days)
        wordings = WORDINGS + UNSEEN_WORDINGS * unseen
        return [wording.format(city=self.city, days=days) for wording in wordings]

    def is_wet(self, day: str) -> bool:
        return sky_of(self.city, day) in WET

    def phrases(self, day: str, wet: bool) -> tuple[str, ...]:
        """What a plan of the day names, in the branch for wet or for dry days."""
        if wet:
            return (indoor(self.city, day)['plan'],)
        path = route(self.city, day)['route']
        return (path, outdoor(self.city, path)['plan'])

    def expert(self) -> Expert:
        """Ask the weather, or the backup where it is out; then each day's branch, side by side."""

        def call(name, **arguments):
            return Call(name, {'city': self.city, **arguments})

        told = yield from ask_each({day: call('weather', day=day) for day in self.days})
        missing = [day for day in self.days if told[day].status is not Status.OK]
        if missing:
            known = {day: read(told[day])['sky'] for day in self.days if day not in missing}
            noted = [f'{day}: {known.get(day, "unknown")}.' for day in self.days]
            asked = {day: call('forecast', day=day) for day in missing}
            told |= yield from ask_each(asked, noting=' '.join(noted))
        sky = {day: read(told[day])['sky'] for day in self.days}
        kind = {day: 'wet' if sky[day] in WET else 'dry' for day in self.days}
        branch = {day: BRANCHES[kind[day]] for day in self.days}
        noted = [f'{day}: {sky[day]}, a {kind[day]} day: {branch[day]}.' for day in self.days]
        asked = {day: call(branch[day], day=day) for day in self.days}
        told = yield from ask_each(asked, noting=' '.join(noted))
        plan = {day: list(read(told[day]).values()) for day in self.days}
        dry = [day for day in self.days if branch[day] == 'route']
        if dry:
            due = {day: ['outdoor'] * (day in dry) for day in self.days}
            noted = [say(day, sky[day], plan[day] + due[day]) for day in self.days]
            asked = {day: call('outdoor', path=plan[day][0]) for day in dry}
            told = yield from ask_each(asked, noting=' '.join(noted))
        for day in dry:
            plan[day].append(read(told[day])['plan'])
        yield AssistantTurn(content=' '.join(say(day, sky[day], plan[day]) for day in self.days))

    def _day_score(self, day: str, said: str) -> float:
        sky, wet = sky_of(self.city, day), self.is_wet(day)
        wanted = {phrase.lower() for phrase in self.phrases(day, wet)}
        named = {phrase.lower() for phrase in _PLANS.findall(said)}
        skies = {word for word in WET + DRY if mentions(said, word)}
        if named - wanted or skies - {sky}:
            return 0.0
        return 0.3 * (sky in skies) + 0.7 * len(named) / len(wanted)

    def score(self, answer: str) -> float:
        """1 where each day has its sky and its plan; what belongs elsewhere spoils the day."""
        if len(answer) > ANSWER_CHARACTERS[len(self.days) - 1]:
            return 0.0
        said = dict.fromkeys(self.days, answer)
        if len(self.days) > 1:
            # What stands before the first day counts for it, and a day told twice counts whole.
            first, *rest = re.split(f'({"|".join(self.days)})', answer)
            said = dict.fromkeys(self.days, '')
            for day, words in zip(rest[::2], rest[1::2], strict=True):
                said[day] += first + words
                first = ''
        days = [self._day_score(day, said[day]) for day in self.days]
        return 1.0 if min(days) > 0.99 else 0.4 * sum(days) / len(days)

    def solved(self, answer: str) -> bool:
        """Each day's sentence tells its sky and its plan, and no other."""
        said, single = spaced(answer), len(self.days) == 1
        starts = sorted((0 if single else said.find(f' {day.lower()} '), day) for day in self.days)
        stops = [*(start + 1 for start, _ in starts[1:]), len(said)]
        sentences = [said[start:stop] for start, stop in itertools.pairwise([0, *stops])]
        return (
            len(answer) <= ANSWER_CHARACTERS[len(self.days) - 1]
            and starts[0][0] >= 0
            and all(map(self._is_told, [day for _, day in starts], sentences))
        )

    def _is_told(self, day: str, sentence: str) -> bool:
        plans = {plan for plan in INDOOR + ROUTES + OUTDOOR if f' {plan.lower()} ' in sentence}
        skies = {*WET, *DRY}.intersection(sentence.split())
        right = set(self.phrases(day, self.is_wet(day)))
        return plans == right and skies == {sky_of(self.city, day)}

    def wrong_answers(self) -> tuple[str, ...]:
        """The other branch, both branches, another city's plan, the sky without a plan."""

        def whole(phrases, skies=sky_of):
            return ' '.join(say(day, skies(self.city, day), phrases(day)) for day in self.days)

        other = dataclasses.replace(self, city=_NAMES[_NAMES.index(self.city) - 1])
        answers = {
            whole(lambda day: self.phrases(day, not self.is_wet(day))),
            whole(lambda day: self.phrases(day, True) + self.phrases(day, False)),
            whole(
                lambda day: other.phrases(day, other.is_wet(day)),
                lambda _, day: sky_of(other.city, day),
            ),
            whole(lambda day: self.phrases(day, self.is_wet(day) == (day != self.days[0]))),
            whole(lambda day: ()),
        }
        return tuple(sorted(answers - {whole(lambda day: self.phrases(day, self.is_wet(day)))}))

    def subgoals(self) -> tuple[Subgoal, ...]:
        """The sky of each day known; each day's plan of the right branch read."""

        def knows(day, turns):
            return any(
                called(turns, name, city=self.city, day=day) for name in ('weather', 'forecast')
            )

        def planned(day, turns):
            if self.is_wet(day):
                return called(turns, 'indoor', city=self.city, day=day)
            return called(turns, 'outdoor', city=self.city, path=self.phrases(day, False)[0])

        goals = []
        for day in self.days:
            branch = ['indoor'] if self.is_wet(day) else ['route', 'outdoor']
            known, had = functools.partial(knows, day), functools.partial(planned, day)
            goals += [goal(f'sky of {day}', known, 'weather', 'forecast')]
            goals += [goal(f'plan of {day}', had, *branch)]
        return tuple(goals)


def _fits(visit: Visit, level: int, outages: int) -> bool:
    out = sum(is_out(visit.city, day) for day in visit.days)
    return out == outages and (level == 1 or any(map(visit.is_wet, visit.days)))


def question(split: str, level: int, draws: random.Random) -> Visit:
    """A city and a day or two that suit the level; seldom refused, so soon found."""
    outages = int(level == 3 and draws.random() < 0.75)
    while True:
        first = draws.randrange(7)
        days = DAYS[first], DAYS[(first + 1) % 7]
        visit = Visit(draws.choice(CITIES[split]), days[:1] if level == 1 else days)
        if _fits(visit, level, outages):
            return visit


TRIP = Suite(name='trip', tools=(TOOLS[:4], TOOLS[:5], TOOLS), question=question)
