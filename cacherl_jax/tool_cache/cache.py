"""The tool cache: opens sessions, holds the step's frozen snapshot, commits what is new at its end.

Inside a step look-ups see only what was committed before, and identical misses share one run, so
what a rollout finds does not depend on which other rollout came first.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from cacherl_jax.tool_cache.copies import StateCopies
from cacherl_jax.tool_cache.embedding import make_meaning
from cacherl_jax.tool_cache.entry import Entry, make_entry
from cacherl_jax.tool_cache.flight import Flights
from cacherl_jax.tool_cache.index import Index
from cacherl_jax.tool_cache.key import CallKey, fitted_key
from cacherl_jax.tool_cache.lookup import (
    Found,
    Question,
    Seat,
    find_draw,
    find_exact,
    find_fuzzy,
    find_nearest,
)
from cacherl_jax.tool_cache.recording import entries_of
from cacherl_jax.tool_cache.session import CachedSession
from cacherl_jax.tool_cache.settings import ToolCacheSettings
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tools.arguments import fit
from cacherl_jax.tools.execute import ExecuteSettings, Runner
from cacherl_jax.tools.tool import Call, ParseError, Result, Tier, Tool

__all__ = ['ToolCache', 'ToolCacheSettings', 'make_tool_cache']


class ToolCache:
    """Answers recorded before, and the way to new ones."""

    def __init__(self, store: Store, settings: ToolCacheSettings, execute: ExecuteSettings):
        self.settings, self.runner, self.flights = settings, Runner(execute), Flights()
        # Where every call runs, or none does, no state is ever behind.
        kept = settings.copies if settings.mode == 'read_through' else 0
        self.copies = StateCopies(kept) if kept else None
        if settings.tiers.embedding:
            make_meaning(settings.tiers.embedding)  # a folder without an encoder is refused now
        self._store, self._index = store, Index(store.load())
        self._lock = threading.Lock()
        self._offers: dict[tuple[CallKey, int], tuple[tuple, Result]] = {}
        self._hits: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._content_hash = ''
        if settings.content_hash and settings.content_hash != self.content_hash:
            raise ValueError(
                f'{store.path} has the content hash {self.content_hash}, but the settings demand '
                f'{settings.content_hash}; give the cache that was meant, or demand none'
            )

    @property
    def live_calls(self) -> int:
        """Attempts to run a tool so far, rebuilt states included."""
        return self.runner.live_calls

    @property
    def content_hash(self) -> str:
        """Says what the snapshot would answer; the same for the same recorded answers."""
        if not self._content_hash:
            self._content_hash = self._index.content_hash
        return self._content_hash

    def entries(self) -> list[Entry]:
        """Every recorded answer of the snapshot."""
        return list(self._index)

    def open_session(
        self, task_id: str, tools: Sequence[Tool], start: Callable[[], Any], sample: int = 0
    ) -> CachedSession:
        """A session for one attempt at a task."""
        return CachedSession(self, Seat(task_id, sample), tools, start)

    def find(
        self, tool: Tool, arguments: dict[str, Any], state: str = '', seat: Seat = Seat('', 0)
    ) -> Found | None:
        """What is recorded for a call, without running or counting anything."""
        fitted = fit(tool, arguments)
        return self._find(Question(tool, fitted, fitted_key(tool, fitted, state), seat))[0]

    def look_up(self, question: Question) -> Found | None:
        """The recorded answer that may stand in for a call, counted as a hit."""
        found, own_gold_nearest = self._find(question)
        with self._lock:
            self._counts['own_gold_nearest'] += own_gold_nearest
            if found:
                self._hits[found.entry.source] += 1
                leaked = found.tier is Tier.BEST_EFFORT and question.seat.task in found.entry.gold
                self._counts['own_gold_answers'] += leaked
        return found

    def _find(self, question: Question) -> tuple[Found | None, bool]:
        draws, tiers = self.settings.draws_of(question.tool.name), self.settings.tiers
        if draws > 1 and self.settings.mode == 'read_through':
            # A draw that is not recorded yet is run, so that it comes to be recorded.
            return find_draw(self._index, question.key, question.seat, draws), False
        found = find_exact(self._index, question.key, question.seat)
        found = found or find_fuzzy(self._index, question, tiers)
        if found or self.settings.mode != 'replay':
            return found, False
        return find_nearest(self._index, question, tiers)

    def offer(self, key: CallKey, draw: int, result: Result, order: tuple) -> None:
        """A live result, to be committed; of several for one draw the first in order counts."""
        with self._lock:
            known = self._offers.get((key, draw))
            if known is None or order < known[0]:
                self._offers[key, draw] = (order, result)

    def count(self, result: Result) -> None:
        """One more answer of this tier."""
        with self._lock:
            self._counts[result.tier.name.lower()] += 1

    def commit(self) -> dict[str, float]:
        """Ends the step: stores what is new, takes a new snapshot, tells how the step went."""
        with self._lock:
            offers, hits, counts = self._offers, self._hits, self._counts
            self._offers, self._hits, self._counts = {}, Counter(), Counter()
        now = time.time()
        fresh = [
            make_entry(key, draw, result, task=order[0].task, recorded=now)
            for (key, draw), (order, result) in sorted(offers.items(), key=lambda item: item[0])
        ]
        written = self._write(fresh, hits, replace=self.settings.mode == 'record')
        self.flights.clear()
        if self.copies is not None:
            self.copies.commit()
        return _metrics(counts) | {
            'tool_cache/stored': float(written),
            'tool_cache/entries': float(len(self._index)),
            'tool_cache/live_calls': float(self.live_calls),
        }

    def _write(self, fresh: Sequence[Entry], hits: Counter[str], *, replace: bool) -> int:
        if not fresh and not hits:
            return 0
        written = self._store.write(
            fresh, hits=hits, replace=replace, bound=self.settings.entries if fresh else 0
        )
        if self.settings.mode == 'replay' and not fresh:
            return 0  # the snapshot of a replay stays as it was opened
        if written.elsewhere:
            self._index = Index(self._store.load())
        else:
            self._index.add(self._index.merged(fresh, written.added))
            self._index.remove(written.evicted)
        self._content_hash = ''
        return len(written.added)

    def record_results(
        self,
        task_id: str,
        tools: Sequence[Tool],
        pairs: Iterable[tuple[Call | ParseError, Result]],
        provenance: str = 'teacher',
    ) -> dict[str, int]:
        """Stores a demonstration's answers at once, as the task's gold; says what became of each.

        To be called between steps.  What is not stored is counted under its reason.
        """
        fresh, outcome = entries_of(
            task_id, tools, pairs, provenance, draws=self._index.draws, settings=self.settings
        )
        self._write(fresh, Counter(), replace=False)
        return dict(outcome)

    def close(self) -> None:
        """Closes the store; what was not committed is lost."""
        self._store.close()


def _metrics(counts: Counter[str]) -> dict[str, float]:
    answers = sum(counts[tier.name.lower()] for tier in Tier)
    shares = {
        f'tool_cache/{tier.name.lower()}_fraction': counts[tier.name.lower()] / max(answers, 1)
        for tier in Tier
    }
    leaks = {name: float(counts[name]) for name in ('own_gold_nearest', 'own_gold_answers')}
    # Of the calls that nothing recorded answers: what share has its own gold for the nearest.
    unknown = counts[Tier.BEST_EFFORT.name.lower()] + counts[Tier.MISS.name.lower()]
    leaks['leak_fraction'] = counts['own_gold_nearest'] / max(unknown, 1)
    return (
        {'tool_cache/answers': float(answers)}
        | shares
        | {f'tool_cache/{name}': count for name, count in leaks.items()}
    )


def make_tool_cache(
    store: Store | str | Path,
    settings: ToolCacheSettings | None = None,
    execute: ExecuteSettings | None = None,
) -> ToolCache:
    """A tool cache over a store, or over the file at a path; ':memory:' keeps nothing."""
    opened = store if isinstance(store, Store) else Store(store)
    return ToolCache(opened, settings or ToolCacheSettings(), execute or ExecuteSettings())
