"""Train a reward model: a linear head on a policy's trunk that tells right answers from wrong ones.

    python -m experiments.train_reward_model base --suites research --out reward_model
    ./launch.sh train --final.rules 0.5 --final.reward-model 0.5 --final.head reward_model

A pair is an expert's episode, and the same one with an answer that its task calls wrong.  Those of
training tasks teach; it is measured on entities that no training task has.
"""

import dataclasses
import json
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

from cacherl_jax.compose.agent import Agent, demonstrations, load_agent, refused, tasks_of
from cacherl_jax.config import PRESETS, RunConfig
from cacherl_jax.rewards.reward_model import (
    Head,
    Rows,
    centred,
    make_training,
    row_rewards,
    save_head,
)
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table, progress
from cacherl_jax.supervised.dataset import episode_arrays
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tools.execute import live_sessions

Pair = tuple[list[int], list[int]]  # tokens of the right episode and of the wrong one


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardModelSettings:
    """Which trunk, which pairs, and how long."""

    model: tyro.conf.Positional[str]  # base, smollm2, a Hugging Face folder, a .gguf
    out: pathlib.Path  # folder of the head
    suites: tuple[str, ...] = ('research', 'trip', 'analysis')
    levels: tuple[int, ...] = (1, 2, 3)
    tasks: int = 32  # of each suite and level, to learn from; a quarter as many are held out
    context_tokens: int = 576  # longer episodes are left out
    rows: int = 16  # pairs a step
    steps: int = 150
    learning_rate: float = 0.03
    seed: int = 0
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        for name in ('tasks', 'context_tokens', 'rows', 'steps'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')
        if not self.learning_rate > 0:
            raise ValueError(f'learning_rate must be above 0, got {self.learning_rate}')


def config_of(settings: RewardModelSettings) -> RunConfig:
    """The small preset with the model and the tasks that are asked for."""
    small = PRESETS['small']
    course = dataclasses.replace(small.curriculum, suites=settings.suites, levels=settings.levels)
    return dataclasses.replace(small, model=settings.model, curriculum=course, seed=settings.seed)


def answering(episode: Episode, answer: str) -> Episode:
    """The same episode with another last message."""
    last = dataclasses.replace(episode.turns[-1], text=answer, content=answer, thinking='')
    return dataclasses.replace(episode, turns=(*episode.turns[:-1], last))


def pairs_of(agent: Agent, config: RunConfig, split: str, count: int, most: int) -> list[Pair]:
    """One pair for each wrong answer of each task, those that fit `most` tokens."""
    with refused():
        played = demonstrations(tasks_of(config, split, count), live_sessions(config.execute))
    found = []
    for episode in played:
        wrongs = [answer for answer in episode.task.wrong_answers if answer.strip()]
        right = list(episode_arrays(agent.chat, episode)['tokens'])
        wrong = [episode_arrays(agent.chat, answering(episode, each))['tokens'] for each in wrongs]
        found += [(right, list(each)) for each in wrong if max(len(right), len(each)) <= most]
    if not found:
        raise Refusal(
            f'no pair of the {split} tasks fits context_tokens ({most})',
            remedy='raise context_tokens, or name suites that list wrong answers',
        )
    return found


def as_rows(tokens: Sequence[Sequence[int]], width: int, rows: int) -> Rows:
    """Padded to one shape, so that it is compiled once; rows that are missing have length 0."""
    made, length = np.zeros((rows, width), np.int32), np.zeros(rows, np.int32)
    for row, each in enumerate(tokens):
        made[row, : len(each)], length[row] = each, len(each)
    return Rows(tokens=jnp.asarray(made), length=jnp.asarray(length))


def learn(agent: Agent, pairs: list[Pair], settings: RewardModelSettings) -> Head:
    """The head after so many steps, with one half between the right and the wrong."""
    training = make_training(agent.shape, optax.adam(settings.learning_rate))
    learner, draw, order = training.init(agent.params), random.Random(settings.seed), []
    with progress('reward model', settings.steps) as advance:
        for _ in range(settings.steps):
            while len(order) < settings.rows:  # every pair once before any comes again
                order += draw.sample(pairs, len(pairs))
            chosen, order = order[: settings.rows], order[settings.rows :]
            sides = zip(*chosen, strict=True)
            rows = [as_rows(side, settings.context_tokens, settings.rows) for side in sides]
            learner, metrics = training.step(learner, *rows)
            advance(loss=float(metrics['reward_model/loss']))
    return centred(
        learner.head, *map(jnp.asarray, rewards_of(agent, learner.head, pairs, settings))
    )


def rewards_of(
    agent: Agent, head: Head, pairs: list[Pair], settings: RewardModelSettings
) -> tuple[np.ndarray, np.ndarray]:
    """What the head gives the right ones and the wrong ones, f32 [pair] twice."""
    score = jax.jit(row_rewards, static_argnames='shape')
    found = []
    for side in zip(*pairs, strict=True):
        parts = [side[at : at + settings.rows] for at in range(0, len(side), settings.rows)]
        rows = [as_rows(part, settings.context_tokens, settings.rows) for part in parts]
        told = [fetch(score(head, agent.params, shape=agent.shape, rows=each)) for each in rows]
        found.append(np.concatenate(told)[: len(side)])
    return found[0], found[1]


def measured(right: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Share of pairs in their order, and how often one half lies on the right side of an answer."""
    return {
        'pairs': len(right),
        'in order': float(np.mean(right > wrong)),
        'right above half': float(np.mean(right > 0)),
        'wrong below half': float(np.mean(wrong < 0)),
    }


def train(settings: RewardModelSettings) -> dict[str, dict[str, float]]:
    """Learns, measures and saves; numbers by part of the pairs out."""
    config = config_of(settings)
    agent = load_agent(config)
    held = max(1, settings.tasks // 4)
    parts: dict[str, Any] = {
        name: pairs_of(agent, config, split, count, settings.context_tokens)
        for name, split, count in (('learned', 'train', settings.tasks), ('unseen', 'test', held))
    }
    head = learn(agent, parts['learned'], settings)
    found = {n: measured(*rewards_of(agent, head, part, settings)) for n, part in parts.items()}
    place = pathlib.Path(settings.model)
    trunk = str(place.resolve()) if place.exists() else settings.model
    save_head(settings.out, {name: np.asarray(x) for name, x in fetch(head).items()}, trunk)
    return found


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(RewardModelSettings, description=__doc__)
    found = train(settings)
    columns = ['pairs of', *next(iter(found.values()))]
    rows = [[name, *part.values()] for name, part in found.items()]
    print_table(str(settings.out), columns, rows)
    if settings.json:
        told = {'settings': plain(settings), 'measured': found, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
