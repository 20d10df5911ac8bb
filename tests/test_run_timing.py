"""Laws of the stopwatch: the first call is told apart, a program counts once, others are seen."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.run import timing
from cacherl_jax.run.timing import Span, Timing, counting_programs, peak_bytes, span, timed


def test_what_the_first_call_took_longer_is_compiling():
    later = tuple(Span(seconds, 0.0) for seconds in (3.0, 1.0, 2.0))
    found = Timing(first=Span(7.0, 0.9), later=later)
    assert (found.seconds, found.compile_seconds) == (2.0, 5.0)
    assert Timing(first=Span(0.5, 0.0), later=later).compile_seconds == 0


def test_a_timing_without_a_measured_call_is_refused():
    with pytest.raises(ValueError, match='after the first one'):
        Timing(first=Span(1.0, None), later=())


def test_work_is_called_once_more_than_it_is_measured():
    calls = []
    found = timed(lambda: calls.append(time.sleep(0.02)), 3)
    assert len(calls) == 4 and len(found.later) == 3
    assert all(each.seconds >= 0.02 for each in (found.first, *found.later))


def test_a_program_is_counted_once_and_only_inside():
    double = jax.jit(lambda x: 2 * x + 1)
    numbers = [jnp.asarray(np.ones(size, np.float32)) for size in (3, 7)]
    with counting_programs() as made:
        for _ in range(3):
            double(numbers[0])
        assert len(made) == 1
    double(numbers[1])
    assert len(made) == 1 and made[0] > 0


def test_what_another_process_uses_is_told_apart_from_ours():
    busy = 'import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass'
    other = subprocess.Popen([sys.executable, '-c', busy])
    try:
        found = span(lambda: time.sleep(1.0))
    finally:
        other.kill()
        other.wait()
    assert found.others_fraction is None or 0 < found.others_fraction <= 1.1


def test_without_the_system_s_word_nothing_is_claimed(monkeypatch, tmp_path):
    monkeypatch.setattr(timing, 'PROCESSORS', tmp_path / 'none')
    monkeypatch.setattr(timing, 'PROCESS', tmp_path / 'none')
    assert span(lambda: None).others_fraction is None
    assert jax.devices()[0].memory_stats() or peak_bytes() is None


PEAK = """
import numpy as np
from cacherl_jax.run.timing import peak_bytes
before = peak_bytes()
held = np.ones(2**24)
during = peak_bytes()
size = held.nbytes
del held
print(before, during, peak_bytes(), size)
"""


def test_the_peak_rises_with_what_is_held_and_never_falls():
    """In a process of its own: one that has held more before does not rise."""
    told = subprocess.run(
        [sys.executable, '-c', PEAK], capture_output=True, text=True, check=True
    ).stdout.split()
    if told[0] == 'None':
        pytest.skip('this system does not tell')
    before, during, after, size = map(int, told)
    assert during >= before + size / 2 and after >= during
