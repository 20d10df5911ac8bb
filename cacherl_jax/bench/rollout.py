"""W2 and W3: a workload played through the decoder, timed, held against what the machine can."""

import dataclasses
import itertools
from collections.abc import Sequence

import jax.numpy as jnp

from cacherl_jax.bench.limits import matmul_rate, read_rate
from cacherl_jax.bench.measured import Measured
from cacherl_jax.bench.peers import against_peers
from cacherl_jax.bench.play import check, decoder_of, make_player
from cacherl_jax.bench.settings import DTYPES, BenchSettings
from cacherl_jax.bench.workloads import (
    MODELS,
    RolloutWork,
    parameters,
    read_flops,
    rollout_work,
    sample_bytes,
    sample_flops,
)
from cacherl_jax.mesh import make_mesh, shard_params
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.run.timing import counting_programs, peak_bytes, timed

GREEDY = SamplingSettings(temperature=0.0)


def least_seconds(shape: Shape, work: RolloutWork, dtype) -> tuple[float, float]:
    """Of an episode: at the matmul rate; and with reading memory where that takes longer."""
    block = work.rows * work.tool_tokens if work.turns > 1 else work.prompt_tokens
    reading = read_flops(shape, work) / matmul_rate(shape, block, dtype)
    sampling = sample_flops(shape, work) / matmul_rate(shape, work.rows, dtype)
    read = sample_bytes(shape, work, jnp.dtype(dtype).itemsize) / read_rate()
    return reading + sampling, reading + max(sampling, read)


def measure_play(
    workload: str,
    work: RolloutWork,
    settings: BenchSettings,
    sampling: SamplingSettings = SamplingSettings(),
    with_peers: bool = True,
) -> Measured:
    """Tokens per second of `work` on the model that the settings name."""
    shape, dtype = MODELS[settings.model], DTYPES[settings.dtype]
    peers = settings.peers.chosen(workload, settings.model) if with_peers else ()
    mesh = make_mesh(settings.mesh)
    params = shard_params(parameters(shape, dtype), mesh)
    decoder = decoder_of(shape, work, sampling, mesh, dtype)
    play = make_player(decoder, params, work, *work.inputs(shape.vocab))
    numbers = itertools.count()
    timing, outcomes = against_peers(
        lambda: play(next(numbers)), settings.repetitions, peers, settings.peers
    )
    check(play(0), work)
    peak = peak_bytes()  # before the limits are measured on arrays of their own
    matmul_seconds, floor_seconds = least_seconds(shape, work, dtype)
    return Measured(
        workload=workload,
        model=settings.model,
        variant=f'rows {work.rows}, turns {work.turns}, {work.turn_tokens} tokens in each',
        tokens=work.sampled_tokens,
        timing=timing,
        matmul_seconds=matmul_seconds,
        floor_seconds=floor_seconds,
        peak_bytes=peak,
        peers=outcomes,
    )


GROWTH_COLUMNS = (
    'turns',
    'tokens a row',
    'sampled/s',
    'of the first',
    'all tokens/s',
    'of its first',
    'of roofline',
    'programs made',
)


def growth(settings: BenchSettings, turns: Sequence[int]) -> list[list]:
    """A row of the columns above for each number of turns, all played by one decoder.

    It has met all of its widths before, for the number of programs hangs on those alone.  More
    turns read more answers and remember more: `all tokens` are those read, a prompt once for its
    group, or sampled, and the share of the roofline tells what had to be done from lost time.
    """
    shape, dtype = MODELS[settings.model], DTYPES[settings.dtype]
    works = [dataclasses.replace(rollout_work(settings.model), turns=count) for count in turns]
    longest = max(works, key=lambda work: work.row_tokens)
    mesh = make_mesh(settings.mesh)
    decoder = decoder_of(shape, longest, SamplingSettings(), mesh, dtype)
    params, rows, first = shard_params(parameters(shape, dtype), mesh), [], None
    make_player(decoder, params, longest, *longest.inputs(shape.vocab))(0)
    for work in works:
        play = make_player(decoder, params, work, *work.inputs(shape.vocab))
        with counting_programs() as made:
            timing = timed(lambda play=play: play(0), settings.repetitions)
        check(play(0), work)
        rates = [tokens / timing.seconds for tokens in (work.sampled_tokens, work.tokens)]
        first = first or rates
        of_first = [f'{rate / one:.0%}' for rate, one in zip(rates, first, strict=True)]
        told = [number for pair in zip(rates, of_first, strict=True) for number in pair]
        share = least_seconds(shape, work, dtype)[1] / timing.seconds
        rows.append([work.turns, work.row_tokens, *told, f'{share:.0%}', len(made)])
    return rows
