"""Finished episodes as a pytree of arrays, one a row.  Made by the rollout, read by reward, cache and update."""

import jax
from flax import struct


@struct.dataclass
class Trajectory:
    """Rows of one rollout are group-major: row = group * samples + sample.  Padding is known by length."""

    tokens: jax.Array  # i32  [row, token]  prompt, calls, results and answer, in order; 0 past length
    length: jax.Array  # i32  [row]         tokens in use
    sampled: jax.Array  # bool [row, token]  the policy chose this token (False: forced or padding)
    logprob: jax.Array  # f32  [row, token]  natural log, of the distribution sampled from; 0 where forced
    turn: jax.Array  # i32  [row, token]  the assistant turn a position belongs to; -1 in the prompt
