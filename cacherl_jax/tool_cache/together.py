"""A tool cache that the first of several processes has open, as all of them see it."""

import os

from cacherl_jax.processes import is_first, several, told
from cacherl_jax.tool_cache.cache import ToolCache, make_tool_cache
from cacherl_jax.tool_cache.settings import ToolCacheSettings
from cacherl_jax.tools.execute import ExecuteSettings
from cacherl_jax.tools.together import opened_nowhere


class SharedToolCache:
    """What the first process's cache says is told to all; whoever asks, asks on all of them."""

    def __init__(self, cache: ToolCache | None):
        self._cache = cache  # None on every process but the first
        self.open_session = cache.open_session if cache else opened_nowhere

    @property
    def live_calls(self) -> int:
        """Attempts to run a tool so far."""
        return told(lambda: self._cache.live_calls)

    @property
    def content_hash(self) -> str:
        """Says what the snapshot would answer."""
        return told(lambda: self._cache.content_hash)

    def commit(self) -> dict[str, float]:
        """Ends the step, and tells how it went."""
        return told(lambda: self._cache.commit())

    def record_results(self, *arguments, **named) -> dict[str, int]:
        """Stores a demonstration's answers; says what became of each."""
        return told(lambda: self._cache.record_results(*arguments, **named))

    def close(self) -> None:
        """Closes the store; what was not committed is lost."""
        told(lambda: self._cache.close())


def open_tool_cache(
    path: str | os.PathLike, settings: ToolCacheSettings, execute: ExecuteSettings
) -> ToolCache | SharedToolCache:
    """The tool cache over the file at a path, of one process or of several."""
    if not several():
        return make_tool_cache(path, settings, execute)
    opened: list[ToolCache] = []
    told(lambda: opened.append(make_tool_cache(path, settings, execute)))
    return SharedToolCache(opened[0] if is_first() else None)
