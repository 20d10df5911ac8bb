"""The three workloads that speed is measured by, the models they run on, their least arithmetic.

W1 is one GRPO update, W2 a rollout of several turns with tool tokens forced in between, W3 greedy
decoding.  Inputs are random ids from fixed seeds; every turn has the same length, so that what is
measured is the engine and not the luck of the draw.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.policy.transformer import init_params

FIRST_ID = 2  # ids below are padding and end in many vocabularies

MODELS = {
    'tiny': Shape(layers=2, embed=16, heads=4, kv_heads=2, head_dim=8, hidden=24, vocab=64),
    'S': Shape(layers=6, embed=256, heads=8, kv_heads=4, head_dim=32, hidden=768, vocab=4096),
    # The sizes of SmolLM2-135M.
    'M': Shape(
        layers=30,
        embed=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        hidden=1536,
        vocab=49152,
        rope_theta=1e5,
        norm_epsilon=1e-5,
        head_norm=False,
    ),
    # The sizes of Qwen3-0.6B.
    'Q': Shape(
        layers=28, embed=1024, heads=16, kv_heads=8, head_dim=128, hidden=3072, vocab=151936
    ),
}


def parameters(shape: Shape, dtype=jnp.float32) -> Params:
    """Random ones, made by one program."""
    key = jax.random.key(0, impl='rbg')  # threefry compiles for longer than a tiny model runs
    return jax.jit(init_params, static_argnums=(0, 2))(shape, key, dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateWork:
    """W1: rows of their group's prompt, sampled tokens, a tool's answer, sampled tokens."""

    rows: int = 32
    row_tokens: int = 512
    prompt_tokens: int = 256
    tool_start: int = 352
    tool_tokens: int = 64
    group: int = 8
    micro_rows: int = 8

    @property
    def tokens(self) -> int:
        """All of them count: prompt and tool tokens are read as sampled ones are."""
        return self.rows * self.row_tokens

    @property
    def sampled_tokens(self) -> int:
        return self.rows * (self.row_tokens - self.prompt_tokens - self.tool_tokens)

    def inputs(self, vocab: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ids i32 [row, token], sampled bool [row, token], reward f32 [row]."""
        draw = np.random.default_rng(0)
        ids = draw.integers(FIRST_ID, vocab, (self.rows, self.row_tokens), dtype=np.int32)
        ids[:, : self.prompt_tokens] = np.repeat(
            ids[:: self.group, : self.prompt_tokens], self.group, axis=0
        )
        sampled = np.ones(ids.shape, bool)
        sampled[:, : self.prompt_tokens] = False
        sampled[:, self.tool_start : self.tool_start + self.tool_tokens] = False
        return ids, sampled, draw.normal(size=self.rows).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutWork:
    """W2: groups of rows that share a prompt; a tool's answer between two turns."""

    prompts: int = 4
    group: int = 8
    prompt_tokens: int = 256
    turns: int = 3
    turn_tokens: int = 48
    tool_tokens: int = 64

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def sampled_tokens(self) -> int:
        return self.rows * self.turns * self.turn_tokens

    @property
    def tokens(self) -> int:
        """Sampled, or read: prompts once for their group, and what tools answer."""
        read = self.prompts * self.prompt_tokens + self.rows * (self.turns - 1) * self.tool_tokens
        return read + self.sampled_tokens

    @property
    def row_tokens(self) -> int:
        forced = self.prompt_tokens + (self.turns - 1) * self.tool_tokens
        return forced + self.turns * self.turn_tokens

    @property
    def turn_starts(self) -> list[int]:
        """Tokens in a row when each turn begins."""
        step = self.turn_tokens + self.tool_tokens
        return [self.prompt_tokens + turn * step for turn in range(self.turns)]

    def inputs(self, vocab: int) -> tuple[np.ndarray, np.ndarray]:
        """prompts i32 [prompt, token], tool tokens i32 [turn - 1, row, token]."""
        draw = np.random.default_rng(1)
        prompts = draw.integers(FIRST_ID, vocab, (self.prompts, self.prompt_tokens), dtype=np.int32)
        size = (self.turns - 1, self.rows, self.tool_tokens)
        return prompts, draw.integers(FIRST_ID, vocab, size, dtype=np.int32)


def decode_work(rows: int, prompt_tokens: int = 32, new_tokens: int = 128) -> RolloutWork:
    """W3: one turn, each row with a prompt of its own."""
    return RolloutWork(
        prompts=rows, group=1, prompt_tokens=prompt_tokens, turns=1, turn_tokens=new_tokens
    )


TINY_UPDATE = UpdateWork(
    rows=4,
    row_tokens=32,
    prompt_tokens=16,
    tool_start=22,
    tool_tokens=4,
    group=2,
    micro_rows=2,
)
TINY_ROLLOUT = RolloutWork(
    prompts=2, group=3, prompt_tokens=16, turns=2, turn_tokens=5, tool_tokens=4
)


def update_work(model: str) -> UpdateWork:
    """W1 at the size that suits a model of this name."""
    sizes = {'tiny': TINY_UPDATE, 'M': UpdateWork(rows=4, group=4, micro_rows=4)}
    return sizes.get(model, UpdateWork())


def rollout_work(model: str) -> RolloutWork:
    """W2 at the size that suits a model of this name."""
    sizes = {'tiny': TINY_ROLLOUT, 'M': RolloutWork(prompts=1)}
    return sizes.get(model, RolloutWork())


def layer_weights(shape: Shape) -> int:
    """Entries of one layer's matrices."""
    attention = shape.embed * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    return attention + 3 * shape.embed * shape.hidden


def matrix_weights(shape: Shape) -> int:
    """Entries of all matrices that a token is multiplied with, the head's too."""
    return shape.layers * layer_weights(shape) + shape.embed * shape.vocab


def keys_read(start: int, tokens: int) -> int:
    """Keys that `tokens` positions from `start` on attend to, each to all up to itself."""
    return sum(range(start + 1, start + tokens + 1))


def block_flops(shape: Shape, tokens: int, keys: int) -> int:
    """Of `tokens` through all layers, attending to so many keys together."""
    products = 2 * shape.layers * layer_weights(shape) * tokens
    return products + 4 * shape.layers * shape.heads * shape.head_dim * keys


def head_flops(shape: Shape, tokens: int) -> int:
    return 2 * shape.embed * shape.vocab * tokens


def update_flops(shape: Shape, work: UpdateWork) -> int:
    """Forward and backward of the policy, forward of the reference.

    The head where sampled only, and a prompt once for its group.
    """
    prompt, rest = work.prompt_tokens, work.row_tokens - work.prompt_tokens
    prompts = work.rows // work.group
    keys = prompts * keys_read(0, prompt) + work.rows * keys_read(prompt, rest)
    tokens = prompts * prompt + work.rows * rest
    return 4 * (block_flops(shape, tokens, keys) + head_flops(shape, work.sampled_tokens))


def read_flops(shape: Shape, work: RolloutWork) -> int:
    """Of the forced tokens of a rollout: a prompt once for its group, an answer once a row."""
    flops = work.prompts * block_flops(shape, work.prompt_tokens, keys_read(0, work.prompt_tokens))
    for start in work.turn_starts[1:]:
        keys = keys_read(start - work.tool_tokens, work.tool_tokens)
        flops += work.rows * block_flops(shape, work.tool_tokens, keys)
    return flops


def sample_flops(shape: Shape, work: RolloutWork) -> int:
    """Of the sampled tokens of a rollout, each through all layers and the head once."""
    keys = sum(keys_read(start, work.turn_tokens) for start in work.turn_starts)
    blocks = block_flops(shape, work.turns * work.turn_tokens, keys)
    return work.rows * blocks + head_flops(shape, work.sampled_tokens)


def sample_bytes(shape: Shape, work: RolloutWork, itemsize: int = 4) -> int:
    """Read from memory by sampling: all matrices at each step, keys and values, a prompt's once."""
    steps, prompt = work.turns * work.turn_tokens, work.prompt_tokens
    own = sum(keys_read(start - prompt, work.turn_tokens) for start in work.turn_starts)
    keys = work.rows * own + work.prompts * prompt * steps
    entry = 2 * shape.layers * shape.kv_heads * shape.head_dim
    return itemsize * (steps * matrix_weights(shape) + entry * keys)
