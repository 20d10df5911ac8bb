"""A learned reward: a linear head on the policy's trunk, trained on pairs.  Pure device code.

    r(row) = weight · hidden[length − 1] + bias
    loss   = mean over pairs of −log sigmoid(r(chosen) − r(rejected))      (Bradley-Terry)

sigmoid(r) is a score in [0, 1].  Pairs leave the bias open; `centred` sets it so that one half lies
between the chosen and the rejected.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from cacherl_jax.policy.logprob import hidden_states
from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.rewards.arrays_file import expect_shapes, load_arrays, save_arrays

KIND = 'reward model head'
Head = dict[str, jax.Array]  # weight f32 [embed], bias f32 []


@struct.dataclass
class Rows:
    """Tokenised episodes."""

    tokens: jax.Array  # i32 [row, token]
    length: jax.Array  # i32 [row]         tokens in use; 0: no row


def init_head(shape: Shape) -> Head:
    """All 0: every row is worth 0, and a pair is undecided."""
    return {'weight': jnp.zeros(shape.embed), 'bias': jnp.zeros(())}


def row_rewards(
    head: Head, trunk: Params, shape: Shape, rows: Rows, *, remat: bool = False
) -> jax.Array:
    """weight · hidden[length − 1] + bias, f32 [row]; 0 for a row of no tokens."""
    chex.assert_rank([rows.tokens, rows.length], [2, 1])
    chex.assert_shape(head['weight'], (shape.embed,))
    hidden = hidden_states(trunk, shape, rows.tokens, remat=remat)
    last = jnp.maximum(rows.length - 1, 0)[:, None, None]
    final = jnp.take_along_axis(hidden, last, axis=1)[:, 0].astype(jnp.float32)
    return jnp.where(rows.length > 0, final @ head['weight'] + head['bias'], 0.0)


def preference_loss(chosen: jax.Array, rejected: jax.Array, counted: jax.Array) -> jax.Array:
    """mean −log sigmoid(chosen − rejected) over the counted pairs; 0 where there is none.  f32 []

    arxiv.org/abs/2203.02155; log(1 + e^−x) is computed without overflow.
    """
    chex.assert_equal_shape([chosen, rejected, counted])
    each = jax.nn.softplus(rejected - chosen)
    return jnp.sum(each, where=counted) / jnp.maximum(jnp.sum(counted), 1)


def centred(head: Head, chosen: jax.Array, rejected: jax.Array) -> Head:
    """The head with the bias that puts the middle between both means at 0."""
    chex.assert_rank([chosen, rejected], 1)
    middle = (chosen.mean() + rejected.mean()) / 2
    return head | {'bias': head['bias'] - middle}


class Learner(NamedTuple):
    """What training changes."""

    head: Head
    trunk: Params
    memory: Any  # of the optimizer


class Training(NamedTuple):
    """`init(trunk)` is a Learner; `step(learner, chosen, rejected)` a new one and metrics."""

    init: Callable[[Params], Learner]
    step: Callable[[Learner, Rows, Rows], tuple[Learner, dict[str, jax.Array]]]


def make_training(
    shape: Shape, optimizer: optax.GradientTransformation, *, whole: bool = False
) -> Training:
    """Pairwise training of the head, or of head and trunk where `whole`."""

    def part(head, trunk):
        return {'head': head, 'trunk': trunk} if whole else {'head': head}

    def loss(learned, trunk, chosen, rejected):
        head, trunk = learned['head'], learned.get('trunk', trunk)
        better, worse = (row_rewards(head, trunk, shape, rows) for rows in (chosen, rejected))
        counted = (chosen.length > 0) & (rejected.length > 0)
        right = jnp.sum(better > worse, where=counted) / jnp.maximum(jnp.sum(counted), 1)
        return preference_loss(better, worse, counted), right

    def init(trunk):
        head = init_head(shape)
        return Learner(head, trunk, optimizer.init(part(head, trunk)))

    @functools.partial(jax.jit, donate_argnames='memory')
    def change(learned, memory, trunk, chosen, rejected):
        found, gradient = jax.value_and_grad(loss, has_aux=True)(learned, trunk, chosen, rejected)
        step, memory = optimizer.update(gradient, memory, learned)
        metrics = {'reward_model/loss': found[0], 'reward_model/accuracy': found[1]}
        metrics['reward_model/gradient_norm'] = optax.tree.norm(gradient)
        return optax.apply_updates(learned, step), memory, metrics

    def step(learner, chosen, rejected):
        chex.assert_equal_shape([chosen.length, rejected.length])
        learned, memory, metrics = change(
            part(learner.head, learner.trunk), learner.memory, learner.trunk, chosen, rejected
        )
        trunk = learned.get('trunk', learner.trunk)
        return Learner(learned['head'], trunk, memory), metrics

    return Training(init, step)


def save_head(folder: str | os.PathLike, head: dict[str, np.ndarray], trunk: str) -> None:
    """`trunk` names the policy that the head belongs to; the arrays are on the host already."""
    arrays = {'weight': head['weight'], 'bias': np.reshape(head['bias'], 1)}
    save_arrays(folder, KIND, arrays, {'trunk': trunk})


def trunk_of(folder: str | os.PathLike) -> str:
    """The name of the policy that the head in a folder belongs to."""
    return str(load_arrays(folder, KIND)[1].get('trunk'))


def load_head(folder: str | os.PathLike, shape: Shape, trunk: str) -> Head:
    """As saved; refused where it was made for another trunk or another width."""
    arrays, about = load_arrays(folder, KIND)
    if about.get('trunk') != trunk:
        raise ValueError(f'{folder} is a head for {about.get("trunk")!r}, the trunk is {trunk!r}')
    expect_shapes(folder, arrays, {'weight': (shape.embed,), 'bias': (1,)})
    return {'weight': jnp.asarray(arrays['weight']), 'bias': jnp.asarray(arrays['bias'][0])}
