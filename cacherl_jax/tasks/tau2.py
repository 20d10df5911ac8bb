"""tau2-bench telecom in solo mode as tasks: a ticket, a company's records, and the phone in hand.

Tickets, policy, tools, gold actions and assertions are read from the installed package.  Three
things can be made easier than the benchmark, for small models, and then the numbers are not the
benchmark's: only some of the tools are offered (`distractor_tools`), they are described in a
sentence (`compact`), and the policy is cut to the path for the issue at hand (`policy`).  An answer
without a call ends the episode, where the benchmark has a tool named `done`.  In characters, median
over the 114 tasks: the policy 2875 with the default settings and 20833 in full, the tools as JSON
2075 and 15841.

Only five tickets are written for all tasks, so what a task is about shows in the phone alone:
tasks are split by the package's own ids, and no combination of faults stands in two splits.
"""

import copy
import dataclasses
import functools
import hashlib
import re
from typing import Any, Literal

from cacherl_jax.tasks import tau2_score, tau2_world
from cacherl_jax.tasks.suite import SPLITS, chance
from cacherl_jax.tasks.task import AssistantTurn, Expert, Task
from cacherl_jax.tools.schema import without
from cacherl_jax.tools.tool import Call, Scope, Tool
from cacherl_jax.tools.world import Forkable

VALIDATION_SHARE = 8  # one in so many of the package's training tasks is for validation
MOST_ACTIONS = {1: 2, 2: 5}  # gold actions up to which a task is of this level; above, of level 3
PATHS = {'service_issue': '1', 'mobile_data_issue': '2', 'mms_issue': '3'}  # in the workflow
INSTRUCTION = (
    'You solve a customer service ticket by calling tools, one at a time. You cannot talk to the '
    'customer. When the ticket is solved, say so without calling a tool.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tau2Settings:
    """Which tasks, and how much of policy and tools is shown."""

    training: Literal['base', 'full'] = 'base'  # the 74 of the benchmark, or 2171 more
    policy: Literal['none', 'issue', 'full'] = 'issue'
    distractor_tools: int | None = 4  # offered beside those gold needs; None: all 43
    compact: bool = True  # a sentence for each tool, none for arguments
    seed: int = 0  # which distractors

    def __post_init__(self):
        for name, allowed in (
            ('training', ('base', 'full')),
            ('policy', ('none', 'issue', 'full')),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f'{name} must be one of {allowed}, got {getattr(self, name)!r}')
        if self.distractor_tools is not None and self.distractor_tools < 0:
            raise ValueError(f'distractor_tools must be 0 or more, got {self.distractor_tools}')


def faults(identity: str) -> str:
    """What is wrong in a task, without how the customer would behave: nobody talks to them here."""
    return identity.split('[PERSONA')[0]


def split_of(identity: str) -> str | None:
    """The split of a task, by its id alone; None for one that belongs to `full` only."""
    parts = tau2_world.package_split()
    if identity in parts['test']:
        return 'test'
    if identity not in parts['train']:
        return None
    first = hashlib.sha256(faults(identity).encode()).digest()[0]
    return 'train' if first % VALIDATION_SHARE else 'validation'


def level_of(entry: Any) -> int:
    """1 to 3, by the number of gold actions."""
    actions = len(entry.evaluation_criteria.actions)
    return next((level for level, most in MOST_ACTIONS.items() if actions <= most), 3)


def tau2_tasks(split: str, settings: Tau2Settings = Tau2Settings()) -> tuple[Task, ...]:
    """The tasks of a split, in the package's order."""
    if split not in SPLITS:
        raise ValueError(f'split must be one of {SPLITS}, got {split!r}')
    others = 'train' if settings.training == 'full' else None
    kept = {faults(name) for name in tau2_world.entries() if split_of(name) not in (None, 'train')}
    return tuple(
        make_task(entry, split, settings)
        for name, entry in tau2_world.entries().items()
        if (split_of(name) or (None if faults(name) in kept else others)) == split
    )


def make_task(entry: Any, split: str, settings: Tau2Settings = Tau2Settings()) -> Task:
    """One row as a task."""
    return Task(
        id=f'tau2/{split}/{level_of(entry)}/{entry.id}',
        suite='tau2',
        split=split,
        level=level_of(entry),
        entity=entry.id,
        messages=(
            {'role': 'system', 'content': f'{INSTRUCTION}{policy(entry.id, settings.policy)}'},
            {'role': 'user', 'content': entry.ticket},
        ),
        tools=offered_tools(entry, settings),
        start=Forkable(functools.partial(tau2_world.start_world, entry.id), copy.deepcopy),
        expert=functools.partial(play_gold, entry),
        subgoals=tau2_score.subgoals(entry),
        score=functools.partial(tau2_score.score, entry),
        solved=functools.partial(tau2_score.solved, entry),
    )


def policy(identity: str, much: str) -> str:
    """The package's policy, all of it or the workflow's path for this issue."""
    if much == 'none':
        return ''
    workflow = tau2_world.policy_text('tech_support_workflow_solo')
    if much == 'full':
        return f'\n\n{tau2_world.policy_text("main_policy_solo")}\n\n{workflow}'
    path = PATHS[re.match(r'\[(\w+)\]', identity)[1]]
    sections = re.split(r'^(?=## )', workflow, flags=re.MULTILINE)
    kept = [section.strip() for section in sections if section.startswith(f'## Path {path}')]
    return '\n\n' + '\n\n'.join(kept)


def offered_tools(entry: Any, settings: Tau2Settings) -> tuple[Tool, ...]:
    """Those that gold needs and some others, in the package's order."""
    names = list(tau2_world.documents())
    if settings.distractor_tools is not None:
        needed = {gold.name for gold in entry.evaluation_criteria.actions}
        others = [name for name in names if name not in needed]
        draws = chance('tau2 tools', settings.seed, faults(entry.id))
        needed |= set(draws.sample(others, min(settings.distractor_tools, len(others))))
        names = [name for name in names if name in needed]
    return tuple(make_tool(name, settings.compact) for name in names)


@functools.cache
def make_tool(name: str, compact: bool) -> Tool:
    """A tool of the company or of the phone."""
    document = tau2_world.documents()[name]
    description = document['description'].strip()
    dropped = {'title', '$schema'}
    if compact:
        description = re.split(r'\.\s|\n', description)[0].rstrip('.') + '.'
        dropped |= {'description'}
    return Tool(
        name=name,
        description=description,
        parameters=without(document['parameters'], frozenset(dropped)),
        function=functools.partial(tau2_world.perform, name),
        scope=Scope.SESSION,
        changes_state=tau2_world.changes_state(name),
    )


def play_gold(entry: Any) -> Expert:
    """The gold actions one by one, and a word at the end."""
    for gold in entry.evaluation_criteria.actions:
        yield AssistantTurn(calls=(Call(gold.name, dict(gold.arguments)),))
    yield AssistantTurn(content='The ticket is solved.')
