"""What a tool is, what a call asks for and what came of it.  Nothing runs here (see `execute`)."""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any


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
    """A well-formed request: the tool named may still not exist, the arguments may still not fit."""

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
