"""Runs jobs, some at a time, until all have ended or a stop is asked for; here, as processes.

What a run says goes to output.txt in its folder.  A lock there is held by the run's own process, so
that a run which outlived whoever began it is never begun a second time.  `slurm` and `hosts` begin
jobs elsewhere.
"""

import contextlib
import dataclasses
import enum
import fcntl
import os
import pathlib
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from cacherl_jax.run.ending import State, pause_of, why_unfinished
from cacherl_jax.run.refusal import Refusal

POLL_SECONDS = 0.2


class Job(Protocol):
    """One run."""

    @property
    def folder(self) -> pathlib.Path:
        """Where it writes."""

    @property
    def command(self) -> tuple[str, ...]:
        """What begins it on this machine, or goes on with it."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What follows `launch.sh train` elsewhere, but for --run-dir."""

    @property
    def state(self) -> State:
        """How far it has come."""

    def prepare(self) -> None:
        """Makes the folder, with what the command reads.  Refusal where it is another run's."""


class Running(Protocol):
    """A job that was begun: a process of this machine, or what stands for one elsewhere."""

    def poll(self) -> int | None:
        """The code that it ended with; None while it goes on."""

    def terminate(self) -> None:
        """Asks it to save and end, or lets go of it where it can go on alone."""

    def wait(self) -> int:
        """Until it has ended, or was let go of."""


class Ended(enum.StrEnum):
    """What became of a job."""

    FINISHED = 'finished'
    PAUSED = 'paused'
    STOPPED = 'stopped'
    FAILED = 'failed'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    """A job that has ended, and what a person should know of it where it did not finish."""

    job: Job
    ended: Ended
    told: str = ''


def ending_of(job: Job, code: int) -> Ending:
    """By what the folder holds; a code of 0 alone says nothing."""
    if job.state is State.FINISHED:
        return Ending(job=job, ended=Ended.FINISHED)
    ended = Ended.FAILED if code else Ended.PAUSED if pause_of(job.folder) else Ended.STOPPED
    told = why_unfinished(job.folder, code)
    return Ending(job=job, ended=ended, told=f'{told}; what it said: {job.folder}/output.txt')


def begin_here(job: Job) -> subprocess.Popen:
    """A process of this machine, which holds the lock of its folder."""
    job.prepare()
    with (
        (job.folder / 'lock').open('w', encoding='utf-8') as lock,
        (job.folder / 'output.txt').open('a', encoding='utf-8') as output,
    ):
        _hold(lock, job.folder)
        print(f'$ {shlex.join(job.command)}', file=output, flush=True)
        # In a session of its own a Ctrl-C at the terminal reaches it once, by way of this process.
        return subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[lock.fileno()],
            start_new_session=True,
            env=_environment(job),
        )


class Cores:
    """Begins jobs here, so many at a time, each on cores of its own.

    A run's threads wait for one another in busy loops, which cost the other runs of their cores.
    """

    def __init__(self, parallel: int):
        known = hasattr(os, 'sched_getaffinity')  # Linux
        cores = sorted(os.sched_getaffinity(0)) if known else []
        enough = parallel <= len(cores)
        self.shares = [frozenset(cores[place::parallel]) for place in range(parallel * enough)]
        self.held: dict[frozenset[int], subprocess.Popen] = {}

    def begin(self, job: Job) -> subprocess.Popen:
        """As `begin_here`; where there are fewer cores than jobs, on any."""
        process = begin_here(job)
        for share in self.shares:
            if share not in self.held or self.held[share].poll() is not None:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(process.pid, share)
                self.held[share] = process
                break
        return process


def _environment(job: Job) -> dict[str, str]:
    """Rows have most programs in common: a run need not compile what another one did."""
    compiled = {
        'JAX_COMPILATION_CACHE_DIR': str(job.folder.parents[1] / 'compiled'),
        'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    }
    return compiled | os.environ


def _hold(lock, folder: pathlib.Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refusal(
            f'another process works in {folder}',
            remedy='wait until it has ended, or end it; then give the same command again',
        ) from None


def run_jobs(
    jobs: Iterable[Job],
    parallel: int,
    tell: Callable[[Ending], None],
    stop: Callable[[], bool],
    begin: Callable[[Job], Running] | None = None,
) -> list[Ending]:
    """Runs every job that has no result, at most `parallel` at a time; `tell` hears of each end.

    A job is taken from `jobs` when there is room for it, so that what it is may depend on those
    that have ended.  A stop is passed on to the runs, which save and end; then this returns what
    has ended so far.  Raises Refusal where somebody else works in a run's folder, after ending
    those begun here.  Where nothing else is said they begin on this machine (`Cores`).
    """
    begin = begin or Cores(parallel).begin
    waiting, taken, more = iter(jobs), set(), True
    running: dict[Running, Job] = {}
    endings: list[Ending] = []
    try:
        while more or running:
            while more and len(running) < parallel:
                job = None if stop() else next(waiting, None)
                more = job is not None
                if more and job.folder not in taken and job.state is not State.FINISHED:
                    running[begin(job)] = job
                    taken.add(job.folder)
            if stop():
                _end(running)
            for one in [one for one in running if one.poll() is not None]:
                endings.append(ending_of(running.pop(one), one.poll()))
                tell(endings[-1])
            time.sleep(POLL_SECONDS if running else 0)
    finally:
        _end(running)
    return endings


def _end(running: Iterable[Running]) -> None:
    """Asks all to save and end, then waits for them."""
    for one in running:
        one.terminate()
    for one in running:
        one.wait()


def room_for(parallel: int, run_gib: float) -> int:
    """How many runs the free memory holds, at least one and at most as many as asked for."""
    free = free_gib()
    return parallel if free is None else max(1, min(parallel, int(free / run_gib)))


def free_gib() -> float | None:
    """Memory that can be had without swapping, where the system tells."""
    try:
        lines = pathlib.Path('/proc/meminfo').read_text(encoding='utf-8').splitlines()
    except OSError:
        return None
    kib = dict(line.split(':') for line in lines).get('MemAvailable')
    return int(kib.split()[0]) / 2**20 if kib else None
