"""Which tasks a step is about.  What has been solved so far in, tasks out.

Suites take turns.  The level comes from a schedule (easy to hard) or from how often each level is
solved; of a few candidate tasks the one is taken whose outcome is least certain.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

import numpy as np

from cacherl_jax.tasks.suite import LEVELS, chance
from cacherl_jax.tasks.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumSettings:
    """Where tasks are drawn from, and how hard they are."""

    suites: tuple[str, ...] = ('research', 'trip', 'analysis')
    levels: tuple[int, ...] = LEVELS
    tasks: int = 1000  # training tasks of a suite and level; numbers below it
    order: Literal['schedule', 'success', 'uniform'] = 'success'  # what picks the level
    steps: int = 300  # training steps until the hardest level is the usual one; schedule only
    least_fraction: float = 0.1  # of draws spread over all levels alike; not for uniform
    candidates: int = 4  # tasks looked at for each one taken
    forget: float = 0.02  # what an old attempt loses at each new one of its place, in [0, 1)

    def __post_init__(self):
        if not self.suites or len(set(self.suites)) != len(self.suites):
            raise ValueError(f'suites must be named, each once, got {self.suites}')
        if not self.levels or not set(self.levels) <= set(LEVELS):
            raise ValueError(f'levels must be some of {LEVELS}, got {self.levels}')
        if self.order not in ('schedule', 'success', 'uniform'):
            raise ValueError(f'order must be schedule, success or uniform, got {self.order!r}')
        for name in ('tasks', 'steps', 'candidates'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be 1 or more, got {getattr(self, name)}')
        if not 0 <= self.least_fraction <= 1:
            raise ValueError(f'least_fraction must be in [0, 1], got {self.least_fraction}')
        if not 0 <= self.forget < 1:
            raise ValueError(f'forget must be in [0, 1), got {self.forget}')


@dataclasses.dataclass(frozen=True)
class Tally:
    """Attempts that count, and the sums of what they brought."""

    attempts: float = 0.0
    solved: float = 0.0
    paid: float = 0.0
    paid_square: float = 0.0

    def add(self, solved: float, paid: float, forget: float) -> 'Tally':
        """One more attempt; what came before weighs 1 - forget of what it did."""
        keep = 1 - forget
        return Tally(
            self.attempts * keep + 1,
            self.solved * keep + solved,
            self.paid * keep + paid,
            self.paid_square * keep + paid * paid,
        )

    def rate(self, prior: float = 0.5, weight: float = 1.0) -> float:
        """Share solved, beginning at `prior` as if seen `weight` times."""
        return (self.solved + prior * weight) / (self.attempts + weight)


@dataclasses.dataclass(frozen=True)
class Standing:
    """What the policy has shown so far; JSON can hold `state`."""

    levels: dict[tuple[str, int], Tally] = dataclasses.field(default_factory=dict)
    tasks: dict[str, Tally] = dataclasses.field(default_factory=dict)  # by task id

    def state(self) -> dict:
        """Plain lists and numbers, for a checkpoint."""
        levels = [[*place, dataclasses.astuple(tally)] for place, tally in self.levels.items()]
        return {
            'levels': levels,
            'tasks': [[name, dataclasses.astuple(tally)] for name, tally in self.tasks.items()],
        }

    @classmethod
    def restore(cls, state: dict) -> 'Standing':
        """The standing that `state` was taken of."""
        levels = {(suite, level): Tally(*tally) for suite, level, tally in state['levels']}
        return cls(levels, {name: Tally(*tally) for name, tally in state['tasks']})


def observe(
    standing: Standing, outcomes: Iterable[tuple[Task, bool, float]], settings: CurriculumSettings
) -> Standing:
    """Add fresh training attempts: task, whether it was solved, and its return."""
    levels, tasks = dict(standing.levels), dict(standing.tasks)
    for task, solved, paid in outcomes:
        if task.split != 'train':
            raise ValueError(f'only training tasks steer the curriculum, got {task.id}')
        place = (task.suite, task.level)
        levels[place] = levels.get(place, Tally()).add(solved, paid, settings.forget)
        tasks[task.id] = tasks.get(task.id, Tally()).add(solved, paid, settings.forget)
    return Standing(levels, tasks)


def draw_tasks(
    standing: Standing,
    seed: int,
    step: int,
    groups: int,
    settings: CurriculumSettings,
    source: Callable[[str, int, int], Task],
    taken: Collection[str] = (),
    again: int = 0,
) -> list[Task]:
    """The tasks of a step's groups, each once: a function of (standing, seed, step) alone.

    `source(suite, level, number)` gives the training task of that number.  A step that is asked
    `again` gives others than those `taken`.
    """
    of_each = math.ceil(groups / len(settings.suites))
    most = len(settings.levels) * settings.tasks
    if of_each > most:
        raise ValueError(f'{groups} groups need {of_each} tasks of a suite; there are {most}')
    place, before, found = ('curriculum', seed, step, *([again] if again else [])), set(taken), []
    for group in range(groups):
        suite = settings.suites[(step * groups + group) % len(settings.suites)]
        draws = chance(*place, group)
        level = draws.choices(settings.levels, level_weights(standing, suite, step, settings))[0]
        numbers = [draws.randrange(settings.tasks) for _ in range(settings.candidates)]
        tasks = [source(suite, level, number) for number in numbers]
        free = [task for task in tasks if task.id not in before]
        free = free or [_next_free(suite, level, numbers[0], before, settings, source)]
        found.append(max(free, key=lambda task: uncertainty(standing, task)))
        before.add(found[-1].id)
    return found


def _next_free(suite, level, number, taken, settings, source) -> Task:
    """The first task after this one that the step does not have yet; harder levels come last."""
    for other in sorted(settings.levels, key=lambda other: (other != level, other)):
        for further in range(settings.tasks):
            task = source(suite, other, (number + further) % settings.tasks)
            if task.id not in taken:
                return task
    raise ValueError(f'{suite} gives the same task for different numbers')


def level_weights(
    standing: Standing, suite: str, step: int, settings: CurriculumSettings
) -> list[float]:
    """Chances of the levels.  schedule: near the one due; success: p (1 - p); each has a floor."""
    if settings.order == 'uniform':
        wish = [1.0] * len(settings.levels)
    elif settings.order == 'schedule':
        due = min(step / settings.steps, 1.0) * (len(settings.levels) - 1)
        wish = [max(0.0, 1 - abs(place - due)) for place in range(len(settings.levels))]
    else:
        rates = [standing.levels.get((suite, x), Tally()).rate() for x in settings.levels]
        wish = [rate * (1 - rate) for rate in rates]
    least = settings.least_fraction / len(wish)
    whole = sum(wish)
    return [least + (1 - settings.least_fraction) * x / whole for x in wish]


def uncertainty(standing: Standing, task: Task) -> float:
    """p (1 - p) of solving a task; its level's rate stands in for attempts not made."""
    level = standing.levels.get((task.suite, task.level), Tally()).rate()
    rate = standing.tasks.get(task.id, Tally()).rate(prior=level)
    return rate * (1 - rate)


def running_baseline(tallies: Mapping, tasks: Iterable):
    """Mean and deviation of fresh returns of each task, and whether there are any; arrays [row].

    `tasks` are keys of `tallies`, or not, where a task was never tried.
    """
    known = [tallies.get(task, Tally()) for task in tasks]
    means = [tally.paid / max(tally.attempts, 1) for tally in known]
    spreads = [
        math.sqrt(max(tally.paid_square / max(tally.attempts, 1) - mean * mean, 0.0))
        for tally, mean in zip(known, means, strict=True)
    ]
    seen = [tally.attempts > 0 for tally in known]
    return np.array(means, np.float32), np.array(spreads, np.float32), np.array(seen, bool)
