"""How fast is one GRPO update, and do more tokens make each of them dearer?

    python experiments/bench_update.py --json w1.json
    python experiments/bench_update.py --peers.scripts FOLDER --peers.environments FOLDER

W1 is 32 rows of 512 tokens.  The time holds all of it: reference log-probabilities, forward,
backward, clipping and AdamW.  All tokens count, prompt and tool tokens too.  `of matmul` is the
least arithmetic at the rate that the model's own products reach here, over the time taken.  The
second table has batches of 1, 2 and 4 groups, and the programs that each made anew.  A peers'
folder holds scripts such as torch_w1.py, which append their rows to the file that PEER_BENCH_OUT
names.
"""

import dataclasses

import tyro

from cacherl_jax.bench.measured import show, write
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.update import GROWTH_COLUMNS, growth, measure_update
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateBench(BenchSettings):
    """W1, and how its cost grows."""

    groups: tuple[int, ...] = (1, 2, 4)  # of the second table; none leaves it out

    def __post_init__(self):
        super().__post_init__()
        if any(groups < 1 for groups in self.groups):
            raise ValueError(f'groups must be 1 or more, got {self.groups}')


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(UpdateBench, description=__doc__)
    found = [measure_update(settings)]
    show(found)
    if settings.groups:
        rows = growth(settings, settings.groups)
        print_table(f'more tokens, model {settings.model}', GROWTH_COLUMNS, rows)
    write(found, settings.json)


if __name__ == '__main__':
    main()
