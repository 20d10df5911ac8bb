"""Numbers of a run, one flat dict a step: a JSON line for programs, TensorBoard events for eyes.

Device scalars are fetched here, all of a step in one transfer.  A resumed run continues after the
restored step as if nothing later had been written.  Of several processes the first writes.
"""

import json
import math
import os
import pathlib
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorboardX

from cacherl_jax.processes import is_first, told
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import make_lines

# A board sorts its groups by name, and a group's curves too.
STORY = {
    name: f'0_story/{place}_{words}'
    for place, (name, words) in enumerate(
        {
            'rewards/solved': 'solved_in_training',
            'evaluate/success': 'success_on_unseen_tasks',
            'rewards/total': 'reward',
            'policy/kl': 'kl',
            'policy/entropy': 'entropy',
            'tool_cache/exact_fraction': 'exact_answers',
            'tool_cache/miss_fraction': 'missed_answers',
            'rollout_cache/own_fraction': 'own_episodes_in_cache',
            'perf/step_seconds': 'seconds_a_step',
        }.items()
    )
}
CHARTS = {  # of the tab "custom scalars": several curves on one chart
    'story': {
        'success': ['Multiline', ['rewards/solved', 'evaluate/success']],
        'reward by term': ['Multiline', ['rewards/weighted_']],
        'answers by tier': ['Multiline', [r'tool_cache/\w+_fraction']],
        'refused by the rollout cache': ['Multiline', ['rollout_cache/refused/']],
    },
    'policy': {
        'kl': ['Multiline', ['policy/kl', 'policy/approx_kl']],
        'clipped': ['Multiline', ['policy/clip_fraction', 'cached/clip_fraction']],
        'loss by term': ['Multiline', ['loss/']],
    },
    'failures': {'shares': ['Multiline', ['failure/']]},
}


def written_numbers(folder: str | os.PathLike, name: str, last: int) -> list[dict[str, float]]:
    """The numbers of the latest `last` steps that have `name`, oldest first; null reads as NaN."""
    path, found = pathlib.Path(folder) / 'metrics.jsonl', []
    for line in path.read_text(encoding='utf-8').splitlines() if path.exists() else ():
        numbers = json.loads(line)
        if name in numbers:
            found.append({n: math.nan if x is None else x for n, x in numbers.items()})
    return found[-last:]


class Metrics(NamedTuple):
    """`write(step, {name: scalar})`, as often as wanted in a step; `close()` at the end.

    On the board alone: `spread(step, {name: numbers})` as histograms, NaN left out, and
    `say(step, {name: text})`, plain text.
    """

    write: Callable[[int, Mapping[str, Any]], dict[str, float]]
    spread: Callable[[int, Mapping[str, Any]], None]
    say: Callable[[int, Mapping[str, str]], None]
    close: Callable[[], None]


def make_metrics(folder: str | os.PathLike, restored_step: int = -1) -> Metrics:
    """Writes `metrics.jsonl` and `tensorboard/` in `folder`; -1 starts afresh.

    `write` hands back the same numbers as floats, for a progress bar.  On the board they stand by
    area, and those of STORY once more in a group of their own, before all others.
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
                for place in (name, *([STORY[name]] if name in STORY else ())):
                    board.add_scalar(place, number, int(step))
        board.flush()
        return numbers

    def spread(step, numbers):
        for name, values in fetch(dict(numbers)).items():
            values = np.asarray(values, float)
            if (values := values[np.isfinite(values)]).size:
                board.add_histogram(name, values, int(step))

    def say(step, texts):
        for name, text in texts.items():  # indented, it is shown as it is
            board.add_text(name, textwrap.indent(text, '    '), int(step))

    if not first:
        board.add_custom_scalars(CHARTS)
    return Metrics(write, spread, say, board.close)
