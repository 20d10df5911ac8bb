"""Schedules: ends are met, ranges are kept, nonsense is refused."""

import dataclasses

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from cacherl_jax.schedule import Schedule

LINEAR = Schedule(start=0.8, end=0.2, steps=10, shape='linear')


@pytest.mark.parametrize('shape', ['linear', 'cosine'])
def test_a_ramp_meets_its_ends_and_its_middle(shape):
    ramp = dataclasses.replace(LINEAR, shape=shape)
    assert [ramp.at(0), ramp.at(10), ramp.at(9999)] == [0.8, 0.2, 0.2]
    assert ramp.at(5) == pytest.approx(0.5)


def test_a_cosine_leaves_slowly():
    assert dataclasses.replace(LINEAR, shape='cosine').at(1) > LINEAR.at(1)


def test_a_constant_is_constant():
    assert {Schedule(start=0.15).at(step) for step in (0, 7, 10**9)} == {0.15}


def test_points_are_met_and_joined():
    lines = Schedule(start=1.0, shape='piecewise', points=((3, 0.4), (7, 0.8)))
    assert [lines.at(0), lines.at(3), lines.at(7), lines.at(16)] == [1.0, 0.4, 0.8, 0.8]
    assert lines.at(5) == pytest.approx(0.6)


ENDS, SHAPES = st.floats(-3, 3), st.sampled_from(['linear', 'cosine'])


@given(ENDS, ENDS, st.integers(1, 50), SHAPES, st.integers(0, 99))
def test_a_schedule_stays_between_its_values(start, end, steps, shape, step):
    value = Schedule(start=start, end=end, steps=steps, shape=shape).at(step)
    assert min(start, end) - 1e-12 <= value <= max(start, end) + 1e-12


@pytest.mark.parametrize(
    'wrong',
    [
        {'shape': 'sawtooth'},
        {'end': 0.5},
        {'steps': 7},
        {'shape': 'linear', 'end': 0.5},
        {'shape': 'cosine', 'steps': 7},
        {'shape': 'piecewise'},
        {'points': ((3, 0.5),)},
        {'shape': 'piecewise', 'points': ((7, 0.5), (3, 0.1))},
        {'shape': 'piecewise', 'points': ((0, 0.5),)},
        {'start': float('nan')},
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(wrong):
    with pytest.raises(ValueError):
        Schedule(**wrong)


def test_a_step_before_the_first_is_refused():
    with pytest.raises(ValueError, match='step 0'):
        LINEAR.at(-1)


def test_a_command_line_overrides_a_schedule():
    constant = ['--shape', 'constant', '--end', 'None', '--steps', '0']
    lines = ['--shape', 'piecewise', '--end', 'None', '--steps', '0', '--points', '3', '0.5']
    assert tyro.cli(Schedule, args=constant, default=LINEAR).at(7) == 0.8
    assert tyro.cli(Schedule, args=lines, default=LINEAR).at(7) == 0.5
    assert tyro.cli(Schedule, args=['--end', '0.4'], default=LINEAR).at(10) == 0.4
