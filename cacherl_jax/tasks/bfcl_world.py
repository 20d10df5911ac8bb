"""The simulated services of BFCL v4 multi-turn: found, started, called and compared.

The package's own executor evaluates the text of calls and keeps worlds in module globals, so that a
second rollout goes on in the first one's world.  Here a call is a name and arguments, dispatched by
`getattr` on instances that belong to one rollout; only documented functions can be reached.
"""

import ast
import copy
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from cacherl_jax.tools.attempt import Attempts
from cacherl_jax.tools.tool import Call

INSTALL = 'pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath'
EVALUATION = 'bfcl_eval.eval_checker.multi_turn_eval'
REPLAY_SECONDS = 5.0  # for one call, as for a tool

World = dict[str, Any]
"""One rollout's services: an instance by the name of its class."""

# Methods of lists, sets, dictionaries and random generators that change what they are called on.
CHANGERS = frozenset(
    [
        'append',
        'add',
        'pop',
        'popitem',
        'remove',
        'discard',
        'clear',
        'insert',
        'extend',
        'update',
        'setdefault',
        'sort',
        'reverse',
    ]
)


def package_folder() -> pathlib.Path:
    """Where the package lies; nothing of it is imported."""
    found = importlib.util.find_spec('bfcl_eval')
    if found is None:
        raise ModuleNotFoundError(f'BFCL is not installed; get it with: {INSTALL}')
    return pathlib.Path(found.submodule_search_locations[0])


def read_rows(name: str) -> list[dict[str, Any]]:
    """The JSON Lines file of this name below the package's data folder."""
    lines = (package_folder() / 'data' / name).read_text(encoding='utf-8').splitlines()
    return [json.loads(line) for line in lines if line]


@functools.cache
def backend() -> ModuleType:
    """The package's table of classes; it needs nothing but the standard library."""
    package_folder()
    return importlib.import_module('bfcl_eval.constants.executable_backend_config')


@functools.cache
def checker() -> ModuleType:
    """The package's checker; only its comparisons are used, which evaluate no text."""
    package_folder()
    return importlib.import_module(f'{EVALUATION}.multi_turn_checker')


@functools.cache
def service(name: str) -> type:
    """The class of a service."""
    return getattr(importlib.import_module(backend().CLASS_FILE_PATH_MAPPING[name]), name)


@functools.cache
def documents(name: str) -> dict[str, dict[str, Any]]:
    """The documented functions of a service by name, in the package's order."""
    file = backend().MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
    return {row['name']: row for row in read_rows(f'multi_turn_func_doc/{file}')}


def owner(name: str, services: Iterable[str]) -> str | None:
    """The service that documents a function; names are unique among the services of a task."""
    return next((service for service in services if name in documents(service)), None)


def start_world(services: Sequence[str], initial: Mapping[str, Any], long_context: bool) -> World:
    """Fresh instances in a task's first state; two worlds share nothing."""
    world = {}
    for name in services:
        world[name] = service(name)()
        if name not in backend().STATELESS_CLASSES:
            scenario = copy.deepcopy(initial.get(name, {}))
            world[name]._load_scenario(scenario, long_context=long_context)
    return world


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Entry:
    """One row of the benchmark."""

    number: int
    category: str
    services: tuple[str, ...]
    initial: Mapping[str, Any]  # what the services hold at first
    requests: tuple[str, ...]  # one a user turn
    gold: tuple[tuple[Call, ...], ...]  # for each user turn
    excluded: frozenset[str]  # functions the benchmark does not offer here
    later: Mapping[str, int]  # functions offered only with the request of this place

    def start(self) -> World:
        long_context = self.category == 'long_context'
        return start_world(self.services, self.initial, long_context)


@functools.cache
def entries(category: str) -> tuple[Entry, ...]:
    """All rows of a category."""
    file = f'BFCL_v4_multi_turn_{category}.json'
    gold = {row['id']: row['ground_truth'] for row in read_rows(f'possible_answer/{file}')}
    return tuple(
        Entry(
            number=int(row['id'].rsplit('_', 1)[1]),
            category=category,
            services=tuple(row['involved_classes']),
            initial=row['initial_config'],
            requests=tuple(turn[0]['content'] if turn else '' for turn in row['question']),
            gold=tuple(
                tuple(read_call(text, row['involved_classes']) for text in turn)
                for turn in gold[row['id']]
            ),
            excluded=frozenset(row.get('excluded_function', ())),
            later={
                name: int(place)
                for place, names in row.get('missed_function', {}).items()
                for name in names
            },
        )
        for row in read_rows(file)
    )


class Refused(Exception):
    """A service answered with nothing but an error."""


def perform(service_name: str, name: str, world: World, /, **arguments: Any) -> str:
    """One call as a tool makes it: a service that answers with an error alone has failed."""
    result = getattr(world[service_name], name)(**arguments)
    if isinstance(result, dict) and set(result) == {'error'}:
        raise Refused(result['error'])
    return written(result)


def written(result: Any) -> str:
    """An answer as the benchmark writes it."""
    if not isinstance(result, dict):
        return str(result)
    try:
        return json.dumps(result)
    except (TypeError, ValueError):
        return str(result)  # some answers hold objects; the benchmark shows them like this


def replay(world: World, calls: Iterable[Call]) -> list[str]:
    """The answers to calls made one after the other in this world; a call that fails says so."""
    attempts, answers = Attempts(workers=1), []
    for call in calls:
        where = owner(call.name, world)
        if where is None:
            answers.append(f'no function {call.name}')
            continue
        act = functools.partial(act_as_written, getattr(world[where], call.name))
        answers.append(attempts.run(act, (), call.arguments, REPLAY_SECONDS).text)
    return answers


def act_as_written(method: Callable[..., Any], /, **arguments: Any) -> str:
    """One call with the benchmark's own text for its answer, errors of the service included."""
    return written(method(**arguments))


def read_call(text: str, services: Sequence[str]) -> Call:
    """A gold call, parsed strictly: one function, literal arguments; positional ones get names."""
    node = ast.parse(text.strip(), mode='eval').body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f'a gold call must be name(arguments), got {text!r}')
    where = owner(node.func.id, services)
    if where is None:
        raise ValueError(f'{text!r} calls a function of none of {list(services)}')
    names = list(parameters(where, node.func.id))
    positional = dict(zip(names, map(ast.literal_eval, node.args), strict=False))
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
    return Call(node.func.id, positional | named)


@functools.cache
def parameters(service_name: str, name: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a function in order, without the instance."""
    found = inspect.signature(getattr(service(service_name), name)).parameters
    return {key: value for key, value in found.items() if key != 'self'}


def complete(call: Call, services: Sequence[str]) -> dict[str, str]:
    """Arguments by name, defaults filled in, values canonical: equal where they mean the same."""
    where = owner(call.name, services)
    known = parameters(where, call.name) if where else {}
    defaults = {
        name: each.default for name, each in known.items() if each.default is not each.empty
    }
    return {
        name: json.dumps(_plain(value), sort_keys=True, default=str)
        for name, value in (defaults | dict(call.arguments)).items()
    }


def _plain(value: Any) -> Any:
    """With 1 and 1.0 alike; true stays apart from both."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return float(value) if type(value) is int and abs(value) < 2**53 else value


@functools.cache
def changes_state(service_name: str, name: str) -> bool:
    """Whether a function may change its service, decided by its source and on the safe side.

    It does not when neither it nor any method it may reach assigns to an attribute or an item,
    deletes one, calls a method that changes a collection, or draws a random number; collections
    made by the function itself do not count.
    """
    module = inspect.getmodule(service(service_name))
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    methods = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    reached, waiting = set(), [name]
    while waiting:
        method = methods[waiting.pop()]
        reached.add(method.name)
        if any(_changes(node, _own(method)) for node in ast.walk(method)):
            return True
        called = {node.attr for node in ast.walk(method) if isinstance(node, ast.Attribute)}
        waiting += [other for other in called & methods.keys() if other not in reached]
    return False


def _own(method: ast.FunctionDef) -> set[str]:
    """Local names that only ever hold collections made in this function."""
    fresh = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Constant)
    held: dict[str, bool] = {}
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            held[name] = held.get(name, True) and isinstance(node.value, fresh)
    return {name for name, made_here in held.items() if made_here}


def _changes(node: ast.AST, own: set[str]) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == '_random':
        return True
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        return not (isinstance(node.value, ast.Name) and node.value.id in own)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        kept = isinstance(receiver, ast.Name) and receiver.id in own
        return node.func.attr in CHANGERS and not kept
    return False
