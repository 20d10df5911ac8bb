"""What a benchmark found: one table for people, one object for programs."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from cacherl_jax.bench.peers import Outcome
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.terminal import print_table
from cacherl_jax.run.timing import Timing

COLUMNS = ('', 'tokens/s', 'ours/theirs', 'compile s', 'peak MB', 'of matmul', 'of roofline')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One workload on one model, ours and its peers' in one run."""

    workload: str
    model: str
    variant: str  # ours, in a few words
    tokens: int  # that one call does
    timing: Timing
    matmul_seconds: float  # of the least arithmetic, at the measured rate of these products
    floor_seconds: float  # the least time: arithmetic, or reading memory where that takes longer
    peak_bytes: int | None  # held at once since the process began; None where that is not told
    peers: Sequence[Outcome] = ()

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.timing.seconds

    @property
    def matmul_share(self) -> float:
        return self.matmul_seconds / self.timing.seconds

    @property
    def roofline_share(self) -> float:
        return self.floor_seconds / self.timing.seconds

    def plain(self) -> dict[str, Any]:
        """For a JSON file."""
        reached = {peer.name: peer.tokens_per_second for peer in self.peers}
        return {
            'workload': self.workload,
            'model': self.model,
            'ours_tokens_per_second': self.tokens_per_second,
            'peers': {name: rate for name, rate in reached.items() if rate is not None},
            'roofline_share': self.roofline_share,
            'compile_seconds': self.timing.compile_seconds,
        }


def show(found: Sequence[Measured]) -> None:
    """One table: ours, and below it each peer with the ratio of ours to it."""
    for each in found:
        title = f'{each.workload} on model {each.model}: {each.variant}'
        rows = [_ours(each), *(_theirs(each, peer) for peer in each.peers)]
        print_table(title, COLUMNS, rows)
        print(_quiet(each.timing))
        for peer in each.peers:
            if peer.failure and peer.tokens_per_second is None:
                print(f'{peer.name} failed: {peer.failure}')


def write(found: Sequence[Measured], path: pathlib.Path | None) -> None:
    """The objects as JSON; one alone stands for itself."""
    if path:
        plain = [each.plain() for each in found]
        write_atomically(path, json.dumps(plain[0] if len(plain) == 1 else plain, indent=2) + '\n')


def _ours(each: Measured) -> list:
    peak = None if each.peak_bytes is None else each.peak_bytes / 1e6
    compiled = each.timing.compile_seconds
    shares = f'{each.matmul_share:.0%}', f'{each.roofline_share:.0%}'
    return ['ours', each.tokens_per_second, None, compiled, peak, *shares]


def _theirs(each: Measured, peer: Outcome) -> list:
    rate = peer.tokens_per_second
    ratio = None if rate is None else f'{each.tokens_per_second / rate:.2f}'
    return [peer.name, rate, ratio, peer.compile_seconds, None, None, None]


def _quiet(timing: Timing) -> str:
    fastest, slowest = (pick(span.seconds for span in timing.later) for pick in (min, max))
    told = f'{len(timing.later)} calls, {fastest:.3g} to {slowest:.3g} seconds'
    if timing.others_fraction is None:
        return f'{told}; how busy others kept the machine is not known here'
    return f'{told}; others used {timing.others_fraction:.0%} of the machine meanwhile'
