"""The watchdog of one run: it reads the metrics of each step and keeps what outlives a roll-back.

A roll-back ends the process and begins the same command again, which goes on from the last
checkpoint as any stopped run does.  How often that happened stands in a file of its own, because
every checkpoint is older than the roll-back that returns to it.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.processes import is_first, several, told
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.stop import leave_if
from cacherl_jax.run.watchdog import (
    Decision,
    Watch,
    WatchdogSettings,
    save_evidence,
    stronger_kl,
    watch_step,
)

HISTORY_STEPS = 200  # how far back the watchdog looks


def begin_again() -> None:
    """Replace this process by the same command, with what was given to Python itself (-m, -X).

    Several processes part first, each as whole as it came, and meet again.
    """
    if several():
        jax.distributed.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class Watchdog:
    """Decides after each step, says so, and acts before the step is kept.

    A `new` run forgets what an earlier one in its folder left.
    """

    def __init__(
        self,
        settings: WatchdogSettings,
        folder: pathlib.Path,
        new: bool,
        begin_again: Callable[[], None] = begin_again,
    ):
        self.settings, self.folder, self.begin_again = settings, folder, begin_again
        self.decision = Decision(action='off')
        self.history: list[Mapping[str, float]] = []
        self._file = folder / 'watchdog' / 'rollbacks.json'
        if new and is_first():
            shutil.rmtree(self._file.parent, ignore_errors=True)
        self.watch = Watch(rollbacks=told(self._rollbacks))

    def _rollbacks(self) -> int:
        return json.loads(self._file.read_text())['rollbacks'] if self._file.exists() else 0

    def restore(self, state: Mapping[str, Any], history: Sequence[Mapping[str, float]]) -> None:
        """Back to a checkpoint; roll-backs made since count all the same."""
        rollbacks = max(self.watch.rollbacks, state['rollbacks'])
        self.watch = Watch(said=state['said'], rollbacks=rollbacks)
        self.history = list(history)

    def tempered(self, update: UpdateSettings) -> UpdateSettings:
        """The update's settings with the KL weight that the roll-backs so far ask for."""
        weight = stronger_kl(update.loss.kl_weight, self.watch.rollbacks, self.settings)
        return dataclasses.replace(update, loss=dataclasses.replace(update.loss, kl_weight=weight))

    def look(self, step: int, numbers: Mapping[str, float], shown: Sequence[Mapping]) -> None:
        """Decide after a step; what is more than a warning is kept with its evidence."""
        self.history = [*self.history[1 - HISTORY_STEPS :], numbers]
        self.watch, self.decision = watch_step(self.watch, step, self.history, self.settings)
        if self.decision.alarms:
            print(f'watchdog at step {step}: {self.decision.text}', file=sys.stderr)
        if self.decision.action in ('pause', 'roll_back'):
            save_evidence(self.folder, step, self.decision, self.history, self.settings, shown)

    def act(self) -> None:
        """Before a step is kept: end the run, or begin it again from its last checkpoint."""
        if self.decision.action == 'roll_back':
            text = json.dumps({'rollbacks': self.watch.rollbacks})
            write_atomically(self._file, text + '\n')
            print('rolled back to the last checkpoint, with a stronger KL', file=sys.stderr)
            self.begin_again()
        paused = 'by the watchdog; the same command goes on from the last checkpoint'
        leave_if(self.decision.action in ('pause', 'roll_back'), paused)
