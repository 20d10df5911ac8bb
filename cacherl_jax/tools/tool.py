"""What a tool is, what a call asks for and what came of it.  Nothing runs here (see `execute`).

`tool` makes a Tool from a typed, documented function; a Tool that could not be called as its schema
says is refused when made.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pydantic
import referencing
from jsonschema import validators
from jsonschema.protocols import Validator

from cacherl_jax.tools import schema


class Scope(enum.StrEnum):
    """How long an answer stays true."""

    PURE = 'pure'  # same arguments, same answer
    SESSION = 'session'  # true only after the same state-changing calls in the same task
    NEVER = 'never'  # always executed, never stored


class Status(enum.StrEnum):
    """What came of a call; decided by the outcome, never by words in the text."""

    OK = 'ok'
    UNKNOWN_TOOL = 'unknown_tool'
    BAD_ARGUMENTS = 'bad_arguments'
    TOOL_ERROR = 'tool_error'
    TIMEOUT = 'timeout'
    UNAVAILABLE = 'unavailable'
    OVER_BUDGET = 'over_budget'
    PARSE_ERROR = 'parse_error'


class Tier(enum.IntEnum):
    """Where an answer came from; larger is less to be trusted."""

    LIVE = 0
    EXACT = 1
    FUZZY = 2
    BEST_EFFORT = 3
    MISS = 4


@dataclasses.dataclass(frozen=True)
class Call:
    """A well-formed request: its tool may still not exist, its arguments may still not fit."""

    name: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class ParseError:
    """Text that was meant as a call and is none; nothing may be executed for it."""

    reason: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What the policy reads after a call, and what we keep about it."""

    status: Status
    text: str
    tier: Tier = Tier.LIVE
    similarity: float = 1.0  # 1 for live and exact answers, in [0, 1] for the others
    source: str = ''  # the cache entry that answered; empty when it ran
    provenance: str = 'live'  # live, teacher, imported or simulated
    seconds: float = 0.0  # spent executing; 0 when answered from a cache


class Unavailable(Exception):
    """Raised by a tool to say that it is out of service: the result's status is `unavailable`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool.  A `session` tool's function takes the task's state as its first argument."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON Schema of the arguments, an object
    function: Callable[..., Any]  # plain or async; returns text or anything JSON can hold
    example: tuple[Mapping[str, Any], Any] | None = None
    scope: Scope = Scope.PURE
    changes_state: bool = False  # the call extends the sequence that `session` answers depend on
    time_limit_seconds: float = 5.0
    version: str = '1'
    outage_lasts: bool = False  # `unavailable` is a fact of its world, recorded like an answer

    def __post_init__(self):
        try:
            self._check()
        except ValueError as error:
            raise ValueError(f'tool {self.name!r} is refused: {error}') from error

    def _check(self):
        if not self.name or self.name.split() != [self.name]:
            raise ValueError('a name must be one word')
        if not self.description.strip():
            raise ValueError('a description is missing; the policy knows a tool by it')
        if not self.time_limit_seconds > 0:
            raise ValueError(f'time_limit_seconds must be above 0, got {self.time_limit_seconds}')
        if self.changes_state and self.scope is not Scope.SESSION:
            raise ValueError(f"changes_state needs scope 'session', got {str(self.scope)!r}")
        schema.check_schema(self.parameters)
        schema.check_fit(self.parameters, self.function, self.scope is Scope.SESSION)
        if self.example is not None:
            error = next(self.validator.iter_errors(dict(self.example[0])), None)
            if error:
                raise ValueError(f'the example does not fit the schema: {error.message}')

    @functools.cached_property
    def schema_hash(self) -> str:
        """Equal for tools that accept the same calls."""
        return schema.schema_hash(self.parameters)

    @functools.cached_property
    def identity(self) -> str:
        """Name, version and schema: answers are shared between tools that agree in all three."""
        return f'{self.name}@{self.version}#{self.schema_hash}'

    @functools.cached_property
    def validator(self) -> Validator:
        """Checks arguments; never fetches a schema from elsewhere."""
        kind = validators.validator_for(self.parameters, validators.Draft202012Validator)
        registry = referencing.Registry()
        return kind(self.parameters, registry=registry, format_checker=kind.FORMAT_CHECKER)


def tool(
    function: Callable[..., Any] | None = None,
    *,
    example: tuple[Mapping[str, Any], Any] | None = None,
    scope: Scope = Scope.PURE,
    changes_state: bool = False,
    time_limit_seconds: float = 5.0,
    version: str = '1',
    outage_lasts: bool = False,
) -> Any:
    """A Tool from a typed, documented function: `weather = tool(weather)` or `@tool(...)`.

    The schema comes from the signature; what the parameters mean, from an `Args:` section or from
    `Annotated[str, 'meaning']`.  A session tool's first parameter is the state, not an argument.
    """
    settings = {'example': example, 'scope': Scope(scope), 'changes_state': changes_state}
    settings |= {'time_limit_seconds': time_limit_seconds, 'version': version}
    settings |= {'outage_lasts': outage_lasts}
    if function is None:
        return lambda decorated: tool(decorated, **settings)
    parameters = schema.schema_from_signature(function, settings['scope'] is Scope.SESSION)
    name, description = function.__name__, schema.read_docstring(function)[0]
    if '$defs' in parameters or "'format'" in repr(parameters):
        # Dates, enumerations and models are text and objects in JSON, but not to the function.
        function = pydantic.validate_call(function, config={'arbitrary_types_allowed': True})
    return Tool(
        name=name, description=description, parameters=parameters, function=function, **settings
    )


def specification(tool: Tool) -> dict[str, Any]:
    """What a chat template is given about a tool."""
    described = {'name': tool.name, 'description': tool.description}
    return {'type': 'function', 'function': described | {'parameters': dict(tool.parameters)}}
