"""Keys and values of the positions already read, one buffer a layer, written in place.

Axes are laid out so that a decode step reads memory in order: keys end in [head_dim, context]
(scores run over the context), values in [context, head_dim].  On CPU that is 1.6 times faster than
[context, head_dim] for both and 3.3 times faster than [context, kv_head, head_dim].
"""

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.policy.shape import Shape


@struct.dataclass
class LayerCache:
    """What one layer remembers of every row."""

    key: jax.Array  # [row, kv_head, head_dim, context]  after rotary positions
    value: jax.Array  # [row, kv_head, context, head_dim]


def init(shape: Shape, rows: int, context_tokens: int, dtype=jnp.float32) -> tuple[LayerCache, ...]:
    """An empty cache.  Each leaf is a buffer of its own, so that all of them can be donated."""
    size = (rows, shape.kv_heads)
    return tuple(
        LayerCache(
            key=jnp.zeros((*size, shape.head_dim, context_tokens), dtype),
            value=jnp.zeros((*size, context_tokens, shape.head_dim), dtype),
        )
        for _ in range(shape.layers)
    )


def write(past: LayerCache, key: jax.Array, value: jax.Array, position: jax.Array) -> LayerCache:
    """Put a block [row, block, kv_head, head_dim] at `position` i32 [row, block].

    A position equal to the context length is out of range and writes nowhere.
    """
    chex.assert_rank([key, value, position], [4, 4, 2])
    row = jnp.arange(key.shape[0])[:, None]
    return LayerCache(
        key=past.key.at[row, :, :, position].set(key.astype(past.key.dtype), mode='drop'),
        value=past.value.at[row, :, position].set(value.astype(past.value.dtype), mode='drop'),
    )


def width(cache: tuple[LayerCache, ...]) -> int:
    """How much of the context the cache holds."""
    return cache[0].value.shape[2]


def grow(cache: tuple[LayerCache, ...], width: int) -> tuple[LayerCache, ...]:
    """The same cache with room for `width` positions: what is read grows with what was written.

    A wide buffer read in part would be copied in part at every step.
    """
    more = width - cache[0].value.shape[2]
    pad = [(0, 0)] * 4
    at_end, before_end = [*pad[:3], (0, more)], [*pad[:2], (0, more), (0, 0)]
    return tuple(
        LayerCache(key=jnp.pad(layer.key, at_end), value=jnp.pad(layer.value, before_end))
        for layer in cache
    )


def attend(past: LayerCache, query: jax.Array, position: jax.Array) -> jax.Array:
    """softmax(q k / sqrt d) v over the positions up to a query's own.

    query [row, block, head, head_dim]; position i32 [row, block] -> [row, block, head, head_dim].
    """
    chex.assert_rank([query, position], [4, 2])
    seen = jnp.arange(past.value.shape[2]) <= position[:, :, None]
    return attention(query, past.key, past.value, seen)


def attention(query, key, value, seen):
    """softmax over the context of q k / sqrt d where `seen`, times v; heads share keys in groups.

    query [row, block, head, head_dim]; key [row, kv_head, head_dim, context]; value [row, kv_head,
    context, head_dim]; seen bool [row or 1, block, context] -> [row, block, head, head_dim].
    Both products are plain batched matrix products, which XLA's CPU back end runs 4 times as fast
    as the same sums with the axes in any other order.
    """
    rows, block, heads, head_dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    query = query.reshape(rows, block, kv_heads, group, head_dim) * head_dim**-0.5
    query = query.transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * block, head_dim)
    scores = jnp.einsum('rkqd,rkdc->rkqc', query, key, preferred_element_type=jnp.float32)
    scores = scores.reshape(rows, kv_heads, group, block, -1)
    scores = jnp.where(seen[:, None, None], scores, -1e30)
    weight = jax.nn.softmax(scores).astype(value.dtype)
    weight = weight.reshape(rows, kv_heads, group * block, -1)
    mixed = jnp.einsum('rkqc,rkcd->rkqd', weight, value)
    mixed = mixed.reshape(rows, kv_heads, group, block, head_dim).transpose(0, 3, 1, 2, 4)
    return mixed.reshape(rows, block, heads, head_dim)
