"""How long work takes, what of it was compiling, and how busy others kept the machine meanwhile."""

import dataclasses
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

PROCESSORS = pathlib.Path('/proc/stat')
PROCESS = pathlib.Path('/proc/self/status')
COMPILED = '/jax/core/compile/backend_compile_duration'  # the event of one program made


class Span(NamedTuple):
    """One piece of work, timed."""

    seconds: float
    others_fraction: float | None  # of all processors, used by other processes; None: not told


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """The first call, which compiles, and the ones after it, which are the measurement."""

    first: Span
    later: tuple[Span, ...]

    def __post_init__(self):
        if not self.later:
            raise ValueError('a timing needs a call after the first one, got none')

    @property
    def seconds(self) -> float:
        """The median of the later calls."""
        return statistics.median(span.seconds for span in self.later)

    @property
    def compile_seconds(self) -> float:
        """What the first call took longer."""
        return max(0.0, self.first.seconds - self.seconds)

    @property
    def others_fraction(self) -> float | None:
        """The median share of the machine that others used during the later calls."""
        told = [span.others_fraction for span in self.later if span.others_fraction is not None]
        return statistics.median(told) if told else None


def span(work: Callable[[], Any]) -> Span:
    """Time `work()` until the arrays it returns are there."""
    busy, own, started = _busy_seconds(), _own_seconds(), time.perf_counter()
    jax.block_until_ready(work())
    seconds = time.perf_counter() - started
    if busy is None:
        return Span(seconds, None)
    foreign = _busy_seconds() - busy - (_own_seconds() - own)
    return Span(seconds, max(0.0, foreign / (seconds * os.cpu_count())))


def timed(work: Callable[[], Any], repetitions: int) -> Timing:
    """One call that may compile, then `repetitions` that should not."""
    return Timing(first=span(work), later=tuple(span(work) for _ in range(repetitions)))


@contextmanager
def counting_programs() -> Iterator[list[float]]:
    """Yields a list that gets the seconds of every program compiled inside."""
    made: list[float] = []

    def listen(event: str, seconds: float, **_) -> None:
        if event == COMPILED:
            made.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield made
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def peak_bytes() -> int | None:
    """Most that was held at once: by the device, or by the process where it computes itself."""
    told = jax.devices()[0].memory_stats()
    if told:
        return told['peak_bytes_in_use']
    if not PROCESS.exists():
        return None
    lines = PROCESS.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))


def _busy_seconds() -> float | None:
    """Processor seconds that all processes used since the start, stolen ones too; on Linux."""
    if not PROCESSORS.exists():
        return None
    words = PROCESSORS.read_text().split('\n', 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, *others = map(int, words)
    return (user + nice + system + sum(others)) / os.sysconf('SC_CLK_TCK')


def _own_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
