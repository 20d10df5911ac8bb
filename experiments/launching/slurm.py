"""Begins jobs in a SLURM queue, by way of submitit; each runs launch.sh on the machine it is given.

There launch.sh finds the accelerator by itself.  A job that is preempted or runs out of time saves,
and is put back into the queue.  Whoever submitted may leave: the same command finds what is queued,
running or ended under the number in slurm.json of the run's folder.
"""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import select
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

from cacherl_jax.run.ending import State
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal
from experiments.launching.side_by_side import Job

INSTALL = 'pip install submitit==1.5.4'
LOOK_SECONDS = 20.0
ENDED = {'BOOT_FAIL', 'CANCELLED', 'COMPLETED', 'DEADLINE', 'FAILED', 'NODE_FAIL', 'OUT_OF_MEMORY'}
ENDED |= {'TIMEOUT'}  # and a job that was preempted comes again
LAUNCH = pathlib.Path(__file__).parents[2] / 'launch.sh'


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """What each job asks the queue for."""

    partition: str = ''  # not given: the default one
    gpus: int = 1
    cpus: int = 8
    memory_gib: int = 32
    hours: float = 12.0  # then it saves and queues again, three times at most
    more: tuple[str, ...] = ()  # further sbatch options, such as account=NAME

    def __post_init__(self):
        if self.cpus < 1 or self.memory_gib < 1 or self.hours <= 0 or self.gpus < 0:
            raise ValueError(f'cpus, memory_gib and hours must be above 0, got {self}')
        if wrong := [each for each in self.more if '=' not in each]:
            raise ValueError(f'slurm.more holds NAME=VALUE, got {wrong}')


class Run:
    """The job itself, on the machine it was given: called there, by submitit."""

    def __init__(self, command: tuple[str, ...], output: pathlib.Path):
        self.command, self.output = command, output
        self.process: subprocess.Popen | None = None

    def __call__(self) -> int:
        """Runs the command; what it says goes to the output."""
        # The machine that submitted may have had no accelerator, and launch.sh said so there.
        kept = {n: x for n, x in os.environ.items() if (n, x) != ('JAX_PLATFORMS', 'cpu')}
        with self.output.open('a', encoding='utf-8') as output:
            print(f'$ {shlex.join(self.command)}', file=output, flush=True)
            self.process = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=kept,
                # SLURM warns all that a job has begun; only `checkpoint` is to act on it.
                preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
            )
            return self.process.wait()

    def checkpoint(self) -> Any:
        """Out of time or preempted: the run saves, and goes on from there when it comes again."""
        import submitit

        if self.process is not None:
            # Called by a signal that came in the middle of `wait`, whose lock a second one needs.
            with contextlib.suppress(ProcessLookupError):
                ended = os.pidfd_open(self.process.pid)
                os.kill(self.process.pid, signal.SIGTERM)
                select.select([ended], [], [])
        return submitit.helpers.DelayedSubmission(Run(self.command, self.output))


class Queued:
    """A job in the queue, until it has ended."""

    def __init__(self, job: Any):
        self.job, self.code, self._looked = job, None, time.monotonic()

    def poll(self) -> int | None:
        """Its code; 1 where the queue lost it."""
        if self.code is None and (self.job.done() or self._lost()):
            import submitit

            told = self.job.paths.result_pickle.exists()
            try:
                self.code = self.job.result() if told else 1
            except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError):
                self.code = 1
        return self.code

    def _lost(self) -> bool:
        """Where SLURM keeps no accounts, `done` cannot tell a job that was cancelled."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        return not in_queue(self.job.job_id)

    def terminate(self) -> None:
        """Lets go of it: it stays in the queue."""
        if self.poll() is None:
            print(f'job {self.job.job_id} goes on; scancel ends it', file=sys.stderr)
            self.code = 0

    def wait(self) -> int:
        """It has ended or was let go of."""
        return self.code


class Slurm:
    """`begin` submits a job, or finds it again."""

    def __init__(
        self, settings: SlurmSettings, folder: pathlib.Path, launch: pathlib.Path = LAUNCH
    ):
        try:
            import submitit
        except ModuleNotFoundError:
            raise Refusal(f'SLURM is asked by way of submitit; get it with: {INSTALL}') from None
        logging.getLogger('submitit').setLevel(
            logging.ERROR
        )  # it warns where there are no accounts
        self._submitit, self._folder, self._launch = submitit, folder, launch
        try:
            self._executor = submitit.SlurmExecutor(folder=folder)
        except RuntimeError as error:
            raise Refusal(f'there is no SLURM on this machine: {error}') from None
        self._executor.update_parameters(**parameters(settings))

    def begin(self, job: Job) -> Queued:
        """A place in the queue; the one that it has where it was submitted before."""
        job.prepare()
        said = job.folder / 'slurm.json'
        if said.exists():
            known = json.loads(said.read_text(encoding='utf-8'))['job']
            found = self._submitit.SlurmJob(folder=self._folder, job_id=known)
            goes_on = in_queue(known) and not found.done(force_check=True)
            if (
                goes_on or job.state is State.FINISHED
            ):  # it may have ended while the queue was asked
                return Queued(found)
        output = (job.folder / 'output.txt').resolve()
        made = self._executor.submit(Run(slurm_command(job, self._launch), output))
        write_atomically(said, json.dumps({'job': made.job_id}) + '\n')
        return Queued(made)


def in_queue(number: str) -> bool:
    """Whether a job waits or runs; those that ended leave the list, sooner or later."""
    asked = ('squeue', '--noheader', '--jobs', number, '--format', '%T')
    told = subprocess.run(asked, capture_output=True, text=True).stdout.split()
    return any(state not in ENDED for state in told)


def slurm_command(job: Job, launch: pathlib.Path = LAUNCH) -> tuple[str, ...]:
    """What runs on the machine that the queue gives."""
    return ('bash', str(launch), 'train', *job.arguments, '--run-dir', str(job.folder.resolve()))


def parameters(settings: SlurmSettings) -> dict[str, Any]:
    """In the words of submitit."""
    told: dict[str, Any] = {
        'job_name': 'cacherl_jax',
        'cpus_per_task': settings.cpus,
        'mem': f'{settings.memory_gib}GB',
        'time': max(1, round(60 * settings.hours)),
        'additional_parameters': dict(each.split('=', 1) for each in settings.more),
    }
    if settings.gpus:
        told['gres'] = f'gpu:{settings.gpus}'
    return told | ({'partition': settings.partition} if settings.partition else {})
