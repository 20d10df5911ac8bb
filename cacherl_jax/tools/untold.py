"""Tools of which the policy is told in mid-episode: until then a call of one is a stranger's.

A session holds every tool of its task from the start, so that its state is one; here stands what
may be called so far.
"""

from collections.abc import Sequence
from typing import Protocol

from cacherl_jax.tools.observation import failure
from cacherl_jax.tools.tool import Call, ParseError, Result, Status, Tool


class Session(Protocol):
    """What answers an episode's calls, `tool_cache`'s or a live one."""

    def answer(self, calls: Sequence[Call | ParseError]) -> tuple[Result, ...]:
        """One result per call, in call order."""


def answer_told(
    session: Session,
    calls: Sequence[Call | ParseError],
    told: Sequence[Tool],
    tools: Sequence[Tool],
) -> tuple[Result, ...]:
    """The session's results; those of `tools` that are not `told` are neither run nor named."""
    if len(told) == len(tools):
        return tuple(session.answer(calls))
    allowed = sorted(tool.name for tool in told)
    unknown = {tool.name for tool in tools}.difference(allowed)
    asked = [
        ParseError('unknown', call.name)
        if isinstance(call, Call) and call.name in unknown
        else call
        for call in calls
    ]
    return tuple(
        failure(Status.UNKNOWN_TOOL, name=str(call.name)[:80], allowed=allowed)
        if isinstance(call, Call) and result.status in (Status.UNKNOWN_TOOL, Status.PARSE_ERROR)
        else result
        for call, result in zip(calls, session.answer(asked), strict=True)
    )
