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


def attend(past: LayerCache, query: jax.Array, position: jax.Array, width: int) -> jax.Array:
    """softmax(q k / sqrt d) v over positions <= own, reading the first `width` of the context.

    query [row, block, head, head_dim]; position i32 [row, block] -> [row, block, head, head_dim].
    """
    chex.assert_rank([query, position], [4, 2])
    rows, block, heads, head_dim = query.shape
    kv_heads = past.key.shape[1]
    key, value = past.key[..., :width], past.value[:, :, :width]
    query = query.reshape(rows, block, kv_heads, heads // kv_heads, head_dim) * head_dim**-0.5
    scores = jnp.einsum('rbkgd,rkdc->rkgbc', query, key, preferred_element_type=jnp.float32)
    seen = jnp.arange(width) <= position[:, :, None]
    scores = jnp.where(seen[:, None, None], scores, -1e30)
    weight = jax.nn.softmax(scores).astype(value.dtype)
    mixed = jnp.einsum('rkgbc,rkcd->rbkgd', weight, value)
    return mixed.reshape(rows, block, heads, head_dim)
