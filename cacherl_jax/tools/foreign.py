"""Tools described elsewhere: a `langchain_core` tool, or an entry of an MCP server's tool list.

Neither library is imported: anything with a name, a description and a schema will do.  The caller
gives what runs an MCP call; a langchain tool runs itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cacherl_jax.tools.schema import without
from cacherl_jax.tools.tool import Tool


def from_mcp(entry: Any, function: Callable[..., Any], **settings: Any) -> Tool:
    """A Tool from one entry of an MCP `tools/list` answer, run by `function(**arguments)`."""
    schema = _field(entry, 'inputSchema') or _field(entry, 'input_schema') or {}
    return _imported(entry, schema, function, settings)


def from_langchain(entry: Any, function: Callable[..., Any] | None = None, **settings: Any) -> Tool:
    """A Tool from a `langchain_core` tool; it runs by `invoke` unless a function is given."""
    arguments = _field(entry, 'args_schema')
    if arguments is None:
        schema = {'type': 'object', 'properties': dict(_field(entry, 'args') or {})}
    elif isinstance(arguments, Mapping):
        schema = arguments
    else:
        schema = arguments.model_json_schema()

    def invoke(**arguments: Any) -> Any:
        return entry.invoke(arguments)

    return _imported(entry, schema, function or invoke, settings)


def _imported(entry: Any, schema: Mapping, function: Callable, settings: dict) -> Tool:
    name = _field(entry, 'name')
    if not isinstance(name, str):
        raise ValueError(f'a tool needs a name, got {entry!r:.200}')
    parameters = without(schema, frozenset({'title', '$schema'})) or {}
    parameters = {'type': 'object', 'properties': {}} | parameters
    # A model's docstring repeats the tool's description.
    parameters.pop('description', None)
    described = _field(entry, 'description') or ''
    return Tool(
        name=name, description=described, parameters=parameters, function=function, **settings
    )


def _field(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)
