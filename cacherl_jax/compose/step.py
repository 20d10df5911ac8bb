"""What a training step hands from room to room, as arrays: rewards to entries, rows to a batch.

The rooms do not know each other; this file knows their words and nothing of how they work.
"""

import functools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from cacherl_jax.grpo.advantage import (
    AdvantageSettings,
    Running,
    component_advantage,
    group_advantage,
    token_advantage,
    turn_advantage,
)
from cacherl_jax.grpo.critic import generalised_advantage, token_rewards, whitened
from cacherl_jax.grpo.loss import LEFT_OUT, TEXT, Batch
from cacherl_jax.keys import name_number
from cacherl_jax.rewards.facts import stratum
from cacherl_jax.rewards.hybrid import Rewards, Weights
from cacherl_jax.rollout_cache.actions import actions_of
from cacherl_jax.rollout_cache.buffer import Draw, Entries
from cacherl_jax.rollout_cache.curriculum import Standing, running_baseline
from cacherl_jax.rollout_cache.mix import Mixed
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.run.fetch import fetch
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tools.tool import Tier
from cacherl_jax.trajectory import Trajectory

TERMS = ('micro', 'macro', 'penalty', 'final')  # the order of reward components in the cache


def task_numbers(episodes: Sequence[Episode]) -> jax.Array:
    """i32 [row]: a number for each episode's task."""
    return jnp.asarray([name_number(episode.task.id) for episode in episodes], jnp.int32)


def compared_within(episodes: Sequence[Episode], settings: AdvantageSettings) -> jax.Array:
    """i32 [row]: the number of the group that each fresh row is compared in, its task.

    Stratified: its task and the least trusted tier of its answers, so that nobody gains by drifting
    off the cache.  Rows of exact and live answers keep their task's number, as cached rows do.
    """
    if not settings.stratified:
        return task_numbers(episodes)
    numbers = []
    for episode in episodes:
        results = (result for turn in episode.turns for result in turn.results)
        trust = int(stratum(max((result.tier for result in results), default=Tier.LIVE)))
        numbers.append(name_number(f'{episode.task.id} {trust}' if trust else episode.task.id))
    return jnp.asarray(numbers, jnp.int32)


def term_weights(weights: Weights) -> jax.Array:
    """What a component is worth now, f32 [term]; penalties have no schedule."""
    return jnp.stack([weights.micro, weights.macro, jnp.float32(1), weights.final])


def fresh_entries(
    fresh: Trajectory, episodes: Sequence[Episode], rewards: Rewards, step: int
) -> Entries:
    """Fresh episodes as rows of the rollout cache, with their components before weights."""
    rows = len(episodes)
    nothing = jnp.zeros(rows, jnp.int32)
    return Entries(
        trajectory=fresh,
        task=task_numbers(episodes),
        level=jnp.asarray([episode.task.level for episode in episodes], jnp.int32),
        episode_return=rewards.total,
        reward=jnp.stack([rewards.raw[term] for term in TERMS], axis=1),
        version=jnp.full(rows, step, jnp.int32),
        source=jnp.full(rows, int(Source.SUCCESS), jnp.int32),
        has_behaviour=jnp.ones(rows, bool),
        actions=jnp.asarray(np.stack([actions_of(episode.turns) for episode in episodes])),
        familiar=jnp.zeros(rows),
        reuse=nothing,
        added=nothing,
    )


def running_of(standing: Standing, episodes: Sequence[Episode], draw: Draw | None) -> Running:
    """What earlier attempts at each row's task were paid; cached rows come after the fresh ones."""
    numbers = fetch(task_numbers(episodes)).tolist()
    numbers += [] if draw is None else fetch(draw.entries.task).tolist()
    known = {name_number(task): tally for task, tally in standing.tasks.items()}
    mean, std, seen = running_baseline(known, numbers)
    return Running(mean=jnp.asarray(mean), std=jnp.asarray(std), seen=jnp.asarray(seen))


def row_lengths(mixed: Mixed) -> list[int]:
    """Rows' lengths on the host; 0 for those that teach nothing."""
    length, kinds = fetch((mixed.trajectory.length, mixed.kind))
    return [int(n) if kind != LEFT_OUT else 0 for n, kind in zip(length, kinds, strict=True)]


@struct.dataclass
class Own:
    """What the policy that an update begins from says of the mixed rows; None: nobody asked."""

    logprob: jax.Array | None = None  # f32 [row, token]  by the trainer's numerics
    value: jax.Array | None = None  # f32 [row, token]  of its critic, before the token


@functools.partial(jax.jit, static_argnames='settings')
def batch_of(
    mixed: Mixed,
    draw: Draw | None,
    rewards: Rewards,
    played: jax.Array,
    answer_turn: jax.Array,
    reference_logprob: jax.Array,
    weights: Weights,
    running: Running | None,
    settings: AdvantageSettings,
    own: Own = Own(),
) -> Batch:
    """Advantages for every token of fresh and cached rows (SPEC of credit: see grpo/advantage.py).

    Cached rows have an episode's advantage and none of single turns; the tokens of the final answer
    have theirs from the final term and the sub-goals alone.  Where a critic compares, it is by what
    it expected before each token (grpo/critic.py), and `own.value` is needed.
    played bool [fresh row, turn]; answer_turn i32 [fresh row], -1 where there was no answer;
    reference_logprob f32 [fresh row, token].
    """
    chex.assert_rank(reference_logprob, 2)
    target = None
    if settings.estimator == 'gae':
        advantage, target = _against_critic(mixed, rewards, own.value, settings)
    else:
        compare = _against_components if settings.components else _against_sum
        episode, answer = compare(mixed, draw, rewards, term_weights(weights), running, settings)
        turns = _turns_against_group(mixed, rewards, played, episode, settings)
        place = _padded(mixed, answer_turn, -1)
        advantage = token_advantage(episode, turns, mixed.trajectory, place, settings, answer)
    return Batch(
        tokens=mixed.trajectory.tokens,
        length=mixed.trajectory.length,
        sampled=mixed.trajectory.sampled,
        behaviour_logprob=mixed.trajectory.logprob,
        reference_logprob=_padded(mixed, reference_logprob),
        advantage=advantage,
        kind=mixed.kind,
        trainer_logprob=own.logprob,
        value_target=target,
    )


def _padded(mixed: Mixed, x, value=0):
    """Of fresh rows, with `value` for the cached ones behind them."""
    cached = mixed.fresh.shape[0] - x.shape[0]
    return jnp.pad(x, [(0, cached)] + [(0, 0)] * (x.ndim - 1), constant_values=value)


def _against_sum(mixed: Mixed, draw: Draw | None, rewards: Rewards, weight, running, settings):
    """What an episode was paid, and its answer, against those of its group: f32 [row] twice."""
    rows = (mixed.group, mixed.fresh, mixed.counted)
    answer = rewards.terms['final'] + rewards.terms['macro']
    if draw is not None:
        paid = draw.entries.reward * weight
        answer = jnp.concatenate(
            [answer, paid[:, TERMS.index('final')] + paid[:, TERMS.index('macro')]]
        )
    episode = group_advantage(mixed.reward, *rows, settings, running)
    return episode, group_advantage(answer, *rows, settings, running)


def _against_components(mixed: Mixed, draw: Draw | None, rewards: Rewards, weight, _, settings):
    """The same, each component by itself; of cached rows all are known."""
    # What was paid before its weight: a component of an episode whose reward is zeroed is 0.
    paid = jnp.stack([rewards.terms[term] for term in TERMS], axis=1)
    component = paid / jnp.where(weight > 0, weight, 1.0)
    known = jnp.stack([rewards.known[term] for term in TERMS], axis=1)
    if draw is not None:
        component = jnp.concatenate([component, draw.entries.reward])
    known = _padded(mixed, known, True)

    def among(*names):
        kept = jnp.asarray([TERMS.index(name) for name in names])
        rows = (mixed.group, mixed.fresh, mixed.counted)
        return component_advantage(
            component[:, kept], known[:, kept], weight[kept], *rows, settings
        )

    return among(*TERMS), among('final', 'macro')


def _turns_against_group(mixed: Mixed, rewards: Rewards, played, episode, settings):
    """Turns against those of their group, f32 [row, turn]; played bool [fresh row, turn].

    Where a group's episodes agree, none of its turns was better.
    """
    rows = (mixed.group, mixed.fresh, mixed.counted)
    turn = turn_advantage(
        _padded(mixed, rewards.turn), _padded(mixed, played, False), *rows, settings
    )
    same_group = mixed.group[:, None] == mixed.group[None, :]
    decided = jnp.any(same_group & (episode != 0)[None, :], axis=1)
    return jnp.where(decided[:, None], turn, 0.0)


def _against_critic(mixed: Mixed, rewards: Rewards, value, settings):
    """Tokens against what was expected before them, and what to expect: f32 [row, token] twice.

    A fresh row is paid turn by turn, a cached one, whose turns nobody kept, at its end.
    """
    turn = _padded(mixed, rewards.turn)
    reward = token_rewards(turn, mixed.reward - turn.sum(axis=1), mixed.trajectory)
    chosen = mixed.trajectory.sampled & mixed.counted[:, None]
    advantage, target = generalised_advantage(
        reward, value, chosen, settings.discount, settings.trace
    )
    return whitened(advantage, chosen) if settings.std else advantage, target


@jax.jit
def with_text(batch: Batch, text: Trajectory | None) -> Batch:
    """The batch with rows for the language-model term, every token of them, against forgetting."""
    if text is None:
        return batch
    place = jnp.arange(text.tokens.shape[1])
    nothing = jnp.zeros(text.tokens.shape, jnp.float32)
    more = Batch(
        tokens=text.tokens,
        length=text.length,
        sampled=(place > 0) & (place < text.length[:, None]),
        behaviour_logprob=nothing,
        reference_logprob=nothing,
        advantage=nothing,
        kind=jnp.full(text.length.shape, TEXT, jnp.int32),
        trainer_logprob=None if batch.trainer_logprob is None else nothing,
        value_target=None if batch.value_target is None else nothing,
    )
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), batch, more)
