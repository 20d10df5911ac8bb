"""Finished episodes as arrays, one a row.  Made by the rollout, read by rewards, cache, update."""

import jax
from flax import struct


@struct.dataclass
class Trajectory:
    """Rows of a rollout are group-major: row = group * samples + sample.  Length tells padding."""

    tokens: jax.Array  # i32  [row, token]  prompt, calls, results, answer in order; 0 past length
    length: jax.Array  # i32  [row]         tokens in use
    sampled: jax.Array  # bool [row, token]  the policy chose this token (False: forced or padding)
    logprob: jax.Array  # f32  [row, token]  natural log, of the distribution sampled; 0 if forced
    turn: jax.Array  # i32  [row, token]  the assistant turn a position belongs to; -1 in the prompt
