"""Takes answers out of a filled cache on purpose, to learn how a policy fares with a poor one.

What becomes of an answer is decided by its call and a seed, so that all draws of a call share one
fate and an equal cache is thinned equally.  Calls that change a state stay: no other answer may
stand in for them, and without them nothing after them could be asked.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cacherl_jax.tool_cache.entry import Entry, exact_result, source_of
from cacherl_jax.tool_cache.key import CallKey, fitted_key, short_hash
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tool_cache.tiers import likeness, split
from cacherl_jax.tools.tool import Tool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThinSettings:
    """What is left of the calls that read; the rest goes, for best effort to stand in."""

    exact: float = 1.0  # share that stays as it was recorded
    fuzzy: float = 0.0  # share that stays in other words, where it has words to change
    seed: int = 0  # which ones

    def __post_init__(self):
        if min(self.exact, self.fuzzy) < 0 or not self.exact + self.fuzzy <= 1:
            raise ValueError(
                'exact and fuzzy are shares and may sum to 1 at most, '
                f'got {self.exact} and {self.fuzzy}'
            )


def thin(
    entries: Iterable[Entry], tools: Mapping[str, Tool], settings: ThinSettings, threshold: float
) -> Iterator[Entry]:
    """The entries that are left, some of them in other words; `tools` by their identity.

    Other words are alike to the fuzzy tier at `threshold` and give the call another key.  Raises
    ValueError for an entry of a tool that is not among `tools`.
    """
    for entry in entries:
        if entry.key.identity not in tools:
            raise ValueError(
                f'the cache has an answer of {entry.key.identity}, which is none of the '
                f'{len(tools)} tools given; thin a cache with the tools that filled it'
            )
        tool, place = tools[entry.key.identity], chance(entry.key, settings.seed)
        if tool.changes_state or place < settings.exact:
            yield entry
        elif place < settings.exact + settings.fuzzy:
            other = reworded(tool, entry.key, threshold)
            if other:
                yield _under(entry, other)


def chance(key: CallKey, seed: int) -> float:
    """A number in [0, 1), spread evenly over calls; the same for the same call and seed."""
    return int(short_hash(str(seed), *key)[:13], 16) / 16**13


def reworded(tool: Tool, key: CallKey, threshold: float) -> CallKey | None:
    """The key of the same call in capitals, as far as the fuzzy tier takes it for the same."""
    arguments = json.loads(key.arguments)
    frame, texts = split(tool, arguments)
    for name, value in arguments.items():
        other = fitted_key(tool, arguments | {name: _shouted(value)}, key.state)
        new_frame, new_texts = split(tool, json.loads(other.arguments))
        alike = new_frame == frame and likeness(texts, new_texts) >= threshold
        if other != key and alike:
            return other
    return None


def _shouted(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _under(entry: Entry, key: CallKey) -> Entry:
    result = entry.result
    kept = exact_result(source_of(key, entry.draw), result.status, result.text, result.provenance)
    return dataclasses.replace(entry, key=key, result=kept)


def thin_file(
    path: Path, tools: Mapping[str, Tool], settings: ThinSettings, threshold: float
) -> int:
    """Thins the closed cache at `path`; returns how many answers are left."""
    store = Store(path)
    left = list(thin(store.load(), tools, settings, threshold))
    store.close()
    for part in ('', '-wal', '-shm'):
        path.with_name(path.name + part).unlink(missing_ok=True)
    thinned = Store(path)
    thinned.write(left)
    thinned.close()
    return len(left)
