"""All workloads on one accelerator in five minutes: a model of Qwen3-0.6B's sizes in bfloat16.

    python experiments/bench_gpu.py --json gpu.json

W1, W2 and W3 one after the other, each against the rate that the model's own products reach on this
device.  A workload that would begin after the time is up is left out and named; `--attention cudnn`
updates through cuDNN's fused attention.  Installed with requirements-cuda12.txt, JAX finds the GPU
by itself; on a CPU, --model tiny shows that all works.
"""

import dataclasses
import time
from collections.abc import Callable

import jax
import tyro

from cacherl_jax.bench.measured import Measured, show, write
from cacherl_jax.bench.rollout import GREEDY, measure_play
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.update import measure_update
from cacherl_jax.bench.workloads import decode_work, rollout_work
from cacherl_jax.run.refusal import refusing


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceBench(BenchSettings):
    """Everything, within a time."""

    model: str = 'Q'  # as in the other benchmarks
    dtype: str = 'bfloat16'
    minutes: float = 3.0  # no workload begins later than this
    rows: int = 64  # of W3

    def __post_init__(self):
        super().__post_init__()
        if self.minutes <= 0 or self.rows < 1:
            raise ValueError(
                f'minutes must be above 0 and rows 1 or more, got {self.minutes} and {self.rows}'
            )


def workloads(settings: DeviceBench) -> dict[str, Callable[[], Measured]]:
    """What is measured, in this order."""
    rollout, decode = rollout_work(settings.model), decode_work(settings.rows)
    return {
        'W2': lambda: measure_play('W2', rollout, settings),
        'W1': lambda: measure_update(settings),
        'W3': lambda: measure_play('W3', decode, settings, GREEDY),
    }


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(DeviceBench, description=__doc__)
    device, started, found = jax.devices()[0], time.monotonic(), []
    print(f'{device.device_kind}, {settings.dtype}')
    for name, measure in workloads(settings).items():
        if time.monotonic() - started > 60 * settings.minutes:
            print(f'{name} is left out: {settings.minutes} minutes are over')
            continue
        found.append(measure())
        show(found[-1:])
    write(found, settings.json)


if __name__ == '__main__':
    main()
