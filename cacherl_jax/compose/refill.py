"""Groups that agree teach nothing: they may be played again with other tasks, within bounds.

What is put aside was still played: the run counts it, and the curriculum learns from it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cacherl_jax.config import RunConfig
from cacherl_jax.grpo.advantage import SAME_REWARD
from cacherl_jax.rewards.facts import gather_facts
from cacherl_jax.rewards.hybrid import Rewards, hybrid_reward, weights_at
from cacherl_jax.rollout_cache.curriculum import Standing, draw_tasks
from cacherl_jax.run.fetch import fetch
from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.trajectory import Trajectory

Play = Callable[[Sequence[Task]], tuple[Trajectory, list[Episode]]]
Outcome = tuple[Episode, float | None]  # what it was paid; None where it does not count


class Played(NamedTuple):
    """A step's groups as they will be learned from, and what was put aside for them."""

    groups: list[Task]
    rows: Trajectory  # group-major
    episodes: list[Episode]
    aside: list[Outcome]


def outcomes(
    episodes: Sequence[Episode], rewards: Rewards, aside: Sequence[Outcome]
) -> list[tuple[Task, bool, float]]:
    """Every attempt of a step that counts: its task, whether it was solved, what it was paid."""
    told = [*_judged(episodes, rewards), *aside]
    return [(one.task, one.task.solved(one), paid) for one, paid in told if paid is not None]


def _judged(episodes: Sequence[Episode], rewards: Rewards) -> list[Outcome]:
    told = zip(episodes, *fetch((rewards.total, rewards.counted)), strict=True)
    return [(episode, float(paid) if counted else None) for episode, paid, counted in told]


def undecided(paid: np.ndarray, counted: np.ndarray, samples: int) -> np.ndarray:
    """bool [group]: its rows that count, if any, are all paid the same.

    paid f32 [row], counted bool [row], group-major.
    """
    paid, counted = paid.reshape(-1, samples), counted.reshape(-1, samples)
    highest = np.where(counted, paid, -np.inf).max(axis=1)
    lowest = np.where(counted, paid, np.inf).min(axis=1)
    return highest - lowest < SAME_REWARD


def undecided_share(rewards: Rewards, samples: int) -> float:
    """How many of a step's groups agree, of all."""
    paid, counted = map(np.asarray, fetch((rewards.total, rewards.counted)))
    return float(undecided(paid, counted, samples).mean())


def refilled(
    play: Play,
    groups: Sequence[Task],
    step: int,
    standing: Standing,
    config: RunConfig,
    source: Callable[[str, int, int], Task],
) -> Played:
    """Play the groups; up to `config.refills` times, put others in place of those that agree.

    A group that agrees stays where what was played for it agrees too, or no task is left.
    """
    samples, taken, aside = config.rollout.samples, list(groups), []
    now = Played(list(groups), *play(groups), [])
    for again in range(1, config.refills + 1):
        agree = _agree(now.episodes, step, config)
        count = min(int(agree.sum()), _left(taken, config))
        if not count:
            break
        asked = draw_tasks(
            standing, config.seed, step, count, config.curriculum, source,
            taken=[task.id for task in taken], again=again,
        )  # fmt: skip
        taken += asked
        more = Played(asked, *play(asked), [])
        good = np.flatnonzero(~_agree(more.episodes, step, config))
        bad = np.flatnonzero(agree)[: len(good)]
        now, put_aside = _exchanged(now, more, bad, good, samples)
        aside += _judged(put_aside, _rewards(put_aside, step, config))
    return now._replace(aside=aside)


def _left(taken: Sequence[Task], config: RunConfig) -> int:
    """How many groups more the tasks of every suite suffice for, whichever suite begins."""
    course = config.curriculum
    most = len(course.levels) * course.tasks
    used = max(sum(task.suite == suite for task in taken) for suite in course.suites)
    return max(most - used, 0) * len(course.suites)


def _rewards(episodes: Sequence[Episode], step: int, config: RunConfig) -> Rewards:
    facts = gather_facts(episodes, config.facts)
    return hybrid_reward(facts, weights_at(step, config.weights), config.hybrid)


def _agree(episodes: Sequence[Episode], step: int, config: RunConfig) -> np.ndarray:
    rewards = _rewards(episodes, step, config)
    paid, counted = map(np.asarray, fetch((rewards.total, rewards.counted)))
    return undecided(paid, counted, config.rollout.samples)


def _exchanged(now: Played, more: Played, bad, good, samples: int) -> tuple[Played, list[Episode]]:
    """Groups `good` of `more` in place of groups `bad` of `now`; and all episodes left over."""
    size, rows = len(now.groups), now.rows.length.shape[0]
    place = np.arange(size)
    place[bad] = size + good
    groups, each = [*now.groups, *more.groups], np.arange(samples)
    kept = place[:, None] * samples + each
    episodes = [*now.episodes, *more.episodes]
    # Behind its episodes each trajectory may have rows of nothing.
    row = np.arange(rows)
    row[: size * samples] = np.where(kept < size * samples, kept, kept - size * samples + rows).flat
    joined = jax.tree.map(lambda x, y: jnp.concatenate([x, y])[row], now.rows, more.rows)
    left = sorted(set(range(len(episodes))) - set(kept.flat))
    found = Played([groups[i] for i in place], joined, [episodes[i] for i in kept.flat], [])
    return found, [episodes[i] for i in left]
