"""Fresh and cached rows as one batch.  Trajectories in, rows with group, kind and origin out.

How much of a batch is cached is decided on the host, from the step.  A share of 0 draws nothing and
adds no row, so that what follows is plain GRPO bit for bit.
"""

import dataclasses
from typing import Literal

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.rollout_cache.buffer import Draw
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.schedule import Schedule
from cacherl_jax.trajectory import Trajectory

FRESH, CACHED, SUPERVISED, LEFT_OUT = range(4)  # kinds of rows, as the update numbers them


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixSettings:
    """How many rows are cached, and how they teach."""

    share: Schedule = Schedule(start=0.8, end=0.2, steps=200, shape='linear')  # cached of all rows
    mode: Literal['behaviour', 'supervised', 'by_record'] = 'by_record'  # see `row_kind`

    def __post_init__(self):
        if not all(0 <= value < 1 for value in self.share.values):
            raise ValueError(f'share must stay in [0, 1), got {self.share.values}')
        if self.mode not in ('behaviour', 'supervised', 'by_record'):
            raise ValueError(f'mode must be behaviour, supervised or by_record, got {self.mode!r}')


@struct.dataclass
class Mixed:
    """Fresh rows first, cached ones after them."""

    trajectory: Trajectory
    reward: jax.Array  # f32  [row]  under the weights of now
    group: jax.Array  # i32  [row]  rows of one task share it
    fresh: jax.Array  # bool [row]
    counted: jax.Array  # bool [row]  False for spoiled rows and for draws that came up empty
    kind: jax.Array  # i32  [row]


def cached_rows(share: float, fresh_rows: int) -> int:
    """How many rows make up `share` beside the fresh ones: share = cached / (cached + fresh)."""
    if not 0 <= share < 1:
        raise ValueError(f'share must be in [0, 1), got {share}')
    return round(share / (1 - share) * fresh_rows)


def refuse_without_behaviour(mode: str, has_behaviour) -> None:
    """Rows without log-probabilities have no ratio: only cross-entropy may teach from them."""
    missing = sum(not known for known in has_behaviour)
    if mode == 'behaviour' and missing:
        raise ValueError(
            f'{missing} rows have no behaviour log-probabilities: mode must be supervised or '
            'by_record for them, got behaviour'
        )


def row_kind(has_behaviour, drawn, mode: str):
    """i32 [draw]: by its ratio where log-probabilities exist, by cross-entropy where they do not.

    `supervised` teaches all by cross-entropy; `behaviour` leaves out what has no log-probabilities.
    """
    chex.assert_equal_shape([has_behaviour, drawn])
    known = SUPERVISED if mode == 'supervised' else CACHED
    unknown = LEFT_OUT if mode == 'behaviour' else SUPERVISED
    return jnp.where(drawn, jnp.where(has_behaviour, known, unknown), LEFT_OUT)


def mix(
    fresh: Trajectory, task, reward, counted, draw: Draw | None, settings: MixSettings
) -> Mixed:
    """Rows of one task form one group, fresh or cached alike."""
    chex.assert_equal_shape([task, reward, counted, fresh.length])
    rows = task.shape[0]
    # The group of a row is the first fresh row of its task: no number is taken twice, none is text.
    group = jnp.argmax(task[:, None] == task[None, :], axis=1).astype(jnp.int32)
    kind = jnp.where(counted, FRESH, LEFT_OUT)
    plain = Mixed(fresh, reward, group, jnp.ones(rows, bool), counted, kind)
    if draw is None:
        return plain
    cached = draw.entries
    chex.assert_equal_shape([fresh.tokens[0], cached.trajectory.tokens[0]])
    same = cached.task[:, None] == task[None, :]
    own = rows + jnp.argmax(cached.task[:, None] == cached.task[None, :], axis=1)
    kind = row_kind(cached.has_behaviour, draw.drawn, settings.mode)
    # A failure is for contrast: it may be compared with, never imitated.
    failed = (cached.source == Source.FAILURE) & (kind == SUPERVISED)
    kind = jnp.where(failed, LEFT_OUT, kind)
    more = Mixed(
        trajectory=cached.trajectory,
        reward=cached.episode_return,
        group=jnp.where(same.any(axis=1), jnp.argmax(same, axis=1), own).astype(jnp.int32),
        fresh=jnp.zeros(draw.drawn.shape, bool),
        # An example is imitated, not compared: it moves no baseline.
        counted=draw.drawn & (kind == CACHED),
        kind=kind,
    )
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), plain, more)
