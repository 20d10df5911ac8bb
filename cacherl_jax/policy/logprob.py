"""Log-probabilities and entropies of tokens already written, for training.

The head is applied to sampled positions only, a chunk at a time, so that no [row, token, vocab]
array exists and forced positions cost nothing.
"""

import functools

import chex
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from cacherl_jax.mesh import row_placement, row_shares
from cacherl_jax.policy import transformer
from cacherl_jax.policy.sample import SamplingSettings, forbid, shaped_logprobs
from cacherl_jax.policy.shape import Params, Shape

CHUNK_ENTRIES = 2**21  # logits held at a time: 8 MB in f32


def first_turn_start(sampled: jax.Array, min_tokens: int, segment=None) -> jax.Array:
    """bool [row, token]: the first `min_tokens` positions of the first run of sampled ones.

    `segment` tells packed conversations apart, as it does for `score`; their first token is never
    sampled.
    """

    def since_start(count):
        if segment is None:
            return count
        anew = (segment != jnp.roll(segment, 1, axis=1)).at[:, 0].set(True)
        start = jax.lax.cummax(jnp.where(anew, jnp.arange(count.shape[1]), 0), axis=1)
        return count - jnp.take_along_axis(count, start, axis=1)

    begins = sampled & ~jnp.roll(sampled, 1, axis=1)
    first = sampled & (since_start(begins.cumsum(axis=1)) == 1)
    return first & (since_start(first.cumsum(axis=1)) <= min_tokens)


def hidden_states(
    params: Params,
    shape: Shape,
    tokens,
    *,
    position=None,
    segment=None,
    split=None,
    remat=False,
    attention='chunked',
) -> jax.Array:
    """[row, token, embed] of whole rows; without `position` it is the place in the row."""
    if position is None:
        position = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    attend = (
        transformer.causal(segment, implementation=attention)
        if split is None
        else transformer.after_prompts(split, segment)
    )
    past = (None,) * shape.layers
    return transformer.forward(params, shape, tokens, position, attend, past, remat=remat)[0]


def init_critic(shape: Shape) -> Params:
    """A linear reading of hidden states, weight f32 [embed] and bias f32 []; it expects nothing."""
    return {'weight': jnp.zeros(shape.embed), 'bias': jnp.zeros(())}


def _chunks(scored, size):
    """Positions i32 [chunk, size], scored ones first so that chunks may be skipped; which are."""
    order = jnp.argsort(~scored, stable=True)
    padding = 0, -order.size % size
    place, live = jnp.pad(order, padding), jnp.pad(scored[order], padding)
    return place.reshape(-1, size), live.reshape(-1, size)


@functools.partial(jax.named_call, name='score')
def score(
    params: Params,
    shape: Shape,
    tokens: jax.Array,
    scored: jax.Array,
    *,
    sampling: SamplingSettings = SamplingSettings(),
    end_ids: tuple[int, ...] = (),
    no_end: jax.Array | None = None,
    position: jax.Array | None = None,
    segment: jax.Array | None = None,
    split: tuple[int, int] | None = None,
    remat: bool = False,
    attention: str = 'chunked',
    critic: Params | None = None,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, ...]:
    """Log-probability of tokens[row, t] given tokens before it, and the entropy it was drawn at.

    tokens i32, scored bool, no_end bool (ending was forbidden), all [row, token]; position and
    segment i32 [row, token] of packed conversations: their own places, and a number for each; with
    `split` they stand behind a prompt that they share (`transformer.after_prompts`).
    Returns f32 [row, token] twice, in nats, exactly 0 where not scored; position 0 is never scored.
    With a `critic` (`init_critic`) also what it expects before the token, the same way.  Rows laid
    out over a `mesh` need it named, or every device would apply the head to all of them.
    """
    chex.assert_rank([tokens, scored], 2)
    chex.assert_equal_shape([tokens, scored])
    tokens, scored = jnp.asarray(tokens), jnp.asarray(scored)
    rows, width = tokens.shape
    apart = {'position': position, 'segment': segment, 'split': split}
    hidden = hidden_states(params, shape, tokens, remat=remat, attention=attention, **apart)
    before = jnp.roll(hidden, 1, axis=1).reshape(rows * width, -1)
    scored = scored & ((jnp.arange(width) if position is None else position) > 0)
    forbidden = jnp.zeros_like(scored) if no_end is None else no_end

    split, shares = (row_placement(mesh), row_shares(mesh)) if mesh else (jnp.asarray, 1)
    chunk = shares * max(1, min(-(-rows * width // shares), CHUNK_ENTRIES // shape.vocab))
    place, live = _chunks(scored.reshape(-1), chunk)

    def read(where):
        logits = transformer.logits_of(params, shape, split(before[where]))
        if end_ids and no_end is not None:
            logits = forbid(logits, end_ids, forbidden.reshape(-1)[where])
        logprob = shaped_logprobs(logits, sampling)
        chosen = jnp.take_along_axis(logprob, tokens.reshape(-1)[where][:, None], -1)[:, 0]
        return chosen, -jnp.sum(jnp.exp(logprob) * jnp.maximum(logprob, -1e4), -1)

    def skip(where):
        return jnp.zeros(chunk), jnp.zeros(chunk)

    # Around the choice: what a branch keeps for its gradient is kept by every turn of the loop, the
    # whole head with it.
    @jax.checkpoint
    def one(_, item):
        where, kept = item
        chosen, entropy = jax.lax.cond(kept.any(), read, skip, where)
        return None, (jnp.where(kept, chosen, 0.0), jnp.where(kept, entropy, 0.0))

    _, found = jax.lax.scan(one, None, (place, live))
    flat = jnp.zeros(rows * width)
    target = jnp.where(live, place, rows * width).reshape(-1)  # out of range: written nowhere
    logprob, entropy = (flat.at[target].set(x.reshape(-1), mode='drop') for x in found)
    told = logprob.reshape(rows, width), entropy.reshape(rows, width)
    if critic is None:
        return told
    expected = before.astype(jnp.float32) @ critic['weight'] + critic['bias']
    return *told, jnp.where(scored, expected.reshape(rows, width), 0.0)
