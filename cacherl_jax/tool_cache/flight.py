"""Identical calls run once: the first runs, the others get its outcome, exceptions included.

An outcome is kept until `clear`, so that within a step it does not matter whether a call came while
the first one was running or after it.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from cacherl_jax.tools.tool import Result


class Flights:
    """Calls under way, and those that came back since the last `clear`."""

    def __init__(self):
        self._lock = threading.Lock()
        self._flights: dict[Hashable, Future[Result]] = {}

    def once(self, name: Hashable, run: Callable[[], Result]) -> tuple[Result, bool]:
        """The result, and whether this caller was the one to run."""
        with self._lock:
            flight = self._flights.get(name)
            first = flight is None
            if first:
                flight = self._flights[name] = Future()
        if first:
            with contextlib.ExitStack() as stack:
                stack.push(functools.partial(_crash, flight))
                flight.set_result(run())
        return flight.result(), first

    def clear(self) -> None:
        """Forgets what came back; calls under way stay."""
        with self._lock:
            self._flights = {name: each for name, each in self._flights.items() if not each.done()}


def _crash(flight: Future, _kind: type | None, error: BaseException | None, _trace: object) -> bool:
    """Hands an exception to all who wait; the first caller meets it there as well."""
    if error is not None:
        flight.set_exception(error)
    return error is not None
