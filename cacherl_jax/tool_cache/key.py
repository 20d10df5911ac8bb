"""When do two calls mean the same?  When their keys are equal.

A key is the tool's identity (name, version, schema), the state that the answer depends on and the
arguments in their one spelling.  Nothing about the run, step, clock or rollout is in it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from cacherl_jax.tools.arguments import fit
from cacherl_jax.tools.tool import Scope, Tool

# Arguments are sorted when they are fitted.
_spell = json.JSONEncoder(ensure_ascii=False, separators=(',', ':')).encode


class CallKey(NamedTuple):
    """Equal for calls that have the same answer."""

    identity: str  # name@version#schema
    state: str  # empty for pure tools
    arguments: str  # canonical JSON

    @property
    def digest(self) -> str:
        """A short name for the key, safe to store and to show."""
        return short_hash(*self)


def short_hash(*parts: str) -> str:
    """32 hexadecimal digits that say which texts came, in which order and where each ended."""
    text = ''.join(f'{len(part)}:{part}' for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def canonical_arguments(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """The arguments as JSON text, equal for arguments that mean the same to this tool."""
    return _spell(fit(tool, arguments))


def call_key(tool: Tool, arguments: Mapping[str, Any], state: str = '') -> CallKey:
    """The key of a call in a state; only session tools depend on the state."""
    return fitted_key(tool, fit(tool, arguments), state)


def fitted_key(tool: Tool, fitted: Mapping[str, Any], state: str = '') -> CallKey:
    """As `call_key`, of arguments that are already in their one spelling."""
    return CallKey(tool.identity, state if tool.scope is Scope.SESSION else '', _spell(fitted))


def first_state(task_id: str) -> str:
    """The state that a task's session tools find at the start."""
    return short_hash('task', task_id)


def next_state(key: CallKey, draw: int = 0) -> str:
    """The state after a state-changing call; the key holds the state before it.

    Where a stochastic tool has several recorded draws, which one was drawn is part of the history.
    """
    return short_hash('call', key.state, key.identity, key.arguments, str(draw))
