"""How exactly a policy computes, and what it keeps for its gradient.  Parameters stay as they are.

What is learned, its gradient and its optimizer's state are float32 whatever is chosen here.
"""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumericsSettings:
    """Speed and memory against exactness and time."""

    # Of products, hidden states and remembered keys; logits and sums are float32 all the same.
    dtype: Literal['float32', 'bfloat16'] = 'float32'
    remat: bool = False  # layers are computed again for the gradient in place of being kept
    # Attention of training: our chunks of queries, or jax.nn.dot_product_attention by XLA or, on a
    # GPU and in bfloat16, by cuDNN, which holds no scores at all.  Of rows that share prompts
    # (update.shared_widths) always ours.
    attention: Literal['chunked', 'xla', 'cudnn'] = 'chunked'

    def __post_init__(self):
        if self.attention not in ('chunked', 'xla', 'cudnn'):
            raise ValueError(f'attention must be chunked, xla or cudnn, got {self.attention!r}')
        if self.attention == 'cudnn' and self.dtype != 'bfloat16':
            raise ValueError(f'attention cudnn needs dtype bfloat16, got {self.dtype}')
        if self.dtype not in ('float32', 'bfloat16'):
            raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {self.dtype!r}")


def computed_in(params: Any, dtype: str) -> Any:
    """The parameters as arrays of this type; those that are so already are not copied."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.dtype(dtype)), params)


@functools.cache
def cast(dtype: str):
    """A compiled `computed_in` for whoever reads parameters often; float32 they are already."""
    if dtype == 'float32':
        return lambda params: params
    return jax.jit(functools.partial(computed_in, dtype=dtype))
