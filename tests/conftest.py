"""What holds for all tests: the CPU unless asked otherwise, and examples that never vary by run.

One device is what the default settings ask for, so tests that need several run in a process of
their own, which `on_virtual_devices` starts.
"""

import gc
import os
import pathlib
import subprocess
import sys

os.environ.setdefault('JAX_PLATFORMS', 'cpu')

import hypothesis  # noqa: E402  (jax must not be imported before the line above)
import jax  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile('steady', deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile('steady')


@pytest.fixture
def on_virtual_devices():
    """Runs a file of tests on so many virtual CPU devices and fails with what it said."""

    def run(name: str, count: int) -> None:
        flags = f'--xla_force_host_platform_device_count={count}'
        environment = os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags}
        path = pathlib.Path(__file__).parent / name
        command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', str(path)]
        done = subprocess.run(
            command, env=environment, cwd=path.parents[1], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


MAPS = pathlib.Path('/proc/self/maps')
MOST_MAPS = 30_000  # Linux gives a process 65,530, and the compiler ends it where there is none


@pytest.fixture(scope='module', autouse=True)
def room_for_programs():
    """Every compiled program holds some pieces of memory: forget them before they are too many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b'\n') > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
