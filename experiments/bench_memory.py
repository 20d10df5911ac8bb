"""How much memory does an update need?  Compiled for a large vocabulary, not run.

    python experiments/bench_memory.py
    python experiments/bench_memory.py --rows 2 --row-tokens 16384 --vocab 151936

The compiled program that adds the gradient of so many tokens tells its peak.  If logits existed for
all of these tokens at once, they alone would take what the last column says.
"""

import dataclasses
import json
import pathlib

import tyro

from cacherl_jax.bench.memory import update_memory
from cacherl_jax.bench.settings import DTYPES, BenchSettings
from cacherl_jax.bench.update import LOSS, make_scorer
from cacherl_jax.bench.workloads import MODELS
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table

COLUMNS = ('layers', 'peak GB', 'largest array', 'its GB', 'logits would be, GB')


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryBench:
    """Which program is compiled."""

    model: str = 'S'  # tiny, S, M or Q; its vocabulary is replaced
    dtype: str = 'float32'  # of the arithmetic
    vocab: int = 151_936
    rows: int = 8
    row_tokens: int = 4096
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        BenchSettings(model=self.model, dtype=self.dtype)
        if min(self.vocab, self.rows, self.row_tokens) < 1:
            raise ValueError(
                'vocab, rows and row_tokens must be 1 or more, '
                f'got {self.vocab}, {self.rows}, {self.row_tokens}'
            )


def measure(settings: MemoryBench) -> dict[str, dict]:
    """{kept or computed again: bytes of the compiled update}."""
    shape = dataclasses.replace(MODELS[settings.model], vocab=settings.vocab)
    found = {}
    for name, remat in {'kept for the gradient': False, 'computed again': True}.items():
        scorer = make_scorer(shape, DTYPES[settings.dtype], remat)
        memory = update_memory(shape, scorer, LOSS, settings.rows, settings.row_tokens)
        found[name] = memory._asdict()
    return found


def logits_bytes(settings: MemoryBench) -> int:
    """Of an f32 array [row, token, vocab]."""
    return 4 * settings.rows * settings.row_tokens * settings.vocab


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(MemoryBench, description=__doc__)
    found, logits = measure(settings), logits_bytes(settings)
    rows = [
        [name, told['peak_bytes'] / 1e9, told['largest'], told['largest_bytes'] / 1e9, logits / 1e9]
        for name, told in found.items()
    ]
    tokens = settings.rows * settings.row_tokens
    title = f'an update of {tokens} tokens, model {settings.model}, vocabulary {settings.vocab}'
    print_table(title, COLUMNS, rows)
    if settings.json:
        plain = {'tokens': tokens, 'logits_bytes': logits, 'layers': found}
        write_atomically(settings.json, json.dumps(plain, indent=2) + '\n')


if __name__ == '__main__':
    main()
