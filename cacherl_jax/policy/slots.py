"""What decoding remembers: settings, slots that hold episodes, prompts read once, reports."""

import dataclasses
import enum
import math

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.policy import kv_cache
from cacherl_jax.policy.shape import Shape
from cacherl_jax.trajectory import Trajectory


class Rest(enum.IntEnum):
    """What a slot is doing, set on the device."""

    RUNNING = 0
    TURN_ENDED = 1  # an end id was sampled
    CUT = 2  # the limit of sampled tokens of the turn or the episode is reached
    FULL = 3  # the context is full
    EMPTY = 4  # no episode here


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeSettings:
    """Limits of an episode and the sizes that programs are compiled for."""

    slots: int = 64  # episodes decoded side by side
    share: int = 0  # most neighbouring slots that read one prompt; 0: as many as suit a group
    context_tokens: int = 1024  # prompt, calls, results and answer together
    turn_tokens: int = 160  # most that are sampled in one turn
    episode_tokens: int = 800  # most that are sampled in one episode
    segment_tokens: int = 32  # most a row samples before the host looks
    widths: tuple[int, ...] = (64, 256, 512, 768, 1024)  # of blocks, and of the context read

    def __post_init__(self):
        if self.slots < 1:
            raise ValueError(f'slots must be at least 1, got {self.slots}')
        if self.share < 0 or (self.share and self.slots % self.share):
            raise ValueError(f'share must divide slots ({self.slots}) or be 0, got {self.share}')
        if not 0 < self.segment_tokens <= self.context_tokens:
            raise ValueError(
                f'segment_tokens must be in 1..context_tokens ({self.context_tokens}), '
                f'got {self.segment_tokens}'
            )
        if list(self.widths) != sorted(set(self.widths)) or self.widths[-1] < self.context_tokens:
            raise ValueError(
                'widths must ascend and end at context_tokens or beyond, got '
                f'{self.widths} for context_tokens {self.context_tokens}'
            )

    def shared_by(self, samples: int, devices: int = 1) -> 'DecodeSettings':
        """The same with a `share` that suits groups of `samples`: it divides them.

        `devices` is over how many the slots are split; a share lies on one of them.
        """
        each = self.slots // devices
        if self.share and each % self.share:
            raise ValueError(f'share must divide the {each} slots of a device, got {self.share}')
        return dataclasses.replace(self, share=math.gcd(self.share or each, samples))

    def width(self, tokens: int) -> int:
        """The smallest of the widths that holds `tokens`, at most the context."""
        return min(next(width for width in self.widths if width >= tokens), self.context_tokens)

    def piece(self, tokens: int) -> int:
        """How much of a block of `tokens` is read at once: all where little of it is padding."""
        whole = self.width(tokens) if tokens <= self.widths[-1] else self.widths[-1]
        if whole <= 1.25 * tokens:
            return whole
        return max((width for width in self.widths if width <= tokens), default=self.widths[0])


@struct.dataclass
class DecodeState:
    """Slots as arrays; one buffer a leaf, given away and handed back by every function."""

    rows: Trajectory  # what each slot has written so far
    status: jax.Array  # i32  [row]        Rest
    turn_tokens: jax.Array  # i32  [row]        sampled in this turn
    episode_tokens: jax.Array  # i32  [row]        sampled in this episode
    turn_index: jax.Array  # i32  [row]        the assistant turn being written
    logits: jax.Array  # f32  [row, vocab] of the next token
    key: jax.Array  # key  [row]        of (step, task, sample); positions are folded in
    choice: jax.Array  # i32  [row]        which of the distributions the row draws from
    cache: tuple[kv_cache.LayerCache, ...]  # of each row, from its prompt's end on
    prompt_tokens: jax.Array  # i32  [share]      of the prompt that the slots of a share hold
    prompts: tuple[kv_cache.LayerCache, ...]  # of each share


@struct.dataclass
class Prompt:
    """A prompt read once, ready to be copied into the slots of its group."""

    tokens: jax.Array  # i32 [block]
    count: jax.Array  # i32, tokens in use
    logits: jax.Array  # f32 [vocab] of the token after it
    layers: tuple  # a (key, value) [block, kv_head, head_dim] for each layer


@struct.dataclass
class Report:
    """All that leaves the device during a rollout."""

    status: jax.Array  # i32 [row]
    length: jax.Array  # i32 [row]
    ids: jax.Array  # i32 [row, segment]  sampled in this segment, from its start
    count: jax.Array  # i32 [row]           how many of them


def empty_rows(rows: int, context_tokens: int) -> Trajectory:
    """Rows in which nothing is written, a buffer of its own for each leaf."""
    size = (rows, context_tokens)
    return Trajectory(
        tokens=jnp.zeros(size, jnp.int32),
        length=jnp.zeros(rows, jnp.int32),
        sampled=jnp.zeros(size, bool),
        logprob=jnp.zeros(size, jnp.float32),
        turn=jnp.full(size, -1, jnp.int32),
    )


def empty_slots(shape: Shape, settings: DecodeSettings, dtype=jnp.float32) -> DecodeState:
    """Slots without an episode."""
    rows, shares = settings.slots, settings.slots // settings.share
    return DecodeState(
        rows=empty_rows(rows, settings.context_tokens),
        status=jnp.full(rows, int(Rest.EMPTY), jnp.int32),
        turn_tokens=jnp.zeros(rows, jnp.int32),
        episode_tokens=jnp.zeros(rows, jnp.int32),
        turn_index=jnp.zeros(rows, jnp.int32),
        logits=jnp.zeros((rows, shape.vocab), jnp.float32),
        key=jax.random.split(jax.random.key(0), rows),
        choice=jnp.zeros(rows, jnp.int32),
        cache=kv_cache.init(shape, rows, settings.width(1), dtype),
        prompt_tokens=jnp.zeros(shares, jnp.int32),
        prompts=kv_cache.init(shape, shares, settings.width(1), dtype),
    )


def admit(state: DecodeState, prompt: Prompt, slots, keys, choice=0, *, settings) -> DecodeState:
    """Start an episode in each of `slots` i32 [sample]; a slot out of range starts none.

    Each draws by its `choice` i32 [sample], or all by the same.  The slots that share their prompts
    with these must be free or hold episodes of the same prompt.
    """
    chex.assert_rank([slots, keys], 1)
    wide, shares = prompt.tokens.size, slots // settings.share
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
    prompts = tuple(
        kv_cache.LayerCache(
            key=past.key.at[shares, :, :, :wide].set(key.transpose(1, 2, 0), mode='drop'),
            value=past.value.at[shares, :, :wide].set(value.transpose(1, 0, 2), mode='drop'),
        )
        for past, (key, value) in zip(state.prompts, prompt.layers, strict=True)
    )
    return DecodeState(
        rows=rows,
        status=put(state.status, int(Rest.RUNNING)),
        turn_tokens=put(state.turn_tokens, 0),
        episode_tokens=put(state.episode_tokens, 0),
        turn_index=put(state.turn_index, 0),
        logits=put(state.logits, prompt.logits),
        key=put(state.key, keys),
        choice=put(state.choice, choice),
        cache=state.cache,
        prompt_tokens=state.prompt_tokens.at[shares].set(prompt.count, mode='drop'),
        prompts=prompts,
    )


def harvest(store: Trajectory, state: DecodeState, slots: jax.Array, rows: jax.Array):
    """Copy finished `slots` into `rows` of the store, empty them; a row out of range takes none."""
    chex.assert_equal_shape([slots, rows])

    def move(kept, written):
        return kept.at[rows].set(written[slots], mode='drop')

    store = jax.tree.map(move, store, state.rows)
    done = jnp.where(rows < store.length.size, slots, state.status.size)
    return store, state.replace(status=state.status.at[done].set(Rest.EMPTY, mode='drop'))
