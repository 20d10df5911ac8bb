"""Copies of environments in states that were reached before, for other attempts to go on from.

A state is known by the calls that led to it (`key.next_state`).  As with answers, what a step adds
is found after its commit only, so that how often a tool runs does not depend on who came first.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple


class Copy(NamedTuple):
    """A state that nobody else holds, and how to copy it."""

    state: Any
    fork: Callable[[Any], Any]


class StateCopies:
    """At most so many states; those that were longest of no use leave first."""

    def __init__(self, most: int):
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, Copy] = {}
        self._fresh: dict[str, Copy] = {}
        self._used: dict[str, int] = {}  # the number of the commit before which it was of use
        self._commits = 0

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, name: str) -> Any | None:
        """A copy of the state of this name; None where none was committed."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is None:
                return None
            self._used[name] = self._commits + 1
            return kept.fork(kept.state)

    def offer(self, name: str, state: Any, fork: Callable[[Any], Any]) -> None:
        """Keeps a copy at the next commit; of too many, those whose names come first."""
        with self._lock:
            full = len(self._fresh) >= self._most
            if name in self._kept or name in self._fresh or (full and name > max(self._fresh)):
                return
            self._fresh[name] = Copy(fork(state), fork)
            if full:
                del self._fresh[max(self._fresh)]

    def commit(self) -> None:
        """Ends the step."""
        with self._lock:
            self._commits += 1
            self._kept |= self._fresh
            self._used |= dict.fromkeys(self._fresh, self._commits)
            self._fresh = {}
            surplus = len(self._kept) - self._most
            oldest = sorted(self._kept, key=lambda name: (self._used[name], name))
            for name in oldest[: max(surplus, 0)]:
                del self._kept[name], self._used[name]
