"""What this machine can do through JAX: the rate of a model's own products, the rate of reading.

A share of these says how much of a workload's time was needed.  The best of a few tries counts, for
a limit that a busy neighbour lowered would flatter.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from cacherl_jax.policy.shape import Shape
from cacherl_jax.run.timing import span

LEAST_SECONDS = 0.05  # of one try: calls are repeated until they take this long
TRIES = 5
READ_ENTRIES = 2**27  # 512 MB in f32, beyond what processors keep near


def rate(function: Callable, arguments: tuple, amount: float) -> float:
    """`amount` per second: how fast calls of the compiled function follow each other."""
    call = jax.jit(function)

    def repeat(calls: int):
        for _ in range(calls - 1):
            call(*arguments)
        return call(*arguments)

    span(lambda: repeat(1))  # compiles
    calls = 1
    while (seconds := span(functools.partial(repeat, calls)).seconds) < LEAST_SECONDS:
        calls *= 2
    tries = [seconds] + [span(functools.partial(repeat, calls)).seconds for _ in range(TRIES - 1)]
    return amount * calls / min(tries)


def layer_products(shape: Shape) -> dict[tuple[int, int], int]:
    """How often a layer multiplies its tokens with a matrix [inputs, outputs], by its sizes."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = [
        (shape.embed, queries),
        *[(shape.embed, keys)] * 2,
        (queries, shape.embed),
        *[(shape.embed, shape.hidden)] * 2,
        (shape.hidden, shape.embed),
    ]
    return {size: sizes.count(size) for size in dict.fromkeys(sizes)}


def matmul_rate(shape: Shape, rows: int, dtype=jnp.float32) -> float:
    """FLOP/s over the products of one layer with `rows` tokens, one after the other."""
    flops, seconds = 0, 0.0
    for (inputs, outputs), times in layer_products(shape).items():
        tokens, weight = jnp.ones((rows, inputs), dtype), jnp.ones((inputs, outputs), dtype)
        amount = 2 * rows * inputs * outputs
        flops += times * amount
        seconds += times * amount / rate(jnp.matmul, (tokens, weight), amount)
    return flops / seconds


def read_rate(entries: int = READ_ENTRIES) -> float:
    """Bytes/s that a sum over a large array reads."""
    array = jnp.ones(entries, jnp.float32)
    return rate(jnp.sum, (array,), array.nbytes)
