"""Numbers of a run, one flat dict a step: a JSON line for programs, TensorBoard events for eyes.

Device scalars are fetched here, all of a step in one transfer.  A resumed run continues after the
restored step as if nothing later had been written.  Of several processes the first writes.
"""

import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorboardX

from cacherl_jax.processes import is_first, told
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import make_lines


def written_numbers(folder: str | os.PathLike, name: str, last: int) -> list[dict[str, float]]:
    """The numbers of the latest `last` steps that have `name`, oldest first; null reads as NaN."""
    path, found = pathlib.Path(folder) / 'metrics.jsonl', []
    for line in path.read_text(encoding='utf-8').splitlines() if path.exists() else ():
        numbers = json.loads(line)
        if name in numbers:
            found.append({n: math.nan if x is None else x for n, x in numbers.items()})
    return found[-last:]


class Metrics(NamedTuple):
    """`write(step, {name: scalar})`, as often as wanted in a step; `close()` at the end."""

    write: Callable[[int, Mapping[str, Any]], dict[str, float]]
    close: Callable[[], None]


def make_metrics(folder: str | os.PathLike, restored_step: int = -1) -> Metrics:
    """Writes `metrics.jsonl` and `tensorboard/` in `folder`; -1 starts afresh.

    `write` hands back the same numbers as floats, for a progress bar.
    """
    folder, first = pathlib.Path(folder), restored_step + 1
    append = make_lines(folder / 'metrics.jsonl', restored_step)
    # The suffix keeps files apart that are begun within one second.
    board = tensorboardX.SummaryWriter(
        str(folder / 'tensorboard'), purge_step=first, filename_suffix=f'.from-{first}',
        write_to_disk=is_first(),
    )  # fmt: skip

    def write(step, scalars):
        fetched = fetch(dict(scalars))
        # Some are of a process's own clock: the first one's count, so that all decide alike.
        numbers = told(lambda: {name: float(value) for name, value in fetched.items()})
        # JSON has no NaN or infinity: null says that a number was not finite, as a gap does on the
        # board.
        finite = {name: x if math.isfinite(x) else None for name, x in numbers.items()}
        append({'step': int(step)} | finite)
        for name, number in finite.items():
            if number is not None:
                board.add_scalar(name, number, int(step))
        board.flush()
        return numbers

    return Metrics(write, board.close)
