"""Fresh and cached rows as one batch: who is grouped with whom, and who may teach how."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_cache_rows import entries

from cacherl_jax.rollout_cache.buffer import Draw
from cacherl_jax.rollout_cache.mix import (
    CACHED,
    FRESH,
    LEFT_OUT,
    SUPERVISED,
    MixSettings,
    cached_rows,
    mix,
    refuse_without_behaviour,
)
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.schedule import Schedule


def mixed(mode='by_record', draw=True):
    fresh = entries([0.0, 1.0, 0.5, 0.5])
    task, counted = jnp.array([40, 40, 30, 30]), jnp.array([True, True, True, False])
    old = entries([9.0, 8.0, 7.0, 6.0], task=[30, 77, 77, 30], has_behaviour=[1, 0, 1, 1])
    drawn = Draw(old, jnp.array([True, True, True, False]), jnp.arange(4))
    return mix(
        fresh.trajectory,
        task,
        fresh.episode_return,
        counted,
        drawn if draw else None,
        MixSettings(mode=mode),
    )


def test_rows_of_one_task_share_a_group_and_no_others_do():
    group = np.asarray(mixed().group)
    names = np.array([40, 40, 30, 30, 30, 77, 77, 30])
    np.testing.assert_array_equal(group[:, None] == group, names[:, None] == names)


@pytest.mark.parametrize(
    ('mode', 'kinds'),
    [
        ('by_record', [CACHED, SUPERVISED, CACHED, LEFT_OUT]),
        ('supervised', [SUPERVISED, SUPERVISED, SUPERVISED, LEFT_OUT]),
        ('behaviour', [CACHED, LEFT_OUT, CACHED, LEFT_OUT]),
    ],
)
def test_a_row_teaches_by_its_ratio_only_where_it_has_one(mode, kinds):
    rows = mixed(mode)
    assert rows.kind.tolist() == [FRESH, FRESH, FRESH, LEFT_OUT, *kinds]
    # An example is imitated, not compared with: it moves no baseline.
    assert rows.counted.tolist() == [kind in (FRESH, CACHED) for kind in rows.kind.tolist()]
    assert rows.fresh.tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize('mode', ['by_record', 'supervised', 'behaviour'])
def test_a_failure_is_compared_with_and_never_imitated(mode):
    rows = entries([0.0, 1.0], task=[40, 40], source=[Source.FAILURE] * 2, has_behaviour=[1, 0])
    draw = Draw(rows, jnp.ones(2, bool), jnp.arange(2))
    fresh = entries([1.0])
    kinds = mix(
        fresh.trajectory, jnp.array([40]), fresh.episode_return, jnp.ones(1, bool), draw,
        MixSettings(mode=mode),
    ).kind  # fmt: skip
    own = LEFT_OUT if mode == 'supervised' else CACHED
    assert kinds.tolist() == [FRESH, own, LEFT_OUT]


def test_no_draw_adds_no_row_and_changes_none():
    plain, both = mixed(draw=False), mixed()
    assert plain.kind.shape == (4,)
    for alone, beside in zip(jax.tree.leaves(plain), jax.tree.leaves(both), strict=True):
        assert (alone == beside[:4]).all()


@pytest.mark.parametrize(('share', 'fresh', 'cached'), [(0, 7, 0), (0.5, 7, 7), (0.8, 16, 64)])
def test_the_share_is_of_all_rows(share, fresh, cached):
    assert cached_rows(share, fresh) == cached


def test_a_ratio_is_refused_for_rows_without_log_probabilities():
    with pytest.raises(ValueError, match='2 rows have no behaviour log-probabilities'):
        refuse_without_behaviour('behaviour', [True, False, False])
    refuse_without_behaviour('supervised', [False])
    refuse_without_behaviour('behaviour', [True])


@pytest.mark.parametrize('wrong', [{'mode': 'ratio'}, {'share': Schedule(start=1.0)}])
def test_nonsense_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MixSettings(**wrong)
