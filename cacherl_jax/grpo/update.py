"""One update of the policy.  Learner and Batch in, Learner and metrics out; scoring is handed in.

Rows are ordered by length on the host, cut into micro-batches, and each micro-batch to the smallest
of a few widths that holds it: the number of compiled programs is the number of widths.  Or they are
packed first, several in one of these widths (grpo/packing.py).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import Partial

from cacherl_jax.grpo.cutting import minibatches, plan_micro_batches, take, take_packed
from cacherl_jax.grpo.loss import (
    LEFT_OUT,
    Batch,
    LossSettings,
    denominators,
    numerators,
    term_values,
    total,
)
from cacherl_jax.grpo.measures import batch_facts, term_means, token_means, token_sums
from cacherl_jax.grpo.packing import plan_packed
from cacherl_jax.grpo.sharing import Prompts, plan_shared


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """How a batch is cut, and how often it is used."""

    micro_rows: int = 8  # rows scored at once
    widths: tuple[int, ...] = (512, 1024, 2048, 4096)  # tokens; ascending; one program each
    epochs: int = 1  # passes over one batch
    minibatches: int = 1  # optimizer steps of a pass; each takes its share of every group's rows
    pack: bool = False  # several rows in one where that is less; widths may exceed the context
    # Of prompts, and of what follows them, where rows of a group share what their prompt costs; a
    # program for each pair that is met.  None: each row has a prompt of its own.
    shared_widths: tuple[int, ...] = ()  # tokens; ascending
    loss: LossSettings = dataclasses.field(default_factory=LossSettings)

    def __post_init__(self):
        if self.micro_rows < 1:
            raise ValueError(f'micro_rows must be 1 or more, got {self.micro_rows}')
        for name in ('epochs', 'minibatches'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be 1 or more, got {getattr(self, name)}')
        for name in ('widths', 'shared_widths'):
            widths = getattr(self, name)
            if min(widths, default=1) < 1 or list(widths) != sorted(set(widths)):
                raise ValueError(f'{name} must ascend from 1 or more, got {widths}')
        if not self.widths:
            raise ValueError('widths must name at least one width, got none')


@struct.dataclass
class Learner:
    """What an update changes.  It is used up by the update that takes it."""

    params: Any
    optimizer_state: Any
    step: jax.Array  # i32 []  optimizer steps taken


class Update(NamedTuple):
    init: Callable  # (params) -> Learner
    update: Callable  # (Learner, Batch, lengths, prompts=None) -> (Learner, metrics)


APART = ('position', 'segment', 'split')  # what keeps packed rows apart


class Programs(NamedTuple):
    """The compiled parts of an update that do not depend on the optimizer."""

    cut: Callable  # (batch, rows, width) -> Batch [micro_row, width]
    pack: Callable  # (batch, packing, split=None) -> Batch [packed row, width]
    accumulate: Callable  # (gradient, params, score, micro, divisors) -> (gradient, sums)
    begin: Callable  # (batch, planned) -> (divisors, facts)
    add_sums: Callable  # (sums, sums) -> sums


@functools.cache
def programs(loss: LossSettings, place: Callable[[Batch], Batch]) -> Programs:
    """Made once for a loss, so that updates with other optimizers share what is compiled.

    A micro-batch is cut out before it is scored: how many rows the batch has compiles a copy anew,
    not a gradient.
    """

    def objective(params, score, micro: Batch, divisors):
        apart = {n: told for n in APART if (told := getattr(micro, n)) is not None}
        logprob, entropy, *value = score(params, micro.tokens, micro.length, micro.sampled, **apart)
        sums = numerators(term_values(logprob, entropy, micro, loss, *value), micro, loss)
        measured = token_sums(jax.lax.stop_gradient(logprob), entropy, micro, loss)
        return total(sums, divisors, loss), {'terms': sums, 'tokens': measured}

    @functools.partial(jax.jit, donate_argnames='gradient')
    def accumulate(gradient, params, score, micro, divisors):
        new, measured = jax.grad(objective, has_aux=True)(params, score, place(micro), divisors)
        gradient = jax.tree.map(lambda old, g: old + g.astype(old.dtype), gradient, new)
        return gradient, measured

    @jax.jit
    def begin(batch, planned):
        batch = batch.replace(kind=jnp.where(planned, batch.kind, LEFT_OUT))
        return denominators(batch, loss), batch_facts(batch)

    @jax.jit
    def add_sums(sums, measured):
        return jax.tree.map(jnp.add, sums, measured)

    cut = jax.jit(take, static_argnames='width')
    return Programs(cut, jax.jit(take_packed, static_argnames='split'), accumulate, begin, add_sums)


def as_it_is(micro):
    """Lays nothing out: one device has it all."""
    return micro


def make_update(
    score: Callable,
    optimizer: optax.GradientTransformation,
    settings: UpdateSettings,
    place: Callable[[Batch], Batch] = as_it_is,
    beside: int = 1,
) -> Update:
    """Bind how to score, how to step and how to cut.

    `score(params, tokens, length, sampled)` gives log-probability and entropy, f32 [row, token],
    and a critic's value where batches have targets for it; where rows are packed it is given their
    `position`, `segment` and `split` by name as well.
    Arrays it needs and does not learn are bound with `jax.tree_util.Partial`: they become arguments
    of the compiled program, not constants in it.  `place` may lay a micro-batch out over `beside`
    devices.
    """
    score = score if isinstance(score, Partial) else Partial(score)
    run = programs(settings.loss, place)

    @functools.partial(jax.jit, donate_argnames='learner')
    def apply(learner, gradient, sums, divisors, facts):
        norm = optax.tree.norm(gradient)
        metrics = term_means(sums['terms'], divisors) | token_means(sums['tokens']) | facts
        metrics['loss/total'] = total(sums['terms'], divisors, settings.loss)
        metrics['update/gradient_norm'] = norm
        refused = (facts['update/tokens'] == 0) | ~jnp.isfinite(norm)
        metrics['update/refused'] = refused.astype(jnp.float32)
        return _keep_if(refused, learner, _step(optimizer, learner, gradient)), metrics

    def init(params) -> Learner:
        params = jax.tree.map(jnp.copy, params)  # updates use up what they take, the caller's never
        return _settled(Learner(params, optimizer.init(params), jnp.int32(0)))

    def micro_batches(batch: Batch, lengths, prompts) -> Iterator[Batch]:
        if prompts is not None:
            sizes = settings.micro_rows, settings.widths, settings.shared_widths
            shared, lengths = plan_shared(lengths, prompts, *sizes, beside)
            for packing, split in shared:
                yield run.pack(batch, packing, split=split)
            if not lengths.any():
                return
        if settings.pack:
            for packing in plan_packed(lengths, settings.micro_rows, settings.widths):
                yield run.pack(batch, packing)
            return
        for rows, width in plan_micro_batches(lengths, settings.micro_rows, settings.widths):
            yield run.cut(batch, rows, width=min(width, batch.tokens.shape[1]))

    def update(learner: Learner, batch: Batch, lengths, prompts: Prompts | None = None):
        """`lengths`, on the host, says how long each row is; 0 leaves a row out.

        With `prompts` rows that begin alike share that, where `shared_widths` are set.
        """
        prompts = prompts if settings.shared_widths else None
        shares = minibatches(_checked(lengths, batch), settings.minibatches)
        reports = []
        for share in shares * settings.epochs:
            divisors, facts = run.begin(batch, share > 0)
            gradient, sums = _zeros_like(learner.params), None
            for micro in micro_batches(batch, share, prompts):
                gradient, measured = run.accumulate(
                    gradient, learner.params, score, micro, divisors
                )
                sums = measured if sums is None else run.add_sums(sums, measured)
            learner, metrics = apply(learner, gradient, sums, divisors, facts)
            reports.append(metrics)
        return learner, _over_steps(reports)

    return Update(init, update)


def raise_if_refused(metrics) -> None:
    """Say why an update changed nothing.  For the host, once the metrics have been read."""
    if metrics['update/refused']:
        raise ValueError(
            f'the update was refused: {int(metrics["update/tokens"])} tokens were sampled and the '
            f'gradient norm is {float(metrics["update/gradient_norm"])}'
        )


def _checked(lengths, batch: Batch) -> np.ndarray:
    lengths = np.asarray(lengths)
    if batch.segment is not None:
        raise ValueError('rows of an update stand alone, these are packed; set pack, which does it')
    rows, columns = batch.tokens.shape
    if lengths.shape != (rows,):
        raise ValueError(f'lengths must be one number for each of {rows} rows, got {lengths.shape}')
    if lengths.max() > columns:
        raise ValueError(f'a row of {lengths.max()} tokens stands in {columns} columns')
    return lengths


def _settled(learner: Learner) -> Learner:
    """Every array bound to its devices, as an update hands it back, or a second step recompiles."""
    home = jax.tree.leaves(learner.params)[0].sharding
    if isinstance(home, NamedSharding):
        home = NamedSharding(home.mesh, PartitionSpec())
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding if x.committed else home), learner)


def _zeros_like(params):
    """float32 zeros laid out over the devices as the parameters are."""
    return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32, device=p.sharding), params)


def _step(optimizer, learner: Learner, gradient) -> Learner:
    changes, state = optimizer.update(gradient, learner.optimizer_state, learner.params)
    params = optax.apply_updates(learner.params, changes)
    return Learner(params, state, learner.step + 1)


def _keep_if(keep, old, new):
    """`old` where `keep`: a step that learned nothing, or not a number, leaves no trace."""
    return jax.tree.map(lambda before, after: jnp.where(keep, before, after), old, new)


def _over_steps(reports) -> dict:
    """The mean over optimizer steps, except that one refused step is enough to say so."""
    metrics = {name: sum(r[name] for r in reports) / len(reports) for name in reports[0]}
    metrics['update/refused'] = functools.reduce(
        jnp.maximum, [report['update/refused'] for report in reports]
    )
    return metrics
