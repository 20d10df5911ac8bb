"""The one forward pass: training, prefill and decoding differ only in how a layer attends.

Tokens in, hidden states out.  Knows nothing of sampling, losses or caches: `attend` is handed in.
Qwen3, Qwen2 and Llama decoders are the same code with other numbers in `Shape`.
"""

import functools
import math
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from flax import struct

from cacherl_jax.policy import kv_cache
from cacherl_jax.policy.kv_cache import LayerCache, attention
from cacherl_jax.policy.shape import Params, Shape

Attend = Callable  # (past, query, key, value) -> (mixed [row, block, head, head_dim], past)


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """x / sqrt(mean(x^2) + epsilon) * scale, last axis, in f32 (arxiv.org/abs/1910.07467)."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + epsilon)
    return (wide * scale.astype(jnp.float32)).astype(x.dtype)


def rotary_angles(shape: Shape, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cos and sin of position * theta^(-2i/d), f32 [row, block, 1, head_dim/2].

    arxiv.org/abs/2104.09864
    """
    frequency = shape.rope_theta ** (-jnp.arange(0, shape.head_dim, 2) / shape.head_dim)
    if shape.rope_scaling:
        frequency = _stretch(frequency, shape.rope_scaling)
    angle = position[:, :, None, None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def _stretch(frequency, scaling):
    """Llama 3's rule: long wavelengths are stretched by `factor`, short ones kept, with a ramp."""
    wavelength = 2 * jnp.pi / frequency
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    keep = (scaling.original_context_tokens / wavelength - low) / (high - low)
    keep = jnp.clip(keep, 0, 1)
    return frequency * (keep + (1 - keep) / scaling.factor)


def rotate(x: jax.Array, angles: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turn the pairs (x_i, x_{i + d/2}) of each head by the angle of their position."""
    cos, sin = angles
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    return turned.astype(x.dtype)


@struct.dataclass
class Adapted:
    """A matrix with a low-rank change beside it (policy/lora.py), where a matrix is expected."""

    weight: jax.Array  # [*inputs, *outputs]
    down: jax.Array  # [*inputs, rank]
    up: jax.Array  # [rank, *outputs]
    scale: float = struct.field(pytree_node=False)

    def merged(self) -> jax.Array:
        """One matrix that does the same."""
        change = self.scale * jnp.tensordot(self.down, self.up, 1)
        return (self.weight.astype(change.dtype) + change).astype(self.weight.dtype)


def project(x: jax.Array, weight: jax.Array | Adapted, inputs: int = 1) -> jax.Array:
    """x [row, block, *inputs] times weight [*inputs, *outputs] -> [row, block, *outputs].

    As one product of two matrices: with two axes left open XLA's CPU back end takes twice as long
    for the gradient.
    """
    if isinstance(weight, Adapted):
        narrow = project(x, weight.down.astype(x.dtype), inputs)
        change = project(narrow, weight.up.astype(x.dtype))
        return project(x, weight.weight, inputs) + weight.scale * change
    outputs = weight.shape[inputs:]
    size = math.prod(weight.shape[:inputs])
    flat = x.reshape(-1, size) @ weight.reshape(size, -1)
    return flat.reshape(*x.shape[:2], *outputs)


def heads_of(layer: Params, shape: Shape, x: jax.Array, angles) -> tuple[jax.Array, ...]:
    """Query, key, value [row, block, head, head_dim] of a normed input [row, block, embed]."""
    query, key, value = (project(x, layer[name]) for name in ('query', 'key', 'value'))
    if shape.qkv_bias:
        query = query + layer['query_bias']
        key, value = key + layer['key_bias'], value + layer['value_bias']
    if shape.head_norm:
        query = rms_norm(query, layer['query_norm'], shape.norm_epsilon)
        key = rms_norm(key, layer['key_norm'], shape.norm_epsilon)
    return rotate(query, angles), rotate(key, angles), value


def block(layer: Params, shape: Shape, x: jax.Array, angles, past, attend: Attend):
    """One decoder layer: x + attention(norm x), then x + SwiGLU(norm x)."""
    query, key, value = heads_of(
        layer, shape, rms_norm(x, layer['attention_norm'], shape.norm_epsilon), angles
    )
    mixed, past = attend(past, query, key, value)
    x = x + project(mixed, layer['output'], inputs=2)
    inner = rms_norm(x, layer['mlp_norm'], shape.norm_epsilon)
    inner = jax.nn.silu(project(inner, layer['gate'])) * project(inner, layer['up'])
    return x + project(inner, layer['down']), past


def forward(
    params: Params,
    shape: Shape,
    tokens: jax.Array,
    position: jax.Array,
    attend: Attend,
    past: tuple,
    *,
    remat: bool = False,
) -> tuple[jax.Array, tuple]:
    """Hidden states [row, block, embed] after the last norm, and what each layer remembers.

    tokens, position i32 [row, block]; past: one entry a layer, whatever `attend` understands.
    Layers are unrolled: scanned layers copy a cache that is carried through them at every step.
    """
    chex.assert_rank([tokens, position], 2)
    chex.assert_equal_shape([tokens, position])
    x = params['embed'][tokens]
    angles = rotary_angles(shape, position)
    step = functools.partial(block, shape=shape, angles=angles, attend=attend)
    step = jax.checkpoint(step) if remat else step
    kept = []
    for layer, before in zip(params['layers'], past, strict=True):
        x, after = step(layer, x=x, past=before)
        kept.append(after)
    return rms_norm(x, params['norm'], shape.norm_epsilon), tuple(kept)


def logits_of(params: Params, shape: Shape, hidden: jax.Array) -> jax.Array:
    """f32 [..., vocab]; a tied head is the embedding, read the other way."""
    head = params['embed'].T if shape.tied else params['head']
    return jnp.matmul(hidden, head, preferred_element_type=jnp.float32)


def causal(
    segment: jax.Array | None = None, chunk_tokens: int = 128, implementation: str = 'chunked'
) -> Attend:
    """Attention within a block for training: causal, within one `segment` where rows are packed.

    Queries go in chunks that read only the keys before their end, which halves the work; another
    `implementation`, 'xla' or 'cudnn', is one of jax.nn.dot_product_attention.
    segment: i32 [row, block], equal for tokens of one conversation.
    """

    def fused(past, query, key, value):
        within = None if segment is None else (segment[:, :, None] == segment[:, None])[:, None]
        mixed = jax.nn.dot_product_attention(
            query, key, value, mask=within, is_causal=True, implementation=implementation
        )
        return mixed, past

    def attend(past, query, key, value):
        width = query.shape[1]
        keys, values = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
        parts = []
        for start in range(0, width, chunk_tokens):
            stop = min(start + chunk_tokens, width)
            seen = (jnp.arange(stop) <= jnp.arange(start, stop)[:, None])[None]
            if segment is not None:
                seen = seen & (segment[:, start:stop, None] == segment[:, None, :stop])
            part = query[:, start:stop], keys[..., :stop], values[:, :, :stop]
            parts.append(attention(*part, seen))
        return jnp.concatenate(parts, axis=1), past

    return attend if implementation == 'chunked' else fused


def after_prompts(split: tuple[int, int], segment: jax.Array, chunk_tokens: int = 128) -> Attend:
    """Attention for training where rows stand behind a prompt that they share.

    split: tokens for the prompt, and for each row behind it; segment i32 [packed row, token], -1 in
    padding.  A row's tokens see the prompt and, of the rows, their own up to themselves.
    """
    wide, each = split
    count, within = (segment[:, :wide] >= 0).sum(1), causal(chunk_tokens=chunk_tokens)

    def laid(key, value):
        return LayerCache(key=key.transpose(0, 2, 3, 1), value=value.transpose(0, 2, 1, 3))

    def attend(past, *heads):
        prompt = [x[:, :wide] for x in heads]
        query, key, value = (x[:, wide:].reshape(-1, each, *x.shape[2:]) for x in heads)
        parts = []
        for start in range(0, each, chunk_tokens):
            stop = min(start + chunk_tokens, each)
            own = laid(key[:, :stop], value[:, :stop])
            position = jnp.broadcast_to(jnp.arange(start, stop), (len(query), stop - start))
            asked = query[:, start:stop]
            parts.append(kv_cache.attend(laid(*prompt[1:]), count, own, asked, position))
        late = jnp.concatenate(parts, axis=1).reshape(len(segment), -1, *query.shape[2:])
        return jnp.concatenate([within(None, *prompt)[0], late], axis=1), past

    return attend


def init_params(shape: Shape, key: jax.Array, dtype=jnp.float32) -> Params:
    """Random parameters: normal, spread 0.02; residual outputs scaled by 1/sqrt(2 layers)."""
    keys = iter(jax.random.split(key, 2 + 7 * shape.layers))

    def normal(*size, scale=0.02):
        return (scale * jax.random.normal(next(keys), size)).astype(dtype)

    embed, head_dim, residual = shape.embed, shape.head_dim, 0.02 * (2 * shape.layers) ** -0.5

    def layer():
        made = {
            'attention_norm': jnp.ones(embed, dtype),
            'query': normal(embed, shape.heads, head_dim),
            'key': normal(embed, shape.kv_heads, head_dim),
            'value': normal(embed, shape.kv_heads, head_dim),
            'output': normal(shape.heads, head_dim, embed, scale=residual),
            'mlp_norm': jnp.ones(embed, dtype),
            'gate': normal(embed, shape.hidden),
            'up': normal(embed, shape.hidden),
            'down': normal(shape.hidden, embed, scale=residual),
        }
        if shape.head_norm:
            made |= {name: jnp.ones(head_dim, dtype) for name in ('query_norm', 'key_norm')}
        if shape.qkv_bias:
            made |= {'query_bias': jnp.zeros((shape.heads, head_dim), dtype)}
            kv = (shape.kv_heads, head_dim)
            made |= {name: jnp.zeros(kv, dtype) for name in ('key_bias', 'value_bias')}
        return made

    params = {
        'embed': normal(shape.vocab, embed),
        'layers': tuple(layer() for _ in range(shape.layers)),
        'norm': jnp.ones(embed, dtype),
    }
    return params if shape.tied else params | {'head': normal(embed, shape.vocab)}
