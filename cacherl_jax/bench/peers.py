"""Other programs on the same workload: a folder of their scripts, run one by one as subprocesses.

A script runs in its own Python, appends JSON lines to the file that PEER_BENCH_OUT names, and needs
nothing of this project.  Times are compared within one run only: ours are taken before and after
each peer's, so that a busy hour slows all of them alike.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.timing import Timing, span

TORCH, TUNIX = 'env_peers', 'env_peers_tunix'  # folders of Python environments
LONGEST_SECONDS = 1500.0


class Peer(NamedTuple):
    """One variant of one peer: which Python, which script, which words after it."""

    environment: str
    script: str
    words: tuple[str, ...] = ()


PEERS = {
    ('W1', 'S'): (
        Peer(TORCH, 'torch_w1.py', ('--micro', '8')),
        Peer(TUNIX, 'tunix_w1.py', ('--micro', '8')),
    ),
    ('W1', 'M'): (
        Peer(TORCH, 'torch_w1.py', ('--model', 'M', '--micro', '4')),
        Peer(TUNIX, 'tunix_w1.py', ('--model', 'M', '--micro', '4')),
    ),
    ('W2', 'S'): (
        Peer(TORCH, 'torch_w2.py', ('--variant', 'reprefill')),
        Peer(TORCH, 'torch_w2.py', ('--variant', 'reuse')),
        Peer(TORCH, 'torch_w2.py', ('--variant', 'hand', '--cache', 'dynamic')),
        Peer(TORCH, 'torch_w2.py', ('--variant', 'hand', '--cache', 'static')),
        Peer(TUNIX, 'tunix_w2.py'),
    ),
    ('W2', 'M'): (
        Peer(TORCH, 'torch_w2.py', ('--model', 'M', '--variant', 'reprefill')),
        Peer(TORCH, 'torch_w2.py', ('--model', 'M', '--variant', 'hand', '--cache', 'dynamic')),
        Peer(TUNIX, 'tunix_w2.py', ('--model', 'M')),
    ),
    ('W3', 'M'): (
        Peer(TORCH, 'torch_w3.py', ('--variant', 'generate')),
        Peer(TUNIX, 'tunix_w3.py'),
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """Where peers are, if any is to be run."""

    scripts: pathlib.Path | None = None  # folder with torch_w1.py, tunix_w1.py and so on
    environments: pathlib.Path | None = None  # folder with env_peers and env_peers_tunix

    def __post_init__(self):
        if (self.scripts is None) != (self.environments is None):
            raise ValueError(
                'peers need both folders, scripts and environments, '
                f'got {self.scripts} and {self.environments}'
            )

    def chosen(self, workload: str, model: str) -> Sequence[Peer]:
        """The peers of a workload whose environment is there; none where no folder is given."""
        if self.scripts is None:
            return ()
        known = PEERS.get((workload, model), ())
        found = [peer for peer in known if self.python(peer).exists()]
        if not found:
            raise Refusal(
                f'no peer of {workload} on model {model} can run with {self.environments}',
                allowed=f'peers of {sorted(" ".join(pair) for pair in PEERS)}, each with a Python '
                f'environment there: {TORCH} or {TUNIX}',
                remedy='make the environments, or leave the peers out',
            )
        return found

    def python(self, peer: Peer) -> pathlib.Path:
        return self.environments.absolute() / peer.environment / 'bin' / 'python'


class Outcome(NamedTuple):
    """What a peer reached, or why it reached nothing."""

    name: str
    tokens_per_second: float | None
    compile_seconds: float | None = None
    failure: str = ''


def run_peer(peer: Peer, settings: PeerSettings) -> Outcome:
    """Run one peer to its end; a peer that fails is told of, not raised."""
    name = ' '.join((peer.script, *peer.words))
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder) / 'rows.jsonl'
        command = [str(settings.python(peer)), peer.script, *peer.words]
        environment = os.environ | {'PEER_BENCH_OUT': str(told)}
        environment.pop('PYTHONPATH', None)  # the peer's packages are its own
        try:
            done = subprocess.run(
                command,
                cwd=settings.scripts,
                env=environment,
                capture_output=True,
                text=True,
                errors='replace',
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Outcome(name, None, failure=f'not done after {LONGEST_SECONDS:.0f} seconds')
        if done.returncode or not told.exists():
            last = done.stderr.strip().rsplit('\n', 1)[-1]
            return Outcome(name, None, failure=f'exit status {done.returncode}: {last}')
        return outcome_of(json.loads(told.read_text().splitlines()[-1]))


def outcome_of(row: dict[str, Any]) -> Outcome:
    """One line of a peer: its name with its variant, and the median of its rates."""
    name = f'{row["peer"]} {row["variant"]}'
    return Outcome(name, row['median'], row['compile_s'], row.get('note') or '')


def against_peers(
    work: Callable[[], Any], repetitions: int, peers: Sequence[Peer], settings: PeerSettings
) -> tuple[Timing, list[Outcome]]:
    """Ours, a peer, ours, the next peer, ours ...: all of ours are one timing."""
    first, later, outcomes = span(work), [span(work) for _ in range(repetitions)], []
    for peer in peers:
        outcomes.append(run_peer(peer, settings))
        later += [span(work) for _ in range(repetitions)]
    return Timing(first=first, later=tuple(later)), outcomes
