"""Writing on the device: forced blocks go in, sampled turns come out, and nothing is read twice.

A slot holds one episode.  Its keys and values stay where they are over all turns; a prompt is read
once and handed to every slot of its group; a slot whose episode ended takes the next one.  The
number of compiled programs is bounded by `widths`, whatever the number of turns or the length of a
tool result.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from cacherl_jax.policy import kv_cache, transformer
from cacherl_jax.policy.sample import SamplingSettings, draw, forbid, shaped_logprobs
from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.policy.slots import (
    DecodeSettings,
    DecodeState,
    Prompt,
    Report,
    Rest,
    empty_rows,
    empty_slots,
)
from cacherl_jax.trajectory import Trajectory


class Decoder(NamedTuple):
    """The functions that write; made once for a policy's shape by `make_decoder`."""

    settings: DecodeSettings
    init: Callable  # () -> DecodeState
    prefill: Callable  # (params, ids) -> Prompt
    admit: Callable  # (state, prompt, slots, keys) -> DecodeState
    append: Callable  # (params, state, blocks by slot, reach) -> DecodeState
    segment: Callable  # (params, state, longest) -> (DecodeState, Report)
    empty_store: Callable  # (rows) -> Trajectory
    harvest: Callable  # (store, state, slots, rows) -> (store, DecodeState)


@functools.cache
def make_decoder(
    shape: Shape,
    settings: DecodeSettings,
    sampling: SamplingSettings,
    end_ids: tuple[int, ...],
    dtype=jnp.float32,
) -> Decoder:
    """Bind sizes, limits and the sampling distribution; compile nothing yet."""
    bound = {'shape': shape, 'settings': settings}
    prefill = jax.jit(functools.partial(_prefill, shape=shape))
    admit = jax.jit(_admit, donate_argnums=0)
    append = jax.jit(functools.partial(_append, **bound), donate_argnums=1)
    segment = jax.jit(
        functools.partial(_segment, **bound, sampling=sampling, end_ids=end_ids),
        donate_argnums=1,
    )
    harvest = jax.jit(_harvest, donate_argnums=(0, 1))
    grow = jax.jit(kv_cache.grow, static_argnums=1)

    def read(params, ids):
        block = [*ids, *[0] * (settings.width(len(ids)) - len(ids))]
        return prefill(params, jnp.array(block, jnp.int32), len(ids))

    def room(state, tokens):
        """The state, its cache grown to hold `tokens` positions where it does not."""
        needed = settings.width(min(tokens, settings.context_tokens))
        wide_enough = kv_cache.width(state.cache) >= needed
        return state if wide_enough else state.replace(cache=grow(state.cache, needed))

    def place(state, prompt, slots, keys):
        return admit(room(state, prompt.tokens.size), prompt, slots, keys)

    def write(params, state, blocks, reach):
        """In pieces: a block as wide as the next program would be mostly padding."""
        state, start, longest = room(state, reach), 0, max(map(len, blocks.values()))
        while start < longest:
            wide = settings.piece(longest - start)
            block, count = np.zeros((settings.slots, wide), np.int32), np.zeros(settings.slots, int)
            ends = np.zeros(settings.slots, bool)
            for slot, ids in blocks.items():
                part = ids[start : start + wide]
                block[slot, : len(part)], count[slot] = part, len(part)
                ends[slot] = start < len(ids) <= start + wide
            state = append(params, state, block, count.astype(np.int32), ends)
            start += wide
        return state

    def go_on(params, state, longest):
        return segment(params, room(state, longest + settings.segment_tokens))

    return Decoder(
        settings=settings,
        init=lambda: empty_slots(shape, settings, dtype),
        prefill=read,
        admit=place,
        append=write,
        segment=go_on,
        empty_store=lambda rows: empty_rows(rows, settings.context_tokens),
        harvest=harvest,
    )


def _prefill(params: Params, tokens: jax.Array, count, *, shape: Shape) -> Prompt:
    """Read `count` of tokens [block]; what stands behind them is not seen by them."""
    chex.assert_rank(tokens, 1)
    within = transformer.causal()

    def attend(past, query, key, value):
        return within(past, query, key, value)[0], (key[0], value[0])

    position = jnp.arange(tokens.size)[None]
    past = (None,) * shape.layers
    hidden, layers = transformer.forward(params, shape, tokens[None], position, attend, past)
    logits = transformer.logits_of(params, shape, hidden[0, count - 1])
    return Prompt(tokens=tokens, count=jnp.asarray(count, jnp.int32), logits=logits, layers=layers)


def _admit(state: DecodeState, prompt: Prompt, slots: jax.Array, keys: jax.Array) -> DecodeState:
    """Start an episode in each of `slots` i32 [sample]; a slot out of range starts none."""
    chex.assert_rank([slots, keys], 1)
    wide = prompt.tokens.size
    written = jnp.where(jnp.arange(wide) < prompt.count, prompt.tokens, 0)

    def put(old, new):
        return old.at[slots].set(new, mode='drop')

    row = jnp.zeros(state.rows.tokens.shape[1], jnp.int32).at[:wide].set(written)
    rows = Trajectory(
        tokens=put(state.rows.tokens, row),
        length=put(state.rows.length, prompt.count),
        sampled=put(state.rows.sampled, False),
        logprob=put(state.rows.logprob, 0.0),
        turn=put(state.rows.turn, -1),
    )
    cache = tuple(
        kv_cache.LayerCache(
            key=past.key.at[slots, :, :, :wide].set(key.transpose(1, 2, 0), mode='drop'),
            value=past.value.at[slots, :, :wide].set(value.transpose(1, 0, 2), mode='drop'),
        )
        for past, (key, value) in zip(state.cache, prompt.layers, strict=True)
    )
    return DecodeState(
        rows=rows,
        status=put(state.status, int(Rest.RUNNING)),
        turn_tokens=put(state.turn_tokens, 0),
        episode_tokens=put(state.episode_tokens, 0),
        turn_index=put(state.turn_index, 0),
        logits=put(state.logits, prompt.logits),
        key=put(state.key, keys),
        cache=cache,
    )


def _read_block(params, shape, cache, tokens, position):
    """Forward over a block [row, block] that attends to the cache; hidden states and cache out."""

    def attend(past, query, key, value):
        past = kv_cache.write(past, key, value, position)
        return kv_cache.attend(past, query, position), past

    return transformer.forward(params, shape, tokens, position, attend, cache)


def _append(params, state: DecodeState, block, count, ends, *, shape, settings) -> DecodeState:
    """Write count[row] forced tokens of block i32 [row, block]; where it `ends`, the row runs."""
    chex.assert_rank([block, count, ends], [2, 1, 1])
    context = settings.context_tokens
    offset = jnp.arange(block.shape[1])
    position = jnp.where(offset < count[:, None], state.rows.length[:, None] + offset, context)
    hidden, cache = _read_block(params, shape, state.cache, block, position)
    row, last = jnp.arange(count.size), jnp.maximum(count - 1, 0)
    logits = transformer.logits_of(params, shape, hidden[row, last])
    some, at = count > 0, (row[:, None], position)
    turn = jnp.broadcast_to(state.turn_index[:, None], block.shape)
    rows = state.rows.replace(
        tokens=state.rows.tokens.at[at].set(block, mode='drop'),
        turn=state.rows.turn.at[at].set(turn, mode='drop'),
        length=state.rows.length + count,
    )
    return state.replace(
        rows=rows,
        status=jnp.where(ends, Rest.RUNNING, state.status),
        turn_tokens=jnp.where(ends, 0, state.turn_tokens),
        turn_index=state.turn_index + ends,
        logits=jnp.where(some[:, None], logits, state.logits),
        cache=cache,
    )


def _segment(params, state: DecodeState, *, shape, settings, sampling, end_ids):
    """Sample until every row rests or `segment_tokens` are used; returns the state and a Report."""
    started = state.rows.length

    def goes_on(carry):
        step, state = carry
        return (step < settings.segment_tokens) & (state.status == Rest.RUNNING).any()

    def one(carry):
        step, state = carry
        return step + 1, _sample_one(params, state, shape, settings, sampling, end_ids)

    _, state = jax.lax.while_loop(goes_on, one, (0, state))
    place = started[:, None] + jnp.arange(settings.segment_tokens)
    ids = jnp.take_along_axis(state.rows.tokens, place, axis=1, mode='fill', fill_value=0)
    length = state.rows.length
    return state, Report(status=state.status, length=length, ids=ids, count=length - started)


def _sample_one(params, state, shape, settings, sampling, end_ids):
    """Each running row draws a token from its logits, writes it and reads it."""
    rows, running = state.rows, state.status == Rest.RUNNING
    logits = state.logits
    if sampling.min_tokens:
        early = (state.turn_index == 0) & (state.turn_tokens < sampling.min_tokens)
        logits = forbid(logits, end_ids, early)
    key = jax.vmap(jax.random.fold_in)(state.key, rows.length)
    token, logprob = draw(shaped_logprobs(logits, sampling), key)
    # The context's length is out of range, so a resting row writes nowhere.
    position = jnp.where(running, rows.length, settings.context_tokens)[:, None]
    hidden, cache = _read_block(params, shape, state.cache, token[:, None], position)
    at = (jnp.arange(token.size), position[:, 0])
    length = rows.length + running
    turn_tokens, episode_tokens = state.turn_tokens + running, state.episode_tokens + running
    ended = (token[:, None] == jnp.array(end_ids)).any(-1)
    spent = (turn_tokens >= settings.turn_tokens) | (episode_tokens >= settings.episode_tokens)
    status = jnp.select(
        [~running, ended, length >= settings.context_tokens, spent],
        [state.status, Rest.TURN_ENDED, Rest.FULL, Rest.CUT],
        Rest.RUNNING,
    )
    rows = Trajectory(
        tokens=rows.tokens.at[at].set(token, mode='drop'),
        length=length,
        sampled=rows.sampled.at[at].set(True, mode='drop'),
        logprob=rows.logprob.at[at].set(logprob, mode='drop'),
        turn=rows.turn.at[at].set(state.turn_index, mode='drop'),
    )
    fresh = transformer.logits_of(params, shape, hidden[:, 0])
    return state.replace(
        rows=rows,
        status=status.astype(jnp.int32),
        turn_tokens=turn_tokens,
        episode_tokens=episode_tokens,
        logits=jnp.where(running[:, None], fresh, state.logits),
        cache=cache,
    )


def _harvest(store: Trajectory, state: DecodeState, slots: jax.Array, rows: jax.Array):
    """Copy finished `slots` into `rows` of the store, empty them; a row out of range takes none."""
    chex.assert_equal_shape([slots, rows])

    def move(kept, written):
        return kept.at[rows].set(written[slots], mode='drop')

    store = jax.tree.map(move, store, state.rows)
    done = jnp.where(rows < store.length.size, slots, state.status.size)
    return store, state.replace(status=state.status.at[done].set(Rest.EMPTY, mode='drop'))
