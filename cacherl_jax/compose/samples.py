"""What the policy got right by itself before RL: in memory, and in the folder of a shared start.

Samples are kept as they were played, before anyone pays them: what an episode is worth is a setting
of RL, and runs that share a start differ in those.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Sequence

from cacherl_jax.rollout_cache import record
from cacherl_jax.rollout_cache.record import Record, Source, episode_of, record_episode
from cacherl_jax.supervised.dataset import Arrays
from cacherl_jax.supervised.rejection import Accepted
from cacherl_jax.tasks.task import Episode, Task

BEFORE_RL = -1  # the step of a policy that sampled before the first one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Episodes and their rows, in the order of their acceptance."""

    episodes: list[Episode]
    arrays: list[Arrays]  # tokens i32, sampled bool, logprob f32, turn i32: [token], no padding


def all_accepted(found: Sequence[Accepted]) -> Samples:
    """What every rejection sampling of a start accepted, the first one's first."""
    return Samples(
        episodes=[episode for one in found for episode in one.episodes],
        arrays=[row for one in found for row in one.arrays],
    )


def write_samples(folder: pathlib.Path, samples: Samples) -> None:
    """In place of whatever lay in the folder; nothing is written of none."""
    shutil.rmtree(folder, ignore_errors=True)
    if samples.episodes:
        pairs = zip(samples.episodes, samples.arrays, strict=True)
        record.append(folder, [_unpaid(episode, row) for episode, row in pairs])


def read_samples(folder: pathlib.Path, tasks: Sequence[Task]) -> Samples:
    """What `write_samples` was given, of these tasks."""
    known, records = {task.id: task for task in tasks}, record.read(folder)
    return Samples(
        episodes=[episode_of(one, known[one.task]) for one in records],
        arrays=[{name: getattr(one, name) for name in record.ARRAYS} for one in records],
    )


def _unpaid(episode: Episode, row: Arrays) -> Record:
    """A record without rewards, and without the hashes that a run puts into its own."""
    return record_episode(
        episode,
        {'logprob': None} | row,
        rewards={},
        episode_return=0.0,
        version=BEFORE_RL,
        source=Source.REJECTION,
        template_hash='',
        tools_hash='',
        tool_cache_hash='',
    )
