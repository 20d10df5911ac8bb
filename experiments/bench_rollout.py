"""How fast is a rollout of several turns, and does a turn more make it slower?

    python experiments/bench_rollout.py --json w2.json
    python experiments/bench_rollout.py --peers.scripts FOLDER --peers.environments FOLDER

W2: 32 rows in groups of 8 that share a prompt, 3 turns of 48 sampled tokens, 64 tool tokens forced
in between.  Sampled tokens count, over the time of the whole episode, prompts included.  The second
table plays 1, 2, 4 and 8 turns with one decoder, which has met all of its widths; it counts all
tokens that were read or sampled as well, and the programs that each number of turns made anew.
`--mesh.data 2` has each of two cores write its own rows.
"""

import dataclasses

import tyro

from cacherl_jax.bench.measured import show, write
from cacherl_jax.bench.rollout import GROWTH_COLUMNS, growth, measure_play
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.workloads import rollout_work
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutBench(BenchSettings):
    """W2, and how its cost grows."""

    turns: tuple[int, ...] = (1, 2, 4, 8)  # of the second table; none leaves it out

    def __post_init__(self):
        super().__post_init__()
        if any(turns < 1 for turns in self.turns):
            raise ValueError(f'turns must be 1 or more, got {self.turns}')


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(RolloutBench, description=__doc__)
    found = [measure_play('W2', rollout_work(settings.model), settings)]
    show(found)
    if settings.turns:
        rows = growth(settings, settings.turns)
        print_table(f'more turns, model {settings.model}', GROWTH_COLUMNS, rows)
    write(found, settings.json)


if __name__ == '__main__':
    main()
