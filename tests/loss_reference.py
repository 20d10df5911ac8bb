"""The loss once more, from its formulas, in float64 and one token after the other.

A policy that looks one token back, random rows for it, and the step that an update takes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cacherl_jax.grpo.loss import (
    CACHED,
    FRESH,
    LEFT_OUT,
    SUPERVISED,
    TEXT,
    Batch,
    LossSettings,
)
from cacherl_jax.grpo.update import UpdateSettings, make_update

VOCAB = 7
EVERY_TERM = {'entropy_weight': 0.3, 'language_weight': 0.7, 'kl_weight': 0.15}


def bigram(table, tokens, length, sampled):
    """A policy that looks one token back; NaN wherever it was not asked.

    A column beyond the vocabulary is what a critic says there.
    """
    logits = jax.nn.log_softmax(table[tokens[:, :-1], :VOCAB])
    logprob = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=2)[..., 0]
    entropy = -jnp.sum(jnp.exp(logits) * logits, axis=2)
    told = [logprob, entropy]
    told += [table[tokens[:, :-1], VOCAB]] if table.shape[1] > VOCAB else []
    first = jnp.full((tokens.shape[0], 1), jnp.nan)
    told = [jnp.concatenate([first, x], axis=1) for x in told]
    return tuple(jnp.where(sampled, x, jnp.nan) for x in told)


def random_batch(seed, rows=7, columns=16, kinds=(FRESH, CACHED, SUPERVISED, LEFT_OUT, TEXT)):
    """Rows of ragged length; NaN in every number that must not be looked at."""
    random = np.random.default_rng(seed)
    length = random.integers(3, columns + 1, rows)
    inside = np.arange(columns) < length[:, None]
    sampled = inside & (random.random((rows, columns)) < 0.6) & (np.arange(columns) > 0)
    kind = np.resize(kinds, rows)
    number = {
        name: np.where(sampled, random.normal(centre, 1, (rows, columns)), np.nan)
        for name, centre in (('behaviour_logprob', -2), ('reference_logprob', -2), ('advantage', 0))
    }
    tokens = random.integers(0, VOCAB, (rows, columns)) * inside
    table = random.normal(0, 1, (VOCAB, VOCAB))
    fields = {'tokens': tokens, 'length': length, 'sampled': sampled, 'kind': kind} | number
    return fields, table


def on_device(fields):
    types = {'tokens': jnp.int32, 'length': jnp.int32, 'sampled': bool, 'kind': jnp.int32}
    return Batch(**{k: jnp.asarray(v, types.get(k, jnp.float32)) for k, v in fields.items()})


@functools.cache
def compiled(score, rate, micro_rows, widths, epochs, **loss):
    """One update for each way to make one, so that tests share what is compiled."""
    settings = UpdateSettings(
        micro_rows=micro_rows, widths=widths, epochs=epochs, loss=LossSettings(**loss)
    )
    # The first part keeps the gradient as it came, which no step of float32 gives back whole.
    return make_update(score, optax.chain(optax.trace(0.0), optax.sgd(rate)), settings)


def updated(fields, table, micro_rows=8, widths=(16,), score=bigram, epochs=1, rate=1.0, **loss):
    """The learner after an update, and the metrics."""
    update = compiled(score, rate, micro_rows, widths, epochs, **loss)
    learner = update.init(jnp.asarray(table, jnp.float32))
    learner, metrics = update.update(learner, on_device(fields), fields['length'])
    return learner, {name: float(value) for name, value in metrics.items()}


def run(fields, table, **how):
    """The step that an update takes (plain descent), and the metrics."""
    learner, metrics = updated(fields, table, **how)
    return np.asarray(table, np.float32) - np.asarray(learner.params), metrics


def gradient_of(fields, table, **how):
    """The gradient of the last step of an update, and the metrics."""
    learner, metrics = updated(fields, table, **how)
    return np.asarray(learner.optimizer_state[0].trace), metrics


def token_reference(kind, logprob, entropy, said, s):
    """A token's loss and its slopes in logprob, entropy and value, term by term.

    `said` are the numbers of the batch at this token, and the critic's value.
    """
    if kind in (SUPERVISED, TEXT):
        return {'supervised' if kind == SUPERVISED else 'language': (-logprob, -1.0, 0.0, 0.0)}
    behaviour, advantage = said['behaviour_logprob'], said['advantage']
    if kind == FRESH and 'trainer_logprob' in said:
        weight = np.exp(said['trainer_logprob'] - behaviour)
        bound = s.sampler_truncation
        advantage = advantage * (1.0 if bound is None else min(weight, bound))
        behaviour = said['trainer_logprob']
    w = np.exp(logprob - behaviour)
    if kind == CACHED and s.cached_ratio == 'shaped':
        shape = w / (w + s.shaping)
        slope = s.shaping * w / (w + s.shaping) ** 2
        return {'policy': (-shape * advantage, -slope * advantage, 0.0, 0.0)}
    if kind == CACHED:
        w = min(w, s.truncation)
    kept = w * advantage
    edge = np.clip(w, 1 - s.clip_low, 1 + s.clip_high) * advantage
    value, slope = (kept, kept) if kept <= edge else (edge, 0.0)
    if kind == CACHED:
        return {'policy': (-value, -slope, 0.0, 0.0)}
    if s.dual_clip is not None and advantage < 0 and value < s.dual_clip * advantage:
        value, slope = s.dual_clip * advantage, 0.0
    found = {'policy': (-value, -slope, 0.0, 0.0), 'entropy': (-entropy, 0.0, -1.0, 0.0)}
    found['kl'] = (*kl_reference(said['reference_logprob'] - logprob, s.kl), 0.0, 0.0)
    if 'value_target' in said:
        error = said['value'] - said['value_target']
        found['value'] = (error * error / 2, 0.0, 0.0, error)
    return found


def kl_reference(d, kl):
    """An estimate of the divergence and its slope in logprob, for d = log ref - log pi."""
    if kl == 'k1':
        return -d, 1.0
    if kl == 'k2':
        return d * d / 2, -d
    if d > 5:
        return np.exp(5) * (d - 4) - d - 1, 1 - np.exp(5)
    return np.exp(d) - d - 1, 1 - np.exp(d)


def loss_reference(fields, table, s):
    """The whole loss and its gradient in float64, one token after the other."""
    rows, numbers = {}, [name for name, x in fields.items() if x.ndim == 2 and x.dtype == float]
    for row, place in np.argwhere(fields['sampled']):
        if fields['kind'][row] == LEFT_OUT:
            continue
        before, here = fields['tokens'][row, place - 1], fields['tokens'][row, place]
        p = np.exp(table[before, :VOCAB]) / np.exp(table[before, :VOCAB]).sum()
        entropy = -np.sum(p * np.log(p))
        said = {name: fields[name][row, place] for name in numbers} | {'value': table[before, -1]}
        terms = token_reference(fields['kind'][row], np.log(p[here]), entropy, said, s)
        for term, (value, by_logprob, by_entropy, by_value) in terms.items():
            push = np.zeros(table.shape[1])
            push[:VOCAB] = by_logprob * (np.eye(VOCAB)[here] - p)
            push[:VOCAB] -= by_entropy * p * (np.log(p) + entropy)
            push[VOCAB:] = by_value
            rows.setdefault(term, {}).setdefault(row, []).append((value, before, push))
    loss, gradient = 0.0, np.zeros_like(table)
    for term, per_row in rows.items():
        how = 'token' if term in ('supervised', 'language') else s.aggregation
        tokens = sum(len(entries) for entries in per_row.values())
        for entries in per_row.values():
            over = {
                'token': tokens,
                'sequence': len(entries) * len(per_row),
                'constant': s.constant_tokens * len(per_row),
            }[how]
            scale = getattr(s, f'{term}_weight') / over
            loss += scale * sum(entry[0] for entry in entries)
            for _, before, push in entries:
                gradient[before] += scale * push
    return loss, gradient
