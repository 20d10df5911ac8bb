"""Writing on the device: forced blocks go in, sampled turns come out, and nothing is read twice.

A slot holds one episode.  Its keys and values stay where they are over all turns; a prompt is read
once, and neighbouring slots of its group attend to one copy of it (a share); a slot whose episode
ended takes the next one.  The number of compiled programs is bounded by `widths`, whatever the
number of turns or the length of a tool result.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cacherl_jax.mesh import by_rows, held_once, row_shares, shard_rows
from cacherl_jax.policy import kv_cache, transformer
from cacherl_jax.policy.sample import SamplingSettings, by_row, draw, forbid, off, shaped_logprobs
from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.policy.slots import (
    DecodeSettings,
    DecodeState,
    Prompt,
    Report,
    Rest,
    admit,
    empty_rows,
    empty_slots,
    harvest,
)
from cacherl_jax.trajectory import Trajectory

CACHES = ('cache', 'prompts')  # fields of DecodeState


class Decoder(NamedTuple):
    """The functions that write; made once for a policy's shape by `make_decoder`."""

    settings: DecodeSettings
    beside: int  # prompts that are read as fast as one: a device for each
    init: Callable  # () -> DecodeState
    adopt: Callable  # params -> the same, as the functions below read them fastest
    prefill: Callable  # (params, several lists of ids) -> a Prompt for each
    admit: Callable  # (state, prompt, slots, keys, choice=0) -> DecodeState
    # `longest`: tokens behind its prompt that some row has, or will have when the block is in
    append: Callable  # (params, state, blocks by slot, longest) -> DecodeState
    segment: Callable  # (params, state, longest) -> (DecodeState, Report)
    empty_store: Callable  # (rows) -> Trajectory
    harvest: Callable  # (store, state, slots, rows) -> (store, DecodeState)


@functools.cache
def make_decoder(
    shape: Shape,
    settings: DecodeSettings,
    sampling: SamplingSettings | tuple[SamplingSettings, ...],
    end_ids: tuple[int, ...],
    dtype=jnp.float32,
    mesh: Mesh | None = None,
) -> Decoder:
    """Bind sizes, limits and the distribution sampled from; compile nothing yet.

    Of several distributions each row has its own, whose number `admit` is told (`sample.by_row`).
    Over a mesh every device writes its slots, and reads as many prompts as the others.
    """
    beside = row_shares(mesh) if mesh else 1
    settings = settings.shared_by(settings.share or 1, beside)
    bound = {'shape': shape, 'settings': settings}
    choices = (sampling,) if isinstance(sampling, SamplingSettings) else sampling
    sampled = functools.partial(_segment, **bound, choices=choices, end_ids=end_ids)
    seat = jax.jit(functools.partial(admit, settings=settings), donate_argnums=0)
    append = jax.jit(by_rows(functools.partial(_append, **bound), mesh), donate_argnums=1)
    segment = jax.jit(by_rows(sampled, mesh), donate_argnums=1)
    grow = jax.jit(kv_cache.grow, static_argnums=1)

    def wide(cache, tokens):
        """The cache, grown to hold `tokens` positions where it does not."""
        needed = settings.width(min(tokens, settings.context_tokens))
        return cache if kv_cache.width(cache) >= needed else grow(cache, needed)

    def room(state, tokens):
        return state.replace(cache=wide(state.cache, tokens))

    def place(state, prompt, slots, keys, choice=0):
        state = state.replace(prompts=wide(state.prompts, prompt.tokens.size))
        return seat(state, prompt, slots, keys, choice)

    def write(params, state, blocks, longest):
        """In pieces: a block as wide as the next program would be mostly padding."""
        state, start, tokens = room(state, longest), 0, max(map(len, blocks.values()))
        while start < tokens:
            piece = settings.piece(tokens - start)
            parts = {slot: ids[start : start + piece] for slot, ids in blocks.items()}
            ends = np.zeros(settings.slots, bool)
            ends[[slot for slot in blocks if start < len(blocks[slot]) <= start + piece]] = True
            state = append(params, state, *_padded(parts, settings.slots, piece), ends)
            start += piece
        return state

    def go_on(params, state, longest):
        return segment(params, room(state, longest + settings.segment_tokens))

    return Decoder(
        settings=settings,
        beside=beside,
        init=jax.jit(lambda: _laid_out(empty_slots(shape, settings, dtype), mesh)),
        adopt=functools.partial(held_once, mesh=mesh),
        prefill=_prompt_reader(shape, settings, mesh, beside),
        admit=place,
        append=write,
        segment=go_on,
        empty_store=lambda rows: empty_rows(rows, settings.context_tokens),
        harvest=jax.jit(harvest, donate_argnums=(0, 1)),
    )


def _laid_out(state: DecodeState, mesh: Mesh | None) -> DecodeState:
    """The state over the devices: by rows, and what is remembered by heads as well."""
    if mesh is None or mesh.size == 1:
        return state
    heads = {name: shard_rows(getattr(state, name), mesh, 'kv_head') for name in CACHES}
    return shard_rows(state.replace(**dict.fromkeys(CACHES, ())), mesh).replace(**heads)


def _prompt_reader(shape: Shape, settings: DecodeSettings, mesh: Mesh | None, beside: int):
    """Decoder.prefill: so many prompts at a time."""
    prefill = jax.jit(by_rows(functools.partial(_prefill, shape=shape), mesh))
    pick = jax.jit(lambda prompts, place: jax.tree.map(lambda leaf: leaf[place], prompts))

    def read(params, several):
        prompts = []
        for start in range(0, len(several), beside):
            some = dict(enumerate(several[start : start + beside]))
            wide = settings.width(max(map(len, some.values())))
            batch = prefill(params, *_padded(some, beside, wide))
            prompts += [pick(batch, place) for place in range(len(some))]
        return prompts

    return read


def _padded(lists: Mapping[int, list[int]], rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids by row as a block i32 [row, width], and how many each row has."""
    block, count = np.zeros((rows, width), np.int32), np.zeros(rows, np.int32)
    for row, ids in lists.items():
        block[row, : len(ids)], count[row] = ids, len(ids)
    return block, count


def _prefill(params: Params, tokens: jax.Array, count: jax.Array, *, shape: Shape) -> Prompt:
    """Read count[row] of tokens [row, block]; what stands behind them is not seen by them."""
    chex.assert_rank([tokens, count], [2, 1])
    within = transformer.causal()

    def attend(past, query, key, value):
        return within(past, query, key, value)[0], (key, value)

    position = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    past = (None,) * shape.layers
    hidden, layers = transformer.forward(params, shape, tokens, position, attend, past)
    logits = transformer.logits_of(params, shape, _at(hidden, jnp.maximum(count - 1, 0)))
    return Prompt(tokens=tokens, count=count, logits=logits, layers=layers)


def _at(hidden, place):
    """hidden [row, block, embed] at place[row]."""
    return jnp.take_along_axis(hidden, place[:, None, None], axis=1)[:, 0]


def _put(rows, position, values):
    """Write values [row, ...] at `position` i32 [row, ...] of rows [row, token], where in range."""
    return jax.vmap(lambda row, place, value: row.at[place].set(value, mode='drop'))(
        rows, position, values
    )


def _read_block(params, shape, settings, state, tokens, position):
    """Forward over a block [row, block] that attends to what was read; hidden states, cache out.

    A position at the context's end is out of range: it writes nowhere.
    """
    own = position - jnp.repeat(state.prompt_tokens, settings.share)[:, None]
    own = jnp.where(position < settings.context_tokens, own, settings.context_tokens)

    def attend(past, query, key, value):
        prompt, past = past[0], kv_cache.write(past[1], key, value, own)
        return kv_cache.attend(prompt, state.prompt_tokens, past, query, own), past

    past = tuple(zip(state.prompts, state.cache, strict=True))
    return transformer.forward(params, shape, tokens, position, attend, past)


def _append(params, state: DecodeState, block, count, ends, *, shape, settings) -> DecodeState:
    """Write count[row] forced tokens of block i32 [row, block]; where it `ends`, the row runs."""
    chex.assert_rank([block, count, ends], [2, 1, 1])
    context = settings.context_tokens
    offset = jnp.arange(block.shape[1])
    position = jnp.where(offset < count[:, None], state.rows.length[:, None] + offset, context)
    hidden, cache = _read_block(params, shape, settings, state, block, position)
    logits = transformer.logits_of(params, shape, _at(hidden, jnp.maximum(count - 1, 0)))
    some = count > 0
    rows = state.rows.replace(
        tokens=_put(state.rows.tokens, position, block),
        turn=_put(state.rows.turn, position, state.turn_index),
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


def _segment(params, state: DecodeState, *, shape, settings, choices, end_ids):
    """Sample until every row rests or `segment_tokens` are used; returns the state and a Report."""
    started, sampling = state.rows.length, by_row(choices, state.choice)

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
    if not off(sampling.min_tokens, 0):
        early = state.turn_tokens[:, None] < sampling.min_tokens
        logits = forbid(logits, end_ids, early[:, 0] & (state.turn_index == 0))
    key = jax.vmap(jax.random.fold_in)(state.key, rows.length)
    token, logprob = draw(shaped_logprobs(logits, sampling), key)
    position = jnp.where(running, rows.length, settings.context_tokens)
    block = token[:, None], position[:, None]
    hidden, cache = _read_block(params, shape, settings, state, *block)
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
        tokens=_put(rows.tokens, position, token),
        length=length,
        sampled=_put(rows.sampled, position, running),
        logprob=_put(rows.logprob, position, logprob),
        turn=_put(rows.turn, position, state.turn_index),
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
