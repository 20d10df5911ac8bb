"""The teacher of the built-in suites: a short true sentence for each call, by rules.

A rule sees the call and the results before it, so what it says was read in the episode.  Where that
is not enough for a reason it names the call alone, and claims nothing.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from cacherl_jax.supervised.conversations import calls_of
from cacherl_jax.supervised.thinking import Question, Reply
from cacherl_jax.tasks.trip import DRY, WET
from cacherl_jax.tools.tool import Call

Arguments = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the episode has shown so far."""

    asked: str  # all that the user said
    results: tuple[tuple[Call, Any], ...]  # each answered call with its decoded result

    def last(self, *names: str, **arguments: Any) -> dict:
        """The latest result of a call of one of these tools with these arguments; {} if none."""
        for call, result in reversed(self.results):
            if call.name in names and arguments.items() <= dict(call.arguments).items():
                return result if isinstance(result, dict) else {'text': result}
        return {}


def _seen(question: Question) -> Seen:
    asked, waiting, results = [], [], []
    for message in question.past:
        if message['role'] == 'user':
            asked.append(message['content'])
        elif message['role'] == 'assistant':
            waiting = list(calls_of(message))
        elif message['role'] == 'tool':
            results.append((waiting.pop(0), _decoded(message['content'])))
    return Seen(' '.join(asked), tuple(results))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _sky(seen: Seen, day: str, city: str) -> str:
    told = (seen.last(name, city=city, day=day).get('sky') for name in ('forecast', 'weather'))
    return next((sky for sky in told if sky), '')


def weather(seen: Seen, city: str, day: str) -> str:
    if _sky(seen, day, city):
        return f'I look at the sky of {day} again.'
    return f'The sky of {day} is not known yet.'


def forecast(seen: Seen, city: str, day: str) -> str:
    if seen.last('weather', city=city, day=day).get('error') == 'unavailable':
        return f'The weather of {day} is out, so I ask the backup.'
    return weather(seen, city, day)


def indoor(seen: Seen, city: str, day: str) -> str:
    sky = _sky(seen, day, city)
    if sky in WET:
        return f'{day} is wet, {sky}, so it is an indoor day.'
    return f'I look for an indoor plan for {day}.'


def route(seen: Seen, city: str, day: str) -> str:
    sky = _sky(seen, day, city)
    if sky in DRY:
        return f'{day} is dry, {sky}, so it needs a route.'
    return f'I look for a route for {day}.'


def outdoor(seen: Seen, city: str, path: str) -> str:
    routes = [
        result.get('route')
        for call, result in seen.results
        if call.name == 'route' and call.arguments.get('city') == city
    ]
    if path in routes:
        return f'The route is {path}, so I look for a plan along it.'
    return f'I look for a plan along {path}.'


def hotel(seen: Seen, city: str) -> str:
    return f'I look for a hotel in {city}.'


def search(seen: Seen, query: str) -> str:
    if seen.last('search'):
        return 'I search for a report again.'
    return 'I search for a report.' if seen.results else 'I must find the report first.'


def parse_document(seen: Seen, document: str) -> str:
    if document == seen.last('archive').get('copy'):
        return f'The copy is {document}, so I open it.'
    titles = {name: title for title, name in seen.last('search').items()}
    title = titles.get(document)
    return f'{document} is {title}, so I open it.' if title else f'I open {document}.'


def archive(seen: Seen, document: str) -> str:
    if seen.last('parse_document', document=document).get('error') == 'unavailable':
        return f'{document} is out, so I need its copy.'
    return f'I look for a copy of {document}.'


def extract_data(seen: Seen, text: str, field: str) -> str:
    if text == seen.last('parse_document').get('text'):
        return f'The report is open as {text}, so I read its {field}.'
    return f'I read {field} from {text}.'


def summarize(seen: Seen, text: str) -> str:
    return f'I need a summary of {text}.'


def share_price(seen: Seen, company: str) -> str:
    return f'I look up a share of {company}.'


def list_tables(seen: Seen) -> str:
    if seen.results:
        return 'I list the tables.'
    return 'I do not know yet how the table is spelled.'


def load_table(seen: Seen, table: str) -> str:
    if table in seen.last('list_tables').get('tables', ()):
        return f'{table} is on the list, so I load it.'
    return f'I load the table {table}.'


def _left(seen: Seen, what: str, *names: str) -> str:
    """How many rows or groups the last change left; empty where it is not known."""
    number = seen.last(*names).get(f'{what}s')
    if number is None:
        return ''
    return f'There is 1 {what}' if number == 1 else f'There are {number} {what}s'


def filter_rows(seen: Seen, column: str, value: str) -> str:
    message = str(seen.last('filter_rows').get('message', ''))
    if column in message.partition('columns: ')[2].split(', '):
        return f'The column is called {column}, so I filter by it.'
    return f'I keep the rows with {column} {value}.'


def group_rows(seen: Seen, column: str) -> str:
    rows = _left(seen, 'row', 'filter_rows', 'load_table')
    return f'{rows}, so I group them by {column}.' if rows else f'I group rows by {column}.'


def aggregate(seen: Seen, how: str, column: str) -> str:
    rows = _left(seen, 'row', 'filter_rows', 'load_table')
    return f'{rows}, so I take the {how} of {column}.' if rows else f'I take the {how} of {column}.'


def top_group(seen: Seen, column: str) -> str:
    groups = _left(seen, 'group', 'group_rows', 'filter_rows', 'load_table')
    wanted = f'I look for the largest sum of {column}'
    return f'{groups}, and {wanted}.' if groups else f'{wanted}.'


RULES: dict[str, Callable[..., str]] = {
    rule.__name__: rule
    for rule in (
        weather, forecast, indoor, route, outdoor, hotel,
        search, parse_document, archive, extract_data, summarize, share_price,
        list_tables, load_table, filter_rows, group_rows, aggregate, top_group,
    )
}  # fmt: skip


def rule_teacher(question: Question) -> Reply:
    """One sentence for each call of the turn, or one for an answer; a sentence is said once.

    Raises ValueError for a tool without a rule; a call whose arguments are not the tool's own gets
    a sentence that names the tool alone.
    """
    calls, seen = calls_of(question.turn), _seen(question)
    strangers = sorted({call.name for call in calls} - RULES.keys())
    if strangers:
        raise ValueError(
            f'no rule for {strangers}; there are rules for {sorted(RULES)}; '
            'use a teacher behind an endpoint'
        )
    if not calls:
        return Reply('My calls are answered, so I answer.' if seen.results else 'I answer.')
    return Reply(' '.join(dict.fromkeys(_sentence(call, seen) for call in calls)))


def _sentence(call: Call, seen: Seen) -> str:
    rule, names = RULES[call.name], set(call.arguments)
    own = set(inspect.signature(rule).parameters) - {'seen'}
    if names != own or not all(isinstance(value, str) for value in call.arguments.values()):
        return f'I try {call.name}.'
    return rule(seen, **call.arguments)
