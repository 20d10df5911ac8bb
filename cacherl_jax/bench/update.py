"""W1 through the public update: reference log-probabilities, gradient, clipping, AdamW."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.tree_util import Partial

from cacherl_jax.bench.limits import matmul_rate
from cacherl_jax.bench.measured import Measured
from cacherl_jax.bench.peers import against_peers
from cacherl_jax.bench.settings import DTYPES, BenchSettings
from cacherl_jax.bench.workloads import (
    MODELS,
    UpdateWork,
    parameters,
    update_flops,
    update_work,
)
from cacherl_jax.grpo.loss import FRESH, Batch, LossSettings
from cacherl_jax.grpo.reference import make_reference
from cacherl_jax.grpo.sharing import prompts_of
from cacherl_jax.grpo.update import UpdateSettings, as_it_is, make_update, raise_if_refused
from cacherl_jax.mesh import make_mesh, row_placement, row_shares, shard_params
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.timing import counting_programs, peak_bytes, timed
from cacherl_jax.trajectory import Trajectory

# A mean over each row's tokens, then over rows; the reference at 0.04: what peers run as "grpo".
LOSS = LossSettings(kl_weight=0.04, aggregation='sequence')
WIDTH_TOKENS = 16  # rows behind a prompt are padded to a multiple of this
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-6))


@functools.cache
def make_scorer(
    shape: Shape, compute, remat: bool = False, mesh: Mesh | None = None, attention='chunked'
) -> Partial:
    """score(params, tokens, length, sampled, ...) with the parameters as type `compute`.

    The same function for the same words, so that what scores with it is compiled once.
    """

    def scored(params, tokens, length, sampled, **apart):
        params = jax.tree.map(lambda leaf: leaf.astype(compute), params)
        how = {'remat': remat, 'mesh': mesh, 'attention': attention}
        return score(params, shape, tokens, sampled, **how, **apart)

    return Partial(scored)


def rows_of(work: UpdateWork, vocab: int) -> tuple[Trajectory, jax.Array]:
    """The rows of a workload, log-probabilities not yet known, and their rewards."""
    ids, sampled, reward = work.inputs(vocab)
    rows = Trajectory(
        tokens=jnp.asarray(ids),
        length=jnp.full(work.rows, work.row_tokens, jnp.int32),
        sampled=jnp.asarray(sampled),
        logprob=jnp.zeros(ids.shape, jnp.float32),
        turn=jnp.where(jnp.asarray(sampled), 0, -1),
    )
    return rows, jnp.asarray(reward)


def advantages(reward: jax.Array, group: int) -> jax.Array:
    """(r - mean) / deviation within a group, f32 [row]."""
    grouped = reward.reshape(-1, group)
    centred = grouped - grouped.mean(1, keepdims=True)
    return (centred / (grouped.std(1, ddof=1, keepdims=True) + 1e-4)).reshape(-1)


def batch_of(rows: Trajectory, advantage: jax.Array) -> Batch:
    """A batch of fresh rows whose reference is still to come."""
    return Batch(
        tokens=rows.tokens,
        length=rows.length,
        sampled=rows.sampled,
        behaviour_logprob=rows.logprob,
        reference_logprob=jnp.zeros_like(rows.logprob),
        advantage=jnp.broadcast_to(advantage[:, None], rows.tokens.shape),
        kind=jnp.full(rows.length.shape, FRESH, jnp.int32),
    )


def update_settings(work: UpdateWork, share: bool) -> UpdateSettings:
    """Widths that the rows fit: alone, or behind the prompt that a group shares."""
    behind = work.row_tokens - work.prompt_tokens + 1
    shared = {work.prompt_tokens, -(-behind // WIDTH_TOKENS) * WIDTH_TOKENS}
    return UpdateSettings(
        micro_rows=work.micro_rows,
        widths=(work.row_tokens,),
        shared_widths=tuple(sorted(shared)) if share else (),
        loss=LOSS,
    )


def make_step(
    shape: Shape,
    work: UpdateWork,
    params: Params,
    scorer: Partial,
    optimizer: optax.GradientTransformation = OPTIMIZER,
    place: Callable = as_it_is,
    beside: int = 1,
    share: bool = True,
) -> Callable[[], dict[str, Any]]:
    """step() does one update with its reference and returns the update's metrics.

    The rows are taken as sampled by `params`; the reference stays at `params`, the policy moves.
    Rows of a group `share` their prompt.  Metrics are of the policy before its step: the first ones
    find it where the reference is.
    """
    settings = update_settings(work, share)
    update = make_update(scorer, optimizer, settings, place, beside)
    reference = make_reference(scorer, settings, place, beside)
    rows, reward = rows_of(work, shape.vocab)
    begun = np.full(work.rows, work.row_tokens), prompts_of(*fetch((rows.tokens, rows.sampled)))
    rows = rows.replace(logprob=reference(params, rows, *begun))
    batch = batch_of(rows, advantages(reward, work.group))
    learner = update.init(params)

    def step():
        nonlocal learner
        held = batch.replace(reference_logprob=reference(params, rows, *begun))
        learner, metrics = update.update(learner, held, *begun)
        return metrics

    return step


def _laid_out(settings: BenchSettings, mesh: Mesh) -> dict[str, Any]:
    """How a step cuts its rows; a fused attention knows nothing of shared prompts."""
    share = settings.attention == 'chunked'
    return {'place': row_placement(mesh), 'beside': row_shares(mesh), 'share': share}


def check(metrics: dict[str, Any], work: UpdateWork) -> None:
    """Raises ValueError or AssertionError where the update did not teach what it was given."""
    metrics = fetch(metrics)
    raise_if_refused(metrics)
    if metrics['update/tokens'] != work.sampled_tokens:
        raise AssertionError(
            f'{work.sampled_tokens} tokens were to be learned, got {metrics["update/tokens"]}'
        )


def measure_update(settings: BenchSettings) -> Measured:
    """W1 on the model that the settings name; parameters and their update stay float32."""
    shape, work, dtype = MODELS[settings.model], update_work(settings.model), DTYPES[settings.dtype]
    peers = settings.peers.chosen('W1', settings.model)
    mesh = make_mesh(settings.mesh)
    params = shard_params(parameters(shape), mesh)
    scorer = make_scorer(shape, dtype, mesh=mesh, attention=settings.attention)
    step = make_step(shape, work, params, scorer, **_laid_out(settings, mesh))
    timing, outcomes = against_peers(step, settings.repetitions, peers, settings.peers)
    check(step(), work)
    peak = peak_bytes()  # before the limits are measured on arrays of their own
    rate = matmul_rate(shape, work.micro_rows * work.row_tokens, dtype)
    seconds = update_flops(shape, work) / rate
    return Measured(
        workload='W1',
        model=settings.model,
        variant=f'rows {work.rows}, tokens {work.row_tokens}, {work.micro_rows} rows at a time',
        tokens=work.tokens,
        timing=timing,
        matmul_seconds=seconds,
        floor_seconds=seconds,
        peak_bytes=peak,
        peers=outcomes,
    )


GROWTH_COLUMNS = ('rows', 'tokens', 'tokens/s', 'of the first', 'programs made')


def growth(settings: BenchSettings, groups: Sequence[int]) -> list[list]:
    """A row of the columns above for each number of groups in the batch."""
    shape, work, dtype = MODELS[settings.model], update_work(settings.model), DTYPES[settings.dtype]
    mesh = make_mesh(settings.mesh)
    params = shard_params(parameters(shape), mesh)
    scorer = make_scorer(shape, dtype, mesh=mesh, attention=settings.attention)
    rows, first = [], None
    for count in groups:
        more = dataclasses.replace(work, rows=count * work.group)
        with counting_programs() as made:
            step = make_step(shape, more, params, scorer, **_laid_out(settings, mesh))
            timing = timed(step, settings.repetitions)
        check(step(), more)
        rate = more.tokens / timing.seconds
        first = first or rate
        rows.append([more.rows, more.tokens, rate, f'{rate / first:.0%}', len(made)])
    return rows
