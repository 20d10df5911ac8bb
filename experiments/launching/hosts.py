"""Runs jobs on machines that ssh knows, TPU hosts above all: one at a time on each.

The project lies there too, and its launch.sh does the rest.  What a run says comes back while it
goes on, and its folder when it has ended, checkpoints included: it may go on at another host.
Hosts that share this folder are told by the file host.txt, which is written on this side only.
"""

import dataclasses
import pathlib
import shlex
import signal
import subprocess
import tarfile
import tempfile

from cacherl_jax.run.refusal import Refusal
from experiments.launching.side_by_side import Job

TAKEN = 75  # code of a host whose run's folder somebody else works in
SSH = ('ssh', '-o', 'BatchMode=yes')


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostSettings:
    """Where jobs run."""

    names: tuple[str, ...] = ()  # as ssh knows them
    folder: str = ''  # of the project there; not given: the same path as here

    def __post_init__(self):
        if len(set(self.names)) < len(self.names):
            raise ValueError(f'hosts.names must differ, got {self.names}')


class Hosts:
    """`begin` takes the next free host."""

    def __init__(self, settings: HostSettings, project: pathlib.Path):
        self.free, self.project = list(settings.names), project
        self.there = settings.folder or str(project)

    def place(self, job: Job) -> str:
        """The run's folder as the project knows it, here and there."""
        try:
            return str(job.folder.resolve().relative_to(self.project))
        except ValueError:
            raise Refusal(
                f'{job.folder} lies outside of the project, and hosts know only that',
                remedy=f'give an --out within {self.project}',
            ) from None

    def begin(self, job: Job) -> 'RemoteRun':
        """The job on a free host, with what is here of its folder where that host has nothing."""
        job.prepare()
        place, host = self.place(job), self.free.pop(0)
        (job.folder / 'host.txt').write_text(f'{host}\n', encoding='utf-8')
        with (job.folder / 'output.txt').open('a', encoding='utf-8') as output:
            print(f'$ {" ".join(self.command(job, host))}', file=output, flush=True)
            self._send(host, place)
            process = subprocess.Popen(
                self.command(job, host),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return RemoteRun(self, process, host, place)

    def command(self, job: Job, host: str) -> list[str]:
        """What begins the job.  The lock is the run's own, so that none is begun a second time."""
        place = shlex.quote(self.place(job))
        text = (
            f'cd {shlex.quote(self.there)} && mkdir -p {place} && exec 8>{place}/lock && '
            f'{{ flock -n 8 || exit {TAKEN}; }} && echo $$ >{place}/pid && '
            f'exec ./launch.sh train {shlex.join(job.arguments)} --run-dir {place}'
        )
        return [*SSH, host, text]

    def tell(self, host: str, text: str, **options) -> subprocess.CompletedProcess:
        """Runs a line of shell in the project's folder there."""
        whole = f'cd {shlex.quote(self.there)} && {text}'
        return subprocess.run([*SSH, host, whole], **options)

    def _send(self, host: str, place: str) -> None:
        quoted, left_out = shlex.quote(place), ('host.txt', 'output.txt')
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode='w') as archive:
                archive.add(
                    self.project / place,
                    place,
                    filter=lambda item: None if pathlib.Path(item.name).name in left_out else item,
                )
            packed.seek(0)
            self.tell(host, f'{{ [ -e {quoted} ] || tar -xf -; }}', stdin=packed)

    def fetch(self, host: str, place: str) -> None:
        """The run's folder, where the host does not share it."""
        quoted = shlex.quote(place)
        with tempfile.TemporaryFile() as packed:
            pack = f'tar -cf - --exclude=lock --exclude=pid {quoted}'
            text = f'{{ [ -e {quoted}/host.txt ] || {pack}; }}'
            self.tell(host, text, stdin=subprocess.DEVNULL, stdout=packed)
            packed.seek(0)
            if packed.read(1):
                packed.seek(0)
                with tarfile.open(fileobj=packed, mode='r') as archive:
                    archive.extractall(self.project, filter='data')


class RemoteRun:
    """A job on a host, until its folder is here again."""

    def __init__(self, hosts: Hosts, process: subprocess.Popen, host: str, place: str):
        self.hosts, self.process, self.host, self.place = hosts, process, host, place
        self.back = False

    def poll(self) -> int | None:
        """Its code, once its folder has come back.  Refusal where somebody else works there."""
        code = self.process.poll()
        if code is None or self.back:
            return code
        self.back = True
        self.hosts.free.append(self.host)
        if code == TAKEN:
            raise Refusal(
                f'another process works in {self.place} on {self.host}',
                remedy='wait until it has ended, or end it; then give the same command again',
            )
        self.hosts.fetch(self.host, self.place)
        return code

    def terminate(self) -> None:
        """Asks the run there to save and end."""
        if self.process.poll() is None:
            ask = f'kill -{signal.SIGTERM.value} "$(cat {shlex.quote(self.place)}/pid)"'
            self.hosts.tell(self.host, ask, stdin=subprocess.DEVNULL)

    def wait(self) -> int:
        """Until it has ended and is back."""
        self.process.wait()
        return self.poll()
