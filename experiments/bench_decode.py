"""How fast is plain decoding?  W3: one row of a model of SmolLM2-135M's sizes, then many rows.

    python experiments/bench_decode.py --json w3.json
    python experiments/bench_decode.py --rows 1 --peers.scripts FOLDER --peers.environments FOLDER

Greedy, 128 new tokens after a prompt of 32, whose time counts but not its tokens.  One row is bound
by reading every weight for every token; many rows should be bound by their arithmetic.  Peers run
beside the first number of rows.  The JSON file has an object for each number, or the one alone.
"""

import dataclasses

import tyro

from cacherl_jax.bench.measured import show, write
from cacherl_jax.bench.rollout import GREEDY, measure_play
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.workloads import decode_work
from cacherl_jax.run.refusal import refusing


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeBench(BenchSettings):
    """W3 for some numbers of rows."""

    model: str = 'M'  # as in the other benchmarks
    rows: tuple[int, ...] = (1, 16)  # decoded side by side
    prompt_tokens: int = 32
    new_tokens: int = 128

    def __post_init__(self):
        super().__post_init__()
        if not self.rows or min(*self.rows, self.prompt_tokens, self.new_tokens) < 1:
            raise ValueError(
                'rows, prompt_tokens and new_tokens must be 1 or more, '
                f'got {self.rows}, {self.prompt_tokens}, {self.new_tokens}'
            )


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(DecodeBench, description=__doc__)
    found = []
    for rows in settings.rows:
        work = decode_work(rows, settings.prompt_tokens, settings.new_tokens)
        found.append(
            measure_play('W3', work, settings, GREEDY, with_peers=rows == settings.rows[0])
        )
    show(found)
    write(found, settings.json)


if __name__ == '__main__':
    main()
