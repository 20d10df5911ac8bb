"""Records on disk: what is written is read, half a write is nothing, another schema is refused."""

import json
import math

import jax
import numpy as np
import pytest
from rollout_cache_rows import episode, record, task

from cacherl_jax.keys import name_number
from cacherl_jax.rollout_cache.record import ARRAYS, append, as_entries, episode_of, read


def equal(one, other):
    fields = vars(one).keys() - ARRAYS.keys()
    same = all(getattr(one, name) == getattr(other, name) for name in fields)
    arrays = ((getattr(one, name), getattr(other, name)) for name in ARRAYS)
    return same and all(
        (x is None and y is None) or (np.array_equal(x, y) and x.dtype == y.dtype)
        for x, y in arrays
    )


def test_what_is_written_is_read_in_order(tmp_path):
    records = [record(seed=seed, logprob=seed % 2 == 0) for seed in range(7)]
    append(tmp_path, records[:3])
    append(tmp_path, [])
    append(tmp_path, records[3:])
    assert all(map(equal, records, read(tmp_path))) and len(read(tmp_path)) == 7


def test_an_episode_comes_back_with_its_task_and_with_no_other(tmp_path):
    played = episode()
    append(tmp_path, [record(played)])
    (found,) = read(tmp_path)
    assert episode_of(found, played.task) == played
    with pytest.raises(ValueError, match='is no play of sums/train/1/00001'):
        episode_of(found, task(1))


def test_an_abstention_stays_one(tmp_path):
    append(tmp_path, [record(rewards={'final': math.nan})])
    assert math.isnan(read(tmp_path)[0].rewards['final'])


def test_a_write_that_was_killed_is_not_seen_and_not_in_the_way(tmp_path):
    append(tmp_path, [record()])
    (tmp_path / '.partial-1').mkdir()
    (tmp_path / '.partial-1' / 'records.jsonl').write_text('{"schema": 1, "rec')
    append(tmp_path, [record(seed=1)])
    assert len(read(tmp_path)) == 2


def test_a_number_that_is_taken_is_left_alone(tmp_path):
    append(tmp_path, [record()])
    (tmp_path / '000000').rename(tmp_path / '000001')  # what another writer may have left
    append(tmp_path, [record(seed=1)])
    assert len(read(tmp_path)) == 2


@pytest.mark.parametrize(
    ('line', 'change', 'said'),
    [
        (0, {'schema': 99}, r'schema 99; this reads \(1, 2\)'),
        (0, {'records': 5}, 'says 5 records'),
        (1, {'colour': 'red'}, "'colour'"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, line, change, said):
    path = append(tmp_path, [record()]) / 'records.jsonl'
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line] |= change
    path.write_text(''.join(json.dumps(text) + '\n' for text in lines))
    with pytest.raises(ValueError, match=said):
        read(tmp_path)


def test_records_without_a_note_are_still_read(tmp_path):
    path = append(tmp_path, [record(note='against: right')]) / 'records.jsonl'
    assert read(tmp_path)[0].note == 'against: right'
    header, row = map(json.loads, path.read_text().splitlines())
    del row['note']
    path.write_text(json.dumps(header | {'schema': 1}) + '\n' + json.dumps(row) + '\n')
    assert read(tmp_path)[0].note == ''


def test_identity_is_ids_and_choices_and_nothing_else():
    one, same, other = record(seed=1), record(seed=1, version=9), record(seed=2)
    assert one.identity == same.identity != other.identity


def test_records_become_padded_rows():
    records = [record(seed=0), record(seed=1, logprob=False)]
    rows = as_entries(records, 7, ('final', 'micro'))
    np.testing.assert_array_equal(rows.trajectory.tokens[0, :4], records[0].tokens)
    assert (rows.trajectory.turn[:, 4:] == -1).all() and not rows.trajectory.sampled[:, 4:].any()
    assert rows.has_behaviour.tolist() == [True, False]
    np.testing.assert_allclose(rows.reward, [[1.0, 0.1]] * 2, rtol=1e-6)
    assert rows.task.tolist() == [name_number(records[0].task)] * 2


def test_a_record_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match='4 tokens does not fit 3'):
        as_entries([record()], 3, ())


def test_no_records_are_no_rows():
    none, some = as_entries([], 4, ('final',)), as_entries([record()], 4, ('final',))
    assert none.reward.shape == (0, 1)
    for one, other in zip(jax.tree.leaves(none), jax.tree.leaves(some), strict=True):
        assert one.dtype == other.dtype and one.shape[1:] == other.shape[1:]
