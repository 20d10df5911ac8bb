"""A workload through the decoder: prompts read once, turns sampled, tool tokens forced in.

What a rollout with tools does, with ids in place of texts: each turn ends at its limit, and the
answer to it is given beforehand.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cacherl_jax import keys
from cacherl_jax.bench.workloads import RolloutWork
from cacherl_jax.mesh import row_shares
from cacherl_jax.policy.decode import Decoder, make_decoder
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.policy.slots import DecodeSettings, Rest
from cacherl_jax.run.fetch import fetch
from cacherl_jax.trajectory import Trajectory

WIDTH_TOKENS = 16  # the cache is read in multiples of this: one program for each that is met


def decoder_of(
    shape: Shape, work: RolloutWork, sampling: SamplingSettings, mesh: Mesh, dtype=jnp.float32
) -> Decoder:
    """A decoder with a slot for each row, and room for all of its turns, over the devices."""
    settings = DecodeSettings(
        slots=work.rows,
        share=math.gcd(work.rows // row_shares(mesh), work.group),
        context_tokens=work.row_tokens,
        turn_tokens=work.turn_tokens,
        episode_tokens=work.row_tokens,
        segment_tokens=work.turn_tokens,
        widths=(*range(WIDTH_TOKENS, work.row_tokens, WIDTH_TOKENS), work.row_tokens),
    )
    return make_decoder(shape, settings, sampling, (shape.vocab,), dtype, mesh)  # no id ends a turn


@functools.partial(jax.jit, static_argnames='rows')
def row_keys(number: int, rows: int) -> jax.Array:
    """key [row] of one episode's sampling; the same program for every player of so many rows."""
    return jax.random.split(keys.stream(keys.root(0), 'play', number), rows)


def make_player(
    decoder: Decoder, params: Params, work: RolloutWork, prompts: np.ndarray, tools: np.ndarray
) -> Callable[[int], Trajectory]:
    """play(number) -> rows; another number draws other tokens.

    prompts i32 [prompt, token]; tools i32 [turn - 1, row, token].
    """
    slots = np.arange(work.rows).reshape(work.prompts, work.group)

    def play(number: int) -> Trajectory:
        state, own, held = decoder.init(), row_keys(number, work.rows), decoder.adopt(params)
        read = decoder.prefill(held, prompts.tolist())
        for prompt, group in zip(read, slots, strict=True):
            state = decoder.admit(state, prompt, jnp.asarray(group), own[group])
        for turn, start in enumerate(work.turn_starts):
            if turn:
                blocks = dict(enumerate(tools[turn - 1].tolist()))
                state = decoder.append(held, state, blocks, start - work.prompt_tokens)
            state = _sample_turn(decoder, held, state, work.prompt_tokens, start)
        return state.rows

    return play


def _sample_turn(decoder, params, state, prompt_tokens, start):
    """Segments until every row rests; the host reads each report, as a rollout's does."""
    written = start
    while True:
        state, report = decoder.segment(params, state, written - prompt_tokens)
        report = fetch(report)
        written = int(report.length.max())
        if (report.status != Rest.RUNNING).all():
            return state


def check(rows: Trajectory, work: RolloutWork) -> None:
    """Raises AssertionError where the rows are not what the workload asks for."""
    rows = fetch(rows)
    lengths, sampled = set(rows.length.tolist()), int(rows.sampled.sum())
    if lengths != {work.row_tokens} or sampled != work.sampled_tokens:
        raise AssertionError(
            f'rows must have {work.row_tokens} tokens and {work.sampled_tokens} sampled ones '
            f'together, got lengths {sorted(lengths)} and {sampled}'
        )
