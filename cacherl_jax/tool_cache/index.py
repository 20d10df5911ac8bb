"""All recorded answers in memory, found by key, by likeness and by nearness.  Shelves per tool and
state, so that no look-up ever walks through the answers of other tools."""

import dataclasses
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from rapidfuzz import fuzz, process

from cacherl_jax.tool_cache.alike import signature
from cacherl_jax.tool_cache.entry import Entry
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tool_cache.tiers import Compare, by_letters, closeness, likeness, split
from cacherl_jax.tools.tool import Tool

BEST_EFFORT_CANDIDATES = 32  # the nearest by letters; only these are compared by argument


class Frame:
    """The calls of a shelf that agree in everything but free text, by what their texts speak of."""

    def __init__(self):
        self._calls: dict[tuple[str, ...], list[tuple[tuple[str, ...], str]]] = {}

    def add(self, texts: tuple[str, ...], spelling: str) -> None:
        """One more call."""
        self._calls.setdefault(tuple(map(signature, texts)), []).append((texts, spelling))

    def candidates(self, texts: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
        """(free texts, spelling) of the calls worth reading word by word; no other is alike."""
        return self._calls.get(tuple(map(signature, texts)), [])


class Shelf:
    """The calls recorded of one tool in one state."""

    def __init__(self):
        self._values: dict[str, dict[str, Any] | None] = {}  # by spelling; read when needed
        self._unframed: list[str] = []
        self._frames: dict[str, Frame] = {}
        self._lock = threading.Lock()  # several sessions may look for the first time at once

    def add(self, spelling: str) -> None:
        """One more call; known ones stay where they are."""
        if spelling not in self._values:
            self._values[spelling] = None
            self._unframed.append(spelling)

    def drop(self, spelling: str) -> None:
        """The call's last answer is gone."""
        del self._values[spelling]
        self._unframed, self._frames = list(self._values), {}

    def _value(self, spelling: str) -> dict[str, Any]:
        value = self._values[spelling]
        if value is None:
            value = self._values[spelling] = json.loads(spelling)
        return value

    def _frame_new(self, tool: Tool) -> None:
        while self._unframed:
            spelling = self._unframed[-1]
            frame, texts = split(tool, self._value(spelling))
            self._frames.setdefault(frame, Frame()).add(texts, spelling)
            self._unframed.pop()

    def like(self, tool: Tool, fitted: dict[str, Any], threshold: float) -> list:
        """(similarity, spelling) of the calls that differ in free text only, most alike first."""
        with self._lock:
            self._frame_new(tool)
        frame, texts = split(tool, fitted)
        if not texts or frame not in self._frames:
            return []
        candidates = self._frames[frame].candidates(texts)
        found = ((likeness(texts, others), spelling) for others, spelling in candidates)
        return _nearest_first(pair for pair in found if pair[0] >= max(threshold, 1e-9))

    def near(
        self, fitted: dict[str, Any], spelling: str, floor: float, compare: Compare = by_letters
    ) -> list:
        """(similarity, spelling) of the nearest calls above the floor, nearest first."""
        candidates = process.extract(
            spelling, list(self._values), scorer=fuzz.ratio, limit=BEST_EFFORT_CANDIDATES
        )
        found = ((closeness(fitted, self._value(each), compare), each) for each, _, _ in candidates)
        return _nearest_first(pair for pair in found if pair[0] >= floor)


def _nearest_first(scored: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Equals stand in the order of their spelling, so that no tie is left to chance."""
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


class Index:
    """Entries by key, each key with its draws in order."""

    def __init__(self, entries: Iterable[Entry] = ()):
        self._draws: dict[CallKey, tuple[Entry, ...]] = {}
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self.add(entries)

    def __len__(self) -> int:
        return sum(map(len, self._draws.values()))

    def __iter__(self) -> Iterator[Entry]:
        return (entry for draws in self._draws.values() for entry in draws)

    def draws(self, key: CallKey) -> tuple[Entry, ...]:
        """All recorded answers to exactly this call; empty if there are none."""
        return self._draws.get(key, ())

    def shelf(self, key: CallKey) -> Shelf:
        """What is recorded of the same tool in the same state."""
        return self._shelves.get((key.identity, key.state)) or Shelf()

    def add(self, entries: Iterable[Entry]) -> None:
        """Puts entries in; one of the same key and draw is replaced."""
        for entry in entries:
            known = self._draws.get(entry.key)
            if known:
                others = [each for each in known if each.draw != entry.draw]
                every = sorted([*others, entry], key=lambda each: each.draw)
                self._draws[entry.key] = tuple(every)
                continue
            self._draws[entry.key] = (entry,)
            place = entry.key.identity, entry.key.state
            if place not in self._shelves:
                self._shelves[place] = Shelf()
            self._shelves[place].add(entry.key.arguments)

    def merged(self, fresh: Iterable[Entry], added: Iterable[Entry]) -> Iterator[Entry]:
        """What the index must hold after a write: entries that were not added lend their gold."""
        new = {entry.source for entry in added}
        for entry in fresh:
            old = next((each for each in self.draws(entry.key) if each.draw == entry.draw), entry)
            kept = entry if entry.source in new else old
            yield dataclasses.replace(kept, gold=old.gold | entry.gold)

    def remove(self, gone: Iterable[tuple[CallKey, int]]) -> None:
        """Takes entries out, by key and draw; those that are not here are gone already."""
        for key, draw in gone:
            if key not in self._draws:
                continue
            self._draws[key] = tuple(each for each in self._draws[key] if each.draw != draw)
            if not self._draws[key]:
                del self._draws[key]
                self._shelves[key.identity, key.state].drop(key.arguments)

    @property
    def content_hash(self) -> str:
        """Equal for caches that give the same answers; times and hit counts do not count."""
        lines = sorted(entry.content for entry in self)
        return hashlib.sha256('\n'.join(lines).encode()).hexdigest()
