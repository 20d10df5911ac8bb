"""How fast is one GRPO update?  W1: 32 rows of 512 tokens, and peers where folders are given.

    python experiments/bench_update.py --json w1.json
    python experiments/bench_update.py --peers.scripts FOLDER --peers.environments FOLDER

The time holds all of it: reference log-probabilities, forward, backward, clipping and AdamW.  All
tokens count, prompt and tool tokens too.  `of matmul` is the least arithmetic at the rate that the
model's own products reach here, over the time taken.  A peers' folder holds scripts such as
torch_w1.py, which append their rows to the file that PEER_BENCH_OUT names.
"""

import tyro

from cacherl_jax.bench.measured import show, write
from cacherl_jax.bench.settings import BenchSettings
from cacherl_jax.bench.update import measure_update
from cacherl_jax.run.refusal import refusing


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(BenchSettings, description=__doc__)
    found = [measure_update(settings)]
    show(found)
    write(found, settings.json)


if __name__ == '__main__':
    main()
