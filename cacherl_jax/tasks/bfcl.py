"""BFCL v4 multi-turn as tasks: real requests over simulated services with a state.

The benchmark's questions, gold calls, services and comparisons are read from the installed package.
Two things can be made easier than the benchmark, for small models, and then the numbers are not the
benchmark's: only some of the functions are offered (`distractor_tools`), and they are described in
a sentence (`compact`).  In `miss_func` the user tells of some functions in mid-episode, with the
benchmark's words for models that read functions in the text; the prompt stays as it was.

Sizes in SmolLM2 tokens over the 200 base tasks, median and largest: the tools as JSON schemas 579
and 1062 with the default settings, 464 and 883 with 2 distractors, 2369 and 3830 as the benchmark
has them; all user messages 145 and 371; a whole expert episode 1232 and 2382, 152 within 1500.
"""

import copy
import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cacherl_jax.tasks import bfcl_score, bfcl_world
from cacherl_jax.tasks.bfcl_world import Entry
from cacherl_jax.tasks.suite import SPLITS, chance
from cacherl_jax.tasks.task import AssistantTurn, Expert, Task
from cacherl_jax.tools.tool import Scope, Tool, specification
from cacherl_jax.tools.world import Forkable

CATEGORIES = ('base', 'miss_func', 'miss_param', 'long_context')
LAST_DIGITS = {'train': '0123456', 'validation': '7', 'test': '89'}  # of the number in the id
MOST_CALLS = {1: 4, 2: 7}  # gold calls up to which a task is of this level; above, of level 3
JSON_TYPES = {'dict': 'object', 'float': 'number', 'tuple': 'array', 'any': 'string'}
# One gold call gives text where the document says integer; both are accepted.
MENDED = {('close_ticket', 'ticket_id'): {'type': ['integer', 'string']}}
# The benchmark's own sentence.
ANNOUNCED = 'I have updated some more functions you can choose from. What about now?'
LABEL = 'Tool description: '  # the part before it is the same for all functions of a service


@dataclasses.dataclass(frozen=True, kw_only=True)
class BfclSettings:
    """Which tasks, and how much of their tools is shown."""

    category: Literal[*CATEGORIES] = 'base'
    distractor_tools: int | None = 4  # offered beside those gold needs; None: all, as the benchmark
    compact: bool = True  # a sentence for each tool, none for arguments
    seed: int = 0  # which distractors

    def __post_init__(self):
        if self.category not in CATEGORIES:
            raise ValueError(f'category must be one of {CATEGORIES}, got {self.category!r}')
        if self.distractor_tools is not None and self.distractor_tools < 0:
            raise ValueError(f'distractor_tools must be 0 or more, got {self.distractor_tools}')


def split_of(number: int) -> str:
    """The split of a task in every category, because the categories share their tasks."""
    return next(split for split, digits in LAST_DIGITS.items() if str(number)[-1] in digits)


def level_of(entry: Entry) -> int:
    """1 to 3, by the number of gold calls."""
    calls = sum(map(len, entry.gold))
    return next((level for level, most in MOST_CALLS.items() if calls <= most), 3)


def bfcl_tasks(split: str, settings: BfclSettings = BfclSettings()) -> tuple[Task, ...]:
    """The tasks of a split, in the benchmark's order."""
    if split not in SPLITS:
        raise ValueError(f'split must be one of {SPLITS}, got {split!r}')
    return tuple(
        make_task(entry, settings)
        for entry in bfcl_world.entries(settings.category)
        if split_of(entry.number) == split
    )


def make_task(entry: Entry, settings: BfclSettings = BfclSettings()) -> Task:
    """One row as a task."""
    split, tools, later = split_of(entry.number), offered_tools(entry, settings), told_later(entry)
    return Task(
        id=f'bfcl/{split}/{level_of(entry)}/{entry.category}_{entry.number:05d}',
        suite='bfcl',
        split=split,
        level=level_of(entry),
        entity=f'bfcl_{entry.number}',
        messages=({'role': 'user', 'content': entry.requests[0]},),
        follow_ups=tuple(
            request or announcement([tool for tool in tools if later.get(tool.name) == place])
            for place, request in enumerate(entry.requests[1:], start=1)
        ),
        tools=tools,
        later=later,
        start=Forkable(entry.start, copy.deepcopy),
        expert=functools.partial(play_gold, entry),
        subgoals=bfcl_score.subgoals(entry),
        score=functools.partial(bfcl_score.score, entry),
        solved=functools.partial(bfcl_score.solved, entry),
    )


def offered_tools(entry: Entry, settings: BfclSettings) -> tuple[Tool, ...]:
    """Those that gold needs and some others, in the benchmark's order."""
    offered = [
        (service, name)
        for service in entry.services
        for name in bfcl_world.documents(service)
        if name not in entry.excluded
    ]
    needed = {call.name for calls in entry.gold for call in calls} | entry.later.keys()
    if settings.distractor_tools is not None:
        others = [name for _, name in offered if name not in needed]
        draws = chance('bfcl tools', settings.seed, entry.number)
        needed |= set(draws.sample(others, min(settings.distractor_tools, len(others))))
        offered = [(service, name) for service, name in offered if name in needed]
    return tuple(make_tool(service, name, settings.compact) for service, name in offered)


def told_later(entry: Entry) -> dict[str, int]:
    """The functions told of later, but those that gold calls before (one row has such)."""
    called = {
        call.name: place for place, calls in reversed(list(enumerate(entry.gold))) for call in calls
    }
    return {n: place for n, place in entry.later.items() if called.get(n, place) >= place}


def announcement(tools: Sequence[Tool]) -> str:
    """The user's message that tells of further tools."""
    return f'{json.dumps([specification(tool)["function"] for tool in tools])}\n{ANNOUNCED}'


@functools.cache
def make_tool(service: str, name: str, compact: bool) -> Tool:
    """A documented function of a service."""
    document = bfcl_world.documents(service)[name]
    description = document['description'].split(LABEL)[-1].strip()
    if compact:
        description = description.split('. ')[0].rstrip('.') + '.'
    schema = json_schema(document['parameters'], compact)
    for key, parameter in bfcl_world.parameters(service, name).items():
        # The function's own defaults: some documents say 'None', a text, where None is meant.
        if parameter.default not in (parameter.empty, None) and key in schema['properties']:
            schema['properties'][key]['default'] = parameter.default
        schema['properties'][key] |= MENDED.get((name, key), {})
    return Tool(
        name=name,
        description=description,
        parameters=schema,
        function=functools.partial(bfcl_world.perform, service, name),
        scope=Scope.SESSION,
        changes_state=bfcl_world.changes_state(service, name),
    )


def json_schema(document: Mapping[str, Any], compact: bool) -> dict[str, Any]:
    """A function document's types in the words of JSON Schema, without its defaults."""
    schema = {'type': JSON_TYPES.get(document['type'], document['type'])}
    if 'description' in document and not compact:
        schema['description'] = document['description']
    if 'enum' in document:
        schema['enum'] = document['enum']
    if document.get('properties'):
        parts = document['properties'].items()
        schema['properties'] = {name: json_schema(part, compact) for name, part in parts}
    elif document['type'] == 'dict':
        schema['properties'] = {}
    if document.get('items'):
        schema['items'] = json_schema(document['items'], compact)
    return schema | ({'required': document['required']} if document.get('required') else {})


def play_gold(entry: Entry) -> Expert:
    """The gold calls one by one, and a short word at the end of each user turn."""
    for calls in entry.gold:
        for call in calls:
            yield AssistantTurn(calls=(call,))
        yield AssistantTurn(content='Done.' if calls else 'I cannot: something is missing.')
