"""What rejection sampling accepted comes back from a start's folder as it was played."""

import dataclasses

import numpy as np
from rollout_cache_rows import episode, task

from cacherl_jax.compose.samples import Samples, all_accepted, read_samples, write_samples
from cacherl_jax.rollout_cache.record import ARRAYS, Source, read
from cacherl_jax.supervised.rejection import Accepted

TASKS = [task(number) for number in range(3)]


def row(seed):
    random = np.random.default_rng(seed)
    return {
        'tokens': random.integers(0, 99, 4).astype(np.int32),
        'sampled': np.array([False, True, False, True]),
        'logprob': random.normal(size=4).astype(np.float32),
        'turn': np.array([-1, 0, 0, 1], np.int32),
    }


def samples(*numbers):
    """A sample of each of these tasks."""
    episodes = [dataclasses.replace(episode(number=n), task=TASKS[n], step=-1) for n in numbers]
    return Samples(episodes=episodes, arrays=[row(seed) for seed in range(len(numbers))])


def assert_same(ours, theirs):
    assert ours.episodes == theirs.episodes and len(ours.arrays) == len(theirs.arrays)
    for one, other in zip(ours.arrays, theirs.arrays, strict=True):
        assert one.keys() == other.keys() == ARRAYS.keys()
        for name, kind in ARRAYS.items():
            assert one[name].dtype == other[name].dtype == kind
            assert one[name].tobytes() == other[name].tobytes()


def test_samples_come_back_bit_for_bit_in_their_order(tmp_path):
    written = samples(2, 0, 2, 1)
    write_samples(tmp_path / 'samples', written)
    assert_same(read_samples(tmp_path / 'samples', TASKS), written)
    assert {one.source for one in read(tmp_path / 'samples')} == {Source.REJECTION}


def test_log_probabilities_that_nobody_gave_stay_unknown(tmp_path):
    (known,) = samples(0).arrays
    unknown = {name: x for name, x in known.items() if name != 'logprob'}
    write_samples(tmp_path, Samples(episodes=samples(0).episodes, arrays=[unknown]))
    assert read_samples(tmp_path, TASKS).arrays[0]['logprob'] is None


def test_what_is_written_takes_the_place_of_what_lay_there(tmp_path):
    write_samples(tmp_path / 'samples', samples(0, 1))
    write_samples(tmp_path / 'samples', samples(2))
    assert_same(read_samples(tmp_path / 'samples', TASKS), samples(2))
    write_samples(tmp_path / 'samples', samples())
    assert_same(read_samples(tmp_path / 'samples', []), samples())


def test_every_sampling_counts_in_its_order():
    whole = samples(0, 1, 2)
    parts = [
        Accepted(arrays=whole.arrays[part], episodes=whole.episodes[part], counts={})
        for part in (slice(0, 2), slice(2, 3))
    ]
    assert_same(all_accepted(parts), whole)
    assert all_accepted([]) == Samples(episodes=[], arrays=[])
