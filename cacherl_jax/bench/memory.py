"""What a compiled program holds at its peak, as its compiler says; nothing is run."""

import math
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from cacherl_jax.grpo.loss import Batch, LossSettings, denominators
from cacherl_jax.grpo.update import as_it_is, programs
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params

ARRAY = re.compile(r'\b(pred|[suf]\d+|bf16)\[(\d+(?:,\d+)*)\]')


class Memory(NamedTuple):
    """Bytes of one compiled program."""

    peak_bytes: int  # arguments, results and what lives in between
    largest: str  # the largest array that its text names, such as f32[8,512,256]
    largest_bytes: int


def memory_of(compiled) -> Memory:
    """Peak memory of a compiled program, and its largest array."""
    told = compiled.memory_analysis()
    peak = (
        told.argument_size_in_bytes
        + told.output_size_in_bytes
        + told.temp_size_in_bytes
        - told.alias_size_in_bytes
    )
    largest = max(set(ARRAY.findall(compiled.as_text())), key=array_bytes)
    return Memory(peak, f'{largest[0]}[{largest[1]}]', array_bytes(largest))


def array_bytes(array: tuple[str, str]) -> int:
    """Of ('f32', '8,512,256')."""
    kind, sizes = array
    bits = 8 if kind == 'pred' else int(re.sub(r'\D', '', kind))
    return math.prod(map(int, sizes.split(','))) * bits // 8


def abstract_batch(rows: int, row_tokens: int) -> Batch:
    """A batch of these sizes without its numbers."""
    size = (rows, row_tokens)
    kinds = {'tokens': (size, jnp.int32), 'sampled': (size, bool)}
    kinds |= dict.fromkeys(('length', 'kind'), ((rows,), jnp.int32))
    numbers = ('behaviour_logprob', 'reference_logprob', 'advantage')
    kinds |= dict.fromkeys(numbers, (size, jnp.float32))
    return Batch(**{name: jax.ShapeDtypeStruct(*kind) for name, kind in kinds.items()})


def update_memory(
    shape: Shape, score: Partial, loss: LossSettings, rows: int, row_tokens: int
) -> Memory:
    """Of the program that adds the gradient of rows [row, token] to a gradient."""
    params = jax.eval_shape(lambda: init_params(shape, jax.random.key(0)))
    micro = abstract_batch(rows, row_tokens)
    divisors = jax.eval_shape(lambda batch: denominators(batch, loss), micro)
    lowered = programs(loss, as_it_is).accumulate.lower(params, params, score, micro, divisors)
    return memory_of(lowered.compile())
