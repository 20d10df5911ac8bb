"""Runs jobs as processes, some at a time, until all have ended or a stop is asked for.

What a run says goes to output.txt in its folder.  A lock there is held by the run's own process, so
that a run which outlived whoever began it is never begun a second time.
"""

import dataclasses
import enum
import fcntl
import os
import pathlib
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence

from cacherl_jax.run.ending import State, pause_of, why_unfinished
from cacherl_jax.run.refusal import Refusal
from experiments.ablations.jobs import Job

POLL_SECONDS = 0.2


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


def run_jobs(
    jobs: Sequence[Job], parallel: int, tell: Callable[[Ending], None], stop: Callable[[], bool]
) -> list[Ending]:
    """Runs every job that has no result, at most `parallel` at a time; `tell` hears of each end.

    A stop is passed on to the runs, which save and end; then this returns what has ended so far.
    Raises Refusal where somebody else works in a run's folder, after ending those begun here.
    """
    different = {job.folder: job for job in jobs}.values()
    waiting = [job for job in different if job.state is not State.FINISHED]
    running: dict[subprocess.Popen, Job] = {}
    endings: list[Ending] = []
    try:
        while waiting or running:
            while waiting and len(running) < parallel and not stop():
                job = waiting.pop(0)
                running[_begin(job)] = job
            if stop():
                waiting.clear()
                _end(running)
            for process in [process for process in running if process.poll() is not None]:
                endings.append(ending_of(running.pop(process), process.returncode))
                tell(endings[-1])
            time.sleep(POLL_SECONDS if running else 0)
    finally:
        _end(running)
    return endings


def _end(processes: Iterable[subprocess.Popen]) -> None:
    """Asks all to save and end, then waits for them."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait()


def _begin(job: Job) -> subprocess.Popen:
    job.write_settings()
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
