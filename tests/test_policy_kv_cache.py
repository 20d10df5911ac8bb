"""Laws of the cache: reading from it is attention over all that was written before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.policy import kv_cache, transformer
from cacherl_jax.policy.shape import Shape

SHAPE = Shape(layers=1, embed=8, heads=4, kv_heads=2, head_dim=6, hidden=8, vocab=5)
CONTEXT = 24


write = jax.jit(kv_cache.write)


@jax.jit
def attend(past, query, position):
    """With nothing in the prompts, one for each row."""
    rows = position.shape[0]
    return kv_cache.attend(empty(rows, 4), jnp.zeros(rows, jnp.int32), past, query, position)


@pytest.mark.parametrize('share', [1, 2, 4])
@pytest.mark.parametrize('block', [1, 3])
def test_a_shared_prompt_is_read_as_if_each_row_had_its_own(share, block):
    """Prompts of different lengths; rows that have written different amounts behind them."""
    count, written = jnp.array([5, 2, 7, 4])[: 4 // share], jnp.array([0, 6, 3, 1])
    _, key, value = heads(4, 16)
    each = jnp.repeat(jnp.arange(4 // share), share)  # the prompt of each row
    place = jnp.arange(8)
    prompts = write(
        empty(4 // share, 8),
        key[: 4 // share, :8], value[: 4 // share, :8],
        jnp.where(place < count[:, None], place, CONTEXT),
    )  # fmt: skip
    asked = heads(4, block, seed=1)[0]
    upto = written[:, None] + jnp.arange(block)
    behind = jnp.arange(16)
    own = jnp.where(behind < (written + block)[:, None], behind, CONTEXT)
    found = kv_cache.attend(prompts, count, write(empty(4), key, value, own), asked, upto)
    alone = write(empty(4), key[each, :8], value[each, :8], jnp.broadcast_to(place, (4, 8)))
    moved = jnp.where(own < CONTEXT, own + count[each][:, None], CONTEXT)
    alone = write(alone, key, value, moved)
    expected = attend(alone, asked, upto + count[each][:, None])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def empty(rows, context=CONTEXT):
    return kv_cache.init(SHAPE, rows, context)[0]


def heads(rows, width, seed=0):
    """query, key, value [row, token, head, head_dim]."""
    keys = jax.random.split(jax.random.key(seed), 3)
    sizes = (SHAPE.heads, SHAPE.kv_heads, SHAPE.kv_heads)
    return [
        jax.random.normal(key, (rows, width, size, SHAPE.head_dim))
        for key, size in zip(keys, sizes, strict=True)
    ]


def whole(rows, width):
    """Attention without a cache."""
    return jax.jit(lambda *x: transformer.causal()(None, *x)[0])(*heads(rows, width))


def in_blocks(rows, width, block, context=CONTEXT):
    """The same, `block` tokens at a time, through the cache."""
    past, (query, key, value), parts = empty(rows, context), heads(rows, width), []
    for start in range(0, width, block):
        part = slice(start, min(start + block, width))
        position = jnp.broadcast_to(jnp.arange(width)[part], (rows, len(range(width)[part])))
        past = write(past, key[:, part], value[:, part], position)
        parts.append(attend(past, query[:, part], position))
    return jnp.concatenate(parts, axis=1)


@pytest.mark.parametrize('width', [3, 7, 16])
@pytest.mark.parametrize('block', [1, 5])
def test_attention_through_the_cache_is_causal_attention(width, block):
    np.testing.assert_allclose(in_blocks(2, width, block), whole(2, width), atol=1e-5)


@pytest.mark.parametrize('context', [16, 17])
def test_how_much_the_cache_can_hold_changes_nothing(context):
    np.testing.assert_allclose(in_blocks(2, 16, 4, context), whole(2, 16), atol=1e-5)


def test_a_cache_grows_and_forgets_nothing():
    query, key, value = heads(2, 7)
    place = jnp.broadcast_to(jnp.arange(7), (2, 7))
    past = write(empty(2, 7), key, value, place)
    (grown,) = kv_cache.grow((past,), 16)
    assert kv_cache.width((past,)) == 7 and kv_cache.width((grown,)) == 16
    np.testing.assert_allclose(attend(grown, query, place), whole(2, 7), atol=1e-5)


def test_rows_stand_at_positions_of_their_own():
    """Row r has r * 5 tokens before the one that is asked."""
    query, key, value = heads(3, 16)
    past, length = empty(3), jnp.arange(3) * 5
    place = jnp.broadcast_to(jnp.arange(16), (3, 16))
    past = write(past, key, value, jnp.where(place <= length[:, None], place, CONTEXT))
    asked = query[jnp.arange(3), length][:, None]
    found = attend(past, asked, length[:, None])[:, 0]
    np.testing.assert_allclose(found, whole(3, 16)[jnp.arange(3), length], atol=1e-5)


def test_the_position_out_of_range_writes_nowhere():
    _, key, value = heads(2, 3)
    before = write(empty(2), key, value, jnp.asarray([[0, 1, 2], [5, 6, CONTEXT - 1]]))
    after = write(before, key + 1, value + 1, jnp.full((2, 3), CONTEXT))
    jax.tree.map(np.testing.assert_array_equal, after, before)


def test_what_stands_behind_is_not_seen():
    query, key, value = heads(2, 7)
    place = jnp.broadcast_to(jnp.arange(7), (2, 7))
    past = write(empty(2), key, value, place)
    spoiled = write(past, key + 9, value + 9, place + 7)
    found = [attend(cache, query, place) for cache in (past, spoiled)]
    np.testing.assert_allclose(*found, atol=1e-6)


def test_every_layer_has_buffers_of_its_own():
    shape = Shape(layers=3, embed=8, heads=2, kv_heads=2, head_dim=2, hidden=8, vocab=5)
    leaves = jax.tree.leaves(kv_cache.init(shape, 2, 8))
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == 6
