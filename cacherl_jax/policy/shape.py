"""The sizes of a policy and the layout of its parameters.  Numbers only; no array is made here."""

import dataclasses
from typing import Any

Params = dict[str, Any]
"""Parameters are a pytree of arrays; f32 or bf16; axes as named:

    embed        [vocab, embed]
    layers       tuple, one dict a layer:
      attention_norm  [embed]
      query           [embed, head, head_dim]
      key, value      [embed, kv_head, head_dim]
      query_norm, key_norm  [head_dim]                 where shape.head_norm (Qwen3)
      query_bias      [head, head_dim]                 where shape.qkv_bias (Qwen2)
      key_bias, value_bias  [kv_head, head_dim]        where shape.qkv_bias (Qwen2)
      output          [head, head_dim, embed]
      mlp_norm        [embed]
      gate, up        [embed, hidden]
      down            [hidden, embed]
    norm         [embed]
    head         [embed, vocab]                        where not shape.tied
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Llama-3's stretching of long wavelengths (`rope_type: llama3`)."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context_tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a Qwen3-, Qwen2- or Llama-type decoder."""

    layers: int
    embed: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    rope_theta: float = 1e6
    rope_scaling: RopeScaling | None = None
    norm_epsilon: float = 1e-6
    tied: bool = True
    head_norm: bool = True  # RMS norm of each query and key head (Qwen3)
    qkv_bias: bool = False  # Qwen2
    context_tokens: int = 4096  # the longest row the model was made for

    def __post_init__(self):
        if self.heads % self.kv_heads:
            raise ValueError(
                f'heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}'
            )
        if self.head_dim % 2:
            raise ValueError(f'head_dim must be even for rotary positions, got {self.head_dim}')
