"""The suites that ship, and the benchmarks whose tasks are read from installed packages."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from cacherl_jax.tasks import bfcl_score, tau2_score
from cacherl_jax.tasks.analysis import ANALYSIS
from cacherl_jax.tasks.bfcl import bfcl_tasks
from cacherl_jax.tasks.research import RESEARCH
from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.tasks.tau2 import tau2_tasks
from cacherl_jax.tasks.trip import TRIP

SUITES = (RESEARCH, TRIP, ANALYSIS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A fixed list of tasks with gold calls; the settings are those of its name in a run."""

    tasks: Callable[[str, Any], tuple[Task, ...]]  # of a split, under settings
    process_accuracy: Callable[[Episode], float]


BENCHMARKS = {
    'bfcl': Benchmark(tasks=bfcl_tasks, process_accuracy=bfcl_score.process_accuracy),
    'tau2': Benchmark(tasks=tau2_tasks, process_accuracy=tau2_score.process_accuracy),
}


def process_accuracy(suite: str, episodes: Iterable[Episode]) -> float | None:
    """Mean over the episodes of a benchmark; None for a suite without gold calls, and for none."""
    if suite not in BENCHMARKS:
        return None
    found = [BENCHMARKS[suite].process_accuracy(e) for e in episodes if e.task.suite == suite]
    return sum(found) / len(found) if found else None
