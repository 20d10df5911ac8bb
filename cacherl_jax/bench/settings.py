"""What every benchmark can be told."""

import dataclasses
import pathlib

import jax.numpy as jnp

from cacherl_jax.bench.peers import PeerSettings
from cacherl_jax.bench.workloads import MODELS
from cacherl_jax.mesh import MeshSettings
from cacherl_jax.policy.numerics import NumericsSettings

DTYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """How often, on what, and against whom."""

    model: str = 'S'  # tiny, S, M (SmolLM2-135M's sizes) or Q (Qwen3-0.6B's)
    dtype: str = 'float32'  # of the arithmetic: float32 or bfloat16
    attention: str = 'chunked'  # of the update: chunked, xla, or cudnn on a GPU in bfloat16
    repetitions: int = 3  # calls that count, after one that compiles; and again after each peer
    mesh: MeshSettings = MeshSettings()  # --mesh.data 2: a device for each of two cores
    peers: PeerSettings = PeerSettings()
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        if self.model not in MODELS:
            raise ValueError(f'model must be one of {sorted(MODELS)}, got {self.model!r}')
        if self.dtype not in DTYPES:
            raise ValueError(f'dtype must be one of {sorted(DTYPES)}, got {self.dtype!r}')
        NumericsSettings(dtype=self.dtype, attention=self.attention)
        if self.repetitions < 1:
            raise ValueError(f'repetitions must be 1 or more, got {self.repetitions}')
