"""One attempt to run a function within a time limit, in a thread of its own or on the event loop.

A function cannot be stopped from outside.  One that is out of time is left behind in a daemon
thread, which hangs neither the run nor its exit, and whatever it still returns goes nowhere.
"""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

from cacherl_jax.tools.observation import as_text, describe, failure
from cacherl_jax.tools.tool import Result, Status, Unavailable

LOOP_PATIENCE_SECONDS = 0.5  # an event loop that is silent for longer is blocked and given up


class Attempts:
    """Runs functions side by side, at most `workers` at once, each within its time limit."""

    def __init__(self, workers: int):
        self._free = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, function: Callable, state: tuple, arguments: Mapping, seconds: float) -> Result:
        """What came of `function(*state, **arguments)`; never raises for what the function does."""
        work = functools.partial(function, *state, **arguments)
        with self._free:
            if _is_async(function):
                return self._on_loop(work, seconds)
            return _in_thread(work, seconds)

    def _on_loop(self, work: Callable, seconds: float) -> Result:
        loop = self._running_loop()
        pending = asyncio.run_coroutine_threadsafe(_settle(work), loop)
        futures.wait([pending], seconds)
        if pending.done():
            return pending.result()
        pending.cancel()
        heartbeat = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
        futures.wait([heartbeat], LOOP_PATIENCE_SECONDS)
        if not heartbeat.done():
            with self._lock:
                self._loop = None if self._loop is loop else self._loop
        return out_of_time(seconds)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
            return self._loop


def out_of_time(seconds: float) -> Result:
    """The result of a call that took longer than this."""
    return failure(Status.TIMEOUT, limit_seconds=round(seconds, 3))


def _is_async(function: Callable) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(function, '__call__', None)  # noqa: B004  an instance may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _in_thread(work: Callable, seconds: float) -> Result:
    outcome: futures.Future[Result] = futures.Future()

    def body():
        outcome.set_result(_outcome(work))

    threading.Thread(target=body, daemon=True).start()
    futures.wait([outcome], seconds)
    return outcome.result() if outcome.done() else out_of_time(seconds)


def _outcome(work: Callable) -> Result:
    # The tool boundary: whatever a tool raises, SystemExit included, is an observation.
    try:
        value = work()
        if inspect.isawaitable(value):
            value = asyncio.run(_wait_for(value))
        return Result(status=Status.OK, text=as_text(value))
    except BaseException as error:  # noqa: BLE001
        return _raised(error)


async def _settle(work: Callable) -> Result:
    try:
        return Result(status=Status.OK, text=as_text(await work()))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001
        return _raised(error)


async def _wait_for(value: Any) -> Any:
    return await value


def _raised(error: BaseException) -> Result:
    """The status follows from the kind of exception, never from its words."""
    if isinstance(error, TimeoutError):
        return failure(Status.TIMEOUT, message=_words(error))
    if isinstance(error, (Unavailable, ConnectionError)):
        return failure(Status.UNAVAILABLE, message=_words(error))
    return failure(Status.TOOL_ERROR, message=_words(error))


def _words(error: BaseException) -> str:
    try:
        return describe(error)
    except Exception:  # noqa: BLE001  the exception's own __str__ is a tool's code as well
        return type(error).__name__
