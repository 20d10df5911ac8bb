"""Day trips: the sky decides between an indoor plan and a route with an outdoor plan.

Level 1: one day.  Level 2: two days, one of them wet at least, and a tool of no use.  Level 3: the
same, and for one of the days (mostly) the weather service is out, so that the backup must be asked.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator

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
from cacherl_jax.tools.tool import Call, Status, Unavailable

ANSWER_CHARACTERS = 60, 170  # most for one day and for two: room for one plan a day
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


def sky_of(city: str, day: str) -> str:
    if city not in _KNOWN or day not in DAYS:
        raise ValueError(f'no city {city}' if day in DAYS else f'no day {day}')
    return chance('sky', city, day).choice(WET + DRY)


_KNOWN = frozenset(_NAMES)


def is_out(city: str, day: str) -> bool:
    """Whether the weather service has nothing for this day."""
    return chance('weather service', city, day).random() < 0.3


def weather(city: str, day: str) -> dict:
    """Sky on a day."""
    if is_out(city, day):
        raise Unavailable(f'no weather for {day}')
    return {'sky': sky_of(city, day)}


def indoor(city: str, day: str) -> dict:
    """Plan for a wet day."""
    sky_of(city, day)
    return {'plan': chance('indoor', city, day).choice(INDOOR)}


def route(city: str, day: str) -> dict:
    """Route for a dry day."""
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


TOOLS = tuple(map(tool, (weather, indoor, route, outdoor, hotel, forecast)))


@dataclasses.dataclass(frozen=True)
class Visit:
    """A city and the days there."""

    city: str
    days: tuple[str, ...]

    def is_wet(self, day: str) -> bool:
        return sky_of(self.city, day) in WET

    def phrases(self, day: str, wet: bool) -> tuple[str, ...]:
        """What a plan of the day names, in the branch for wet or for dry days."""
        if wet:
            return (indoor(self.city, day)['plan'],)
        path = route(self.city, day)['route']
        return (path, outdoor(self.city, path)['plan'])


def say(day: str, sky: str, phrases: tuple[str, ...]) -> str:
    return f'{day}: {sky}, so {" and ".join(phrases)}.'


def expert(visit: Visit):
    """Ask the weather, the backup where it is out, then each day's branch; days side by side."""
    city, days = visit.city, visit.days
    told = yield ask(*(Call('weather', {'city': city, 'day': day}) for day in days))
    sky = {
        day: read(one)['sky']
        for day, one in zip(days, told, strict=True)
        if one.status is Status.OK
    }
    missing = [day for day in days if day not in sky]
    if missing:
        told = yield ask(*(Call('forecast', {'city': city, 'day': day}) for day in missing))
        sky |= {day: read(one)['sky'] for day, one in zip(missing, told, strict=True)}
    names = {day: 'indoor' if sky[day] in WET else 'route' for day in days}
    told = yield ask(*(Call(names[day], {'city': city, 'day': day}) for day in days))
    plan = {day: tuple(read(one).values()) for day, one in zip(days, told, strict=True)}
    dry = [day for day in days if names[day] == 'route']
    if dry:
        told = yield ask(*(Call('outdoor', {'city': city, 'path': plan[day][0]}) for day in dry))
        plan |= {day: (*plan[day], read(one)['plan']) for day, one in zip(dry, told, strict=True)}
    yield AssistantTurn(content=' '.join(say(day, sky[day], plan[day]) for day in days))


_PLANS = re.compile('|'.join(INDOOR + ROUTES + OUTDOOR), re.IGNORECASE)


def _day_score(visit: Visit, day: str, said: str) -> float:
    sky, wet = sky_of(visit.city, day), visit.is_wet(day)
    wanted = {phrase.lower() for phrase in visit.phrases(day, wet)}
    named = {phrase.lower() for phrase in _PLANS.findall(said)}
    skies = {word for word in WET + DRY if mentions(said, word)}
    if named - wanted or skies - {sky}:
        return 0.0
    return 0.3 * (sky in skies) + 0.7 * len(named) / len(wanted)


def score(visit: Visit, episode: Episode) -> float:
    """1 where each day has its sky and branch's whole plan; a foreign plan or sky spoils a day."""
    answer = episode.answer
    if len(answer) > ANSWER_CHARACTERS[len(visit.days) - 1]:
        return 0.0
    said = dict.fromkeys(visit.days, answer)
    if len(visit.days) > 1:
        pieces = re.split(f'({"|".join(visit.days)})', answer)
        said = dict.fromkeys(visit.days, '') | dict(zip(pieces[1::2], pieces[2::2], strict=True))
    days = [_day_score(visit, day, said[day]) for day in visit.days]
    return 1.0 if min(days) > 0.99 else 0.4 * sum(days) / len(days)


def solved(visit: Visit, episode: Episode) -> bool:
    """Each day's sentence tells its sky and plan, and no word of the whole belongs elsewhere."""
    said = spaced(episode.answer)
    right = {day: visit.phrases(day, visit.is_wet(day)) for day in visit.days}
    skies = {sky_of(visit.city, day) for day in visit.days}
    plans = {phrase for phrases in right.values() for phrase in phrases}
    starts = sorted((said.find(f' {day.lower()} '), day) for day in visit.days)
    stops = [start for start, _ in starts[1:]] + [len(said)]
    single = len(visit.days) == 1
    return (
        len(episode.answer) <= ANSWER_CHARACTERS[len(visit.days) - 1]
        and not set(said.split()) & ({*WET, *DRY} - skies)
        and not any(f' {one.lower()} ' in said for one in {*INDOOR, *ROUTES, *OUTDOOR} - plans)
        and all(
            (single or start >= 0)
            and all(
                f' {phrase.lower()} ' in (said if single else said[start : stop + 1])
                for phrase in (sky_of(visit.city, day), *right[day])
            )
            for (start, day), stop in zip(starts, stops, strict=True)
        )
    )


def wrong_answers(visit: Visit) -> tuple[str, ...]:
    """The other branch, both branches, another city's plan, the sky without a plan."""

    def whole(phrases, skies=sky_of):
        return ' '.join(say(day, skies(visit.city, day), phrases(day)) for day in visit.days)

    other = dataclasses.replace(visit, city=_NAMES[_NAMES.index(visit.city) - 1])
    answers = {
        whole(lambda day: visit.phrases(day, not visit.is_wet(day))),
        whole(lambda day: visit.phrases(day, True) + visit.phrases(day, False)),
        whole(
            lambda day: other.phrases(day, other.is_wet(day)),
            lambda _, day: sky_of(other.city, day),
        ),
        whole(lambda day: ()),
    }
    return tuple(sorted(answers - {whole(lambda day: visit.phrases(day, visit.is_wet(day)))}))


def subgoals(visit: Visit) -> tuple[Subgoal, ...]:
    """The sky of each day known; each day's plan of the right branch read."""

    def knows(day, turns):
        at = {'city': visit.city, 'day': day}
        return called(turns, 'weather', **at) or called(turns, 'forecast', **at)

    def planned(day, turns):
        if visit.is_wet(day):
            return called(turns, 'indoor', city=visit.city, day=day)
        return called(turns, 'outdoor', city=visit.city, path=visit.phrases(day, False)[0])

    def both(day) -> Iterator[Subgoal]:
        branch = {'indoor'} if visit.is_wet(day) else {'route', 'outdoor'}
        skies = frozenset({'weather', 'forecast'})
        yield Subgoal(name=f'sky of {day}', reached=functools.partial(knows, day), tools=skies)
        yield Subgoal(
            name=f'plan of {day}', reached=functools.partial(planned, day), tools=frozenset(branch)
        )

    return tuple(itertools.chain.from_iterable(map(both, visit.days)))


def _fits(visit: Visit, level: int, outages: int) -> bool:
    out = sum(is_out(visit.city, day) for day in visit.days)
    return out == outages and (level == 1 or any(map(visit.is_wet, visit.days)))


def _visit(split: str, level: int, draws) -> Visit:
    outages = int(level == 3 and draws.random() < 0.75)
    while True:
        first = draws.randrange(7)
        days = DAYS[first], DAYS[(first + 1) % 7]
        visit = Visit(draws.choice(CITIES[split]), days[:1] if level == 1 else days)
        if _fits(visit, level, outages):
            return visit


def task(split: str, level: int, number: int) -> Task:
    """Plan one day or two in a city by the weather."""
    draws = chance(task_id('trip', split, level, number))
    visit = _visit(split, level, draws)
    wordings = WORDINGS + (UNSEEN_WORDINGS if (split, level) == ('test', 3) else ())
    request = draws.choice(wordings).format(city=visit.city, days=' and '.join(visit.days))
    return Task(
        id=task_id('trip', split, level, number),
        suite='trip',
        split=split,
        level=level,
        entity=visit.city,
        messages=({'role': 'user', 'content': request},),
        tools=TOOLS[: level + 3],
        expert=functools.partial(expert, visit),
        subgoals=subgoals(visit),
        score=functools.partial(score, visit),
        solved=functools.partial(solved, visit),
        wrong_answers=('', request, *wrong_answers(visit)),
    )


TRIP = Suite('trip', task)
