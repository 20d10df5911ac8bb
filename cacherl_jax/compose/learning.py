"""The supervised stages: learn lessons, sample what was learned, learn anew with what was right."""

import dataclasses
from collections.abc import Callable

import numpy as np

from cacherl_jax import keys
from cacherl_jax.compose.agent import Agent, make_score, rollout_of, tasks_of
from cacherl_jax.compose.samples import BEFORE_RL
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.config import RunConfig
from cacherl_jax.grpo.update import make_update
from cacherl_jax.mesh import row_placement
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Params
from cacherl_jax.processes import told
from cacherl_jax.rewards.honesty import hacking_flags
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.terminal import progress
from cacherl_jax.supervised.dataset import Arrays, padded
from cacherl_jax.supervised.rejection import Accepted, reject
from cacherl_jax.supervised.update import learn, supervised_optimizer
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.trajectory import Trajectory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lessons:
    """What a supervised stage learns: demonstrations first, then whatever else."""

    arrays: list[Arrays]
    rows: Trajectory  # the same, padded to the context
    lengths: np.ndarray  # i32 [row]
    episodes: list[Episode]  # of the demonstrations


def lessons_of(arrays: list[Arrays], episodes: list[Episode], config: RunConfig) -> Lessons:
    """Rows of the context's size; the first of `arrays` are those of the episodes."""
    rows, lengths = padded(arrays, config.decode.context_tokens)
    return Lessons(arrays=arrays, rows=rows, lengths=lengths, episodes=episodes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Started:
    """What came of the supervised stages."""

    params: Params
    accepted: list[Accepted]  # what the policy got right by itself, for each rejection sampling
    live_calls: int  # that rejection sampling made


def supervised_stages(
    agent: Agent, lessons: Lessons, config: RunConfig, tell: Callable[[dict], None]
) -> Started:
    """Learn; then, as often as asked, play training tasks and learn anew with what was right.

    Every stage begins from the agent's parameters; `tell` gets the numbers of each step and of each
    rejection sampling.
    """
    settings = config.supervised.rejection
    params, accepted, calls = learned_params(agent, lessons, config, tell), [], 0
    for iteration in range(settings.iterations if settings.samples else 0):
        taken, made = own_lessons(agent, params, lessons, config, iteration)
        told = {f'rejection/{name}'.replace(' ', '_'): n for name, n in taken.counts.items()}
        tell(told | {'rejection/live_calls': made})
        calls += made
        if taken.arrays:
            accepted.append(taken)
            lessons = lessons_of(taken.combined(lessons.arrays), lessons.episodes, config)
            params = learned_params(agent, lessons, config, tell)
    return Started(params=params, accepted=accepted, live_calls=calls)


def own_lessons(
    agent: Agent, params: Params, lessons: Lessons, config: RunConfig, iteration: int
) -> tuple[Accepted, int]:
    """What the policy gets right of the training tasks, and the live tool calls that this took.

    Nothing that it has learned already, and nothing with a mark of having gamed the reward.
    """
    settings, live = config.supervised.rejection, live_sessions(config.execute)
    rollout = rollout_of(
        agent, config, live.open_session, samples=settings.samples,
        rows=settings.tasks_at_once * settings.samples, purpose=f'rejection {iteration}',
    )  # fmt: skip

    def play(asked, number):
        rows, episodes = rollout(params, asked, number)
        # The rollout counts rounds where RL counts steps; these are of none.
        outside = [dataclasses.replace(one, step=BEFORE_RL) for one in episodes]
        return fetch(rows), outside

    flags = hacking_flags(config.honesty, config.facts)
    honest = {name: lambda e, flag=flag: not flag(e) for name, flag in flags.items()}
    tasks = tasks_of(config, 'train', config.curriculum.tasks)
    playings = settings.rounds * -(-len(tasks) // settings.tasks_at_once)
    with progress('rejection sampling', playings) as advance:
        found = reject(
            play, tasks, settings, demonstrations=lessons.arrays, judges=honest,
            tell=lambda accepted: advance(accepted=accepted),
        )  # fmt: skip
    print(found.report())
    return found, told(lambda: live.live_calls)


def learned_params(
    agent: Agent, lessons: Lessons, config: RunConfig, tell: Callable[[dict], None]
) -> Params:
    """Learn the lessons; parameters of the agent in, those of the supervised stage out."""
    settings = config.supervised
    steps = settings.steps(len(lessons.lengths))
    tuning = Tuning(settings=config.lora, params=agent.params)
    score = tuning.score(make_score(agent, SamplingSettings(), config.numerics))
    place = row_placement(agent.mesh)
    # Passes and steps are counted here: those of `update` are RL's.
    cutting = dataclasses.replace(config.update, pack=settings.pack, epochs=1, minibatches=1)
    update = make_update(score, supervised_optimizer(settings, steps), cutting, place)
    root = keys.root(config.seed)
    with progress('supervised start', steps) as advance:

        def shown(metrics):
            advance(loss=metrics['loss/supervised'])
            tell(metrics)

        learner = update.init(tuning.init(root))
        learner = learn(learner, update, lessons.rows, lessons.lengths, settings, root, shown)
    return tuning.merged(learner.params)
