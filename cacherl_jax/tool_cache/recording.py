"""From a trajectory's calls and results to cache entries: what is kept, and under which state."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from cacherl_jax.tool_cache.entry import PROVENANCES, Entry, make_entry
from cacherl_jax.tool_cache.key import CallKey, call_key, first_state, next_state
from cacherl_jax.tool_cache.settings import ToolCacheSettings
from cacherl_jax.tools.arguments import problem
from cacherl_jax.tools.execute import by_name
from cacherl_jax.tools.tool import Call, ParseError, Result, Scope, Status, Tier, Tool
from cacherl_jax.tools.world import LASTING

Pair = tuple[Call | ParseError, Result]


def entries_of(
    task_id: str,
    tools: Sequence[Tool],
    pairs: Iterable[Pair],
    provenance: str,
    *,
    draws: Callable[[CallKey], tuple[Entry, ...]],
    settings: ToolCacheSettings,
) -> tuple[list[Entry], Counter[str]]:
    """The entries of one demonstration in its order, and how many pairs came to what.

    `draws` says what is recorded already.  A result that was itself a guess (fuzzy or best effort)
    is not recorded: it would look like the truth later.
    """
    if provenance not in PROVENANCES:
        raise ValueError(f'provenance must be one of {PROVENANCES}, got {provenance!r}')
    named, state, outcome = by_name(tools), first_state(task_id), Counter()
    fresh: dict[CallKey, list[Entry]] = {}
    for call, result in pairs:
        reason = _refusal(call, result, named)
        if reason:
            outcome[reason] += 1
            continue
        tool = named[call.name]
        key = call_key(tool, call.arguments, state)
        known, most = [*draws(key), *fresh.get(key, ())], settings.draws_of(tool.name)
        # Where answers are drawn, one that came before is a draw like any other: how often an
        # answer comes is what the draws are kept for.
        again = most > 1 and len(known) < most
        entry = _entry(key, result, provenance, task_id, [] if again else known, len(known))
        became = 'stored' if entry.draw == len(known) else 'known'
        if entry.draw >= most:
            # Another answer to the same call: the first one stays, and is this task's gold as well.
            became, entry = 'differs', dataclasses.replace(known[0], gold=frozenset([task_id]))
        fresh.setdefault(key, []).append(entry)
        outcome[became] += 1
        if tool.changes_state:
            state = next_state(key, entry.draw)
    return [entry for entries in fresh.values() for entry in entries], outcome


def lasts(tool: Tool, result: Result) -> bool:
    """Whether the same call would be answered so again; a passing failure is not stored."""
    lasting_outage = result.status is Status.UNAVAILABLE and tool.outage_lasts
    return result.status in LASTING or lasting_outage


def _refusal(call: Call | ParseError, result: Result, tools: Mapping[str, Tool]) -> str:
    if isinstance(call, ParseError):
        return str(result.status)
    if call.name not in tools:
        return 'unknown_tool'
    if not lasts(tools[call.name], result):
        return str(result.status)
    if result.tier not in (Tier.LIVE, Tier.EXACT):
        return 'guessed'
    if tools[call.name].scope is Scope.NEVER:
        return 'never'
    return 'bad_arguments' if problem(tools[call.name], call.arguments) else ''


def _entry(
    key: CallKey, result: Result, provenance: str, task_id: str, known: Sequence[Entry], new: int
) -> Entry:
    """The entry for a result; one that is known already keeps its draw, another has a new one."""
    same = (each.draw for each in known if _says(each.result) == _says(result))
    draw = next(same, new)
    origin = provenance if result.provenance == 'live' else result.provenance
    kept = dataclasses.replace(result, provenance=origin)
    return make_entry(key, draw, kept, task=task_id, recorded=time.time(), gold=True)


def _says(result: Result) -> tuple[str, str]:
    return str(result.status), result.text
