"""Finished episodes kept for later updates, on the device.  Rows in, rows out.

The capacity is fixed.  When it is used up the entries of lowest value leave, and a new row worth
less than all of them never enters.  Value falls with age, with use, with likeness to better entries
of the same task, and with how often the policy now solves the task by itself in the same way.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.rollout_cache.actions import likeness
from cacherl_jax.trajectory import Trajectory


@struct.dataclass
class Entries:
    """Episodes and what is known about them; the leading axis is a slot in a store, else a row."""

    trajectory: Trajectory
    task: jax.Array  # i32 [row]  number of the task
    level: jax.Array  # i32 [row]  of the task, 1 to 3
    episode_return: jax.Array  # f32 [row]  under the reward weights of `rescore`, or of its making
    reward: jax.Array  # f32 [row, term]  components before their weights
    version: jax.Array  # i32 [row]  step of the policy that sampled it
    source: jax.Array  # i32 [row]  where it came from
    has_behaviour: jax.Array  # bool [row]  `trajectory.logprob` is the sampling policy's
    actions: jax.Array  # i32 [row, action]  what it did, as numbers; see rollout_cache/actions.py
    familiar: jax.Array  # f32 [row]  likeness of fresh attempts at its task; 0 of those that failed
    reuse: jax.Array  # i32 [row]  times drawn
    added: jax.Array  # i32 [row]  step it was added at


@struct.dataclass
class Store:
    entries: Entries
    filled: jax.Array  # bool [slot]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BufferSettings:
    """How much is kept, what makes an entry worth keeping, and when it may be drawn."""

    capacity: int = 512  # entries
    minimum: int = 16  # entries that may be drawn before any is
    age_limit: int = 64  # steps since an entry's policy, where its log-probabilities are used
    reuse_limit: int = 8  # draws of one entry
    age_cost: float = 0.005  # return an entry loses a step
    reuse_cost: float = 0.05  # return an entry loses a draw
    crowding_cost: float = 0.05  # return an entry loses for each better one of its task like it
    familiar_cost: float = 0.5  # return an entry loses when the policy always does it by itself

    def __post_init__(self):
        if self.capacity < 1:
            raise ValueError(f'capacity must be 1 or more, got {self.capacity}')
        if not 1 <= self.minimum <= self.capacity:
            raise ValueError(
                f'minimum must be in 1..capacity ({self.capacity}), got {self.minimum}: '
                'nothing would ever be drawn'
            )
        for name in ('age_limit', 'reuse_limit'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be 1 or more, got {getattr(self, name)}')
        for name in ('age_cost', 'reuse_cost', 'crowding_cost', 'familiar_cost'):
            if not 0 <= getattr(self, name) < float('inf'):
                raise ValueError(f'{name} must be 0 or more, got {getattr(self, name)}')


class Buffer(NamedTuple):
    init: Callable  # (example: Entries) -> Store, empty
    add: Callable  # (Store, Entries, keep bool [row], step) -> Store
    sample: Callable  # (Store, key, weight f32 [slot], step, wanted) -> (Store, Draw)
    can_sample: Callable  # (Store, step) -> bool []


@struct.dataclass
class Draw:
    """What was drawn, best fit first; rows that are not `drawn` hold nothing to learn from."""

    entries: Entries  # [draw]
    drawn: jax.Array  # bool [draw]
    slot: jax.Array  # i32 [draw]


def make_buffer(settings: BufferSettings, draws: int) -> Buffer:
    """Bind the sizes; `draws` is the most rows one `sample` hands out."""
    capacity = settings.capacity
    if not 1 <= draws <= capacity:
        raise ValueError(f'draws must be in 1..capacity ({capacity}), got {draws}')

    def init(example: Entries) -> Store:
        empty = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
        return Store(empty, jnp.zeros(capacity, bool))

    def add(store: Store, rows: Entries, keep, step) -> Store:
        """Of store and kept rows together the `capacity` most valuable stay; equals: the newest."""
        chex.assert_shape(keep, rows.task.shape)
        count = rows.task.shape[0]
        rows = rows.replace(
            added=jnp.full(count, step, jnp.int32), reuse=jnp.zeros(count, jnp.int32)
        )
        both = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), store.entries, rows)
        alive = jnp.concatenate([store.filled, keep & jnp.isfinite(rows.episode_return)])
        value = entry_value(both, alive, step, settings)
        stays = alive & (_rank(value, both.added, alive) < capacity)
        return _settle(store, rows, stays[:capacity], stays[capacity:])

    def sample(store: Store, key, weight, step, wanted) -> tuple[Store, Draw]:
        """`wanted` entries, none twice, by weight (Gumbel top-k, arxiv.org/abs/1903.06059)."""
        chex.assert_shape(weight, (capacity,))
        may = drawable(store, step, settings) & (weight > 0)
        order = jnp.log(jnp.where(may, weight, 1.0)) + jax.random.gumbel(key, (capacity,))
        order, slot = jax.lax.top_k(jnp.where(may, order, -jnp.inf), draws)
        drawn = jnp.isfinite(order) & (jnp.arange(draws) < wanted)
        reuse = store.entries.reuse.at[slot].add(drawn.astype(jnp.int32))
        store = store.replace(entries=store.entries.replace(reuse=reuse))
        return store, Draw(jax.tree.map(lambda x: x[slot], store.entries), drawn, slot)

    def can_sample(store: Store, step):
        return drawable(store, step, settings).sum() >= settings.minimum

    return Buffer(init, jax.jit(add), jax.jit(sample), jax.jit(can_sample))


def entry_value(entries: Entries, alive, step, settings: BufferSettings):
    """return - age - reuse - familiarity - crowding, f32 [row], each at its cost.

    Crowding sums the likeness to entries of its task that are worth more without it, or as much and
    newer.
    """
    value = (
        entries.episode_return
        - settings.age_cost * (step - entries.added)
        - settings.reuse_cost * entries.reuse
        - settings.familiar_cost * entries.familiar
    )
    rank = _rank(value, entries.added, alive)
    same = (entries.task[:, None] == entries.task[None, :]) & alive[None, :]
    better = same & (rank[None, :] < rank[:, None])
    alike = jnp.where(better, likeness(entries.actions, entries.actions), 0.0)
    return value - settings.crowding_cost * alike.sum(axis=1)


def drawable(store: Store, step, settings: BufferSettings):
    """bool [slot]: used less often than the limit, and by a policy that is not too old.

    Age limits what is weighed by log-probabilities; a demonstration has none and stays fresh.
    """
    entries = store.entries
    fresh_enough = (step - entries.version <= settings.age_limit) | ~entries.has_behaviour
    return store.filled & fresh_enough & (entries.reuse < settings.reuse_limit)


def task_weight(store: Store, tasks):
    """f32 [slot]: 1 for entries of the tasks named (i32 [task]), 0 for the others."""
    return jnp.isin(store.entries.task, tasks).astype(jnp.float32)


def rescore(store: Store, weight) -> Store:
    """Returns under the reward weights of now (f32 [term]): two schedules are never compared."""
    chex.assert_shape(weight, (store.entries.reward.shape[1],))
    return store.replace(
        entries=store.entries.replace(episode_return=store.entries.reward @ weight)
    )


def acquaint(store: Store, fresh: Entries, solved) -> Store:
    """Note how often fresh attempts (one a row) solve their tasks (bool [row]) as entries do.

    An entry of a task that none of them is about keeps what was known of it.
    """
    chex.assert_equal_shape([fresh.task, solved])
    same = store.entries.task[:, None] == fresh.task[None, :]
    alike = likeness(store.entries.actions, fresh.actions) * solved
    rate = jnp.sum(alike, where=same, axis=1) / jnp.maximum(same.sum(axis=1), 1)
    familiar = jnp.where(same.any(axis=1), rate, store.entries.familiar)
    return store.replace(entries=store.entries.replace(familiar=familiar))


def _rank(value, added, alive):
    """i32 [row]: 0 for the most valuable; equals by newest, then by place; the dead come last."""
    place = jnp.arange(value.shape[0])
    order = jnp.lexsort((place, -added, -value, ~alive))
    return jnp.zeros_like(place).at[order].set(place)


def _settle(store: Store, rows: Entries, stays, enters) -> Store:
    """Rows that enter take the slots that nobody holds any more, in order."""
    capacity = stays.shape[0]
    free = jnp.argsort(stays, stable=True)
    turn = jnp.minimum(jnp.cumsum(enters) - 1, capacity - 1)
    slot = jnp.where(enters, free[turn], capacity)  # out of range: this row writes nowhere

    def write(old, new):
        return old.at[slot].set(new, mode='drop')

    return Store(jax.tree.map(write, store.entries, rows), write(stays, True))
