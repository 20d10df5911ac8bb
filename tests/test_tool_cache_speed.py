"""Look-ups are fast at the size of a real cache: 41,000 answers of 1,185 tools."""

import statistics

import pytest

from experiments.bench_tool_cache import SpeedSettings, filled, measure, rivals, table, timed


@pytest.mark.slow
@pytest.mark.parametrize(('entries', 'allowance'), [(41_000, 1), (1_000_000, 3)])
def test_a_look_up_does_not_walk_through_the_cache(entries, allowance):
    times = timed(*filled(entries))
    assert statistics.median(times['exact']) < allowance * 10
    assert statistics.median(times['fuzzy']) < allowance * 1000


def test_every_tier_and_every_rival_is_timed():
    told = measure(2370, SpeedSettings(entries=(2370,), look_ups=50, rivals=True))
    assert all(told[f'{name}_us'] > 0 for name in ('exact', 'fuzzy', 'best_effort'))
    assert {'scan', 'sqlite'} <= set(told['rivals_us'])


def test_growth_is_the_last_size_over_the_first():
    sizes = [{'exact_us': us, 'rivals_us': {'scan': 10 * us}} for us in (2.0, 3.0, 5.0)]
    assert table(sizes) == [['exact_us', 2, 3, 5, 2.5], ['exact, scan', 20, 30, 50, 2.5]]


def test_a_rival_is_asked_for_calls_that_it_holds():
    _, asked = filled(1185, 7)
    assert rivals(1185, asked)['sqlite'] > 0


def test_fewer_entries_than_look_ups_are_refused():
    with pytest.raises(ValueError, match='at least as many as look_ups'):
        SpeedSettings(entries=(100,))
