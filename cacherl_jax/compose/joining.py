"""One command as several processes, where the environment says so; before any device is touched.

JAX_COORDINATOR_ADDRESS is HOST:PORT of the first process, JAX_NUM_PROCESSES says how many there
are and JAX_PROCESS_ID which this is, counted from 0.  Or the address is `auto`, and SLURM, Open MPI
or the TPU pod says all of it.  All processes are given one command and see one run folder.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping

import jax

from cacherl_jax.processes import is_first, several
from cacherl_jax.run.refusal import Refusal

ADDRESS, COUNT, INDEX = 'JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID'


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Within, this is one of the processes that the environment names; alone where it names none.

    One that fails ends at once, and with it the others: a polite end would wait for them, and they
    for it.
    """
    words = asked_for(os.environ)
    if words is None:
        yield
        return
    # CPUs talk to each other by gloo; other devices have ways of their own.
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
    # A stop is asked for by a signal (run/stop.py); the library's own service would swallow it.
    jax.config.update('jax_enable_preemption_service', False)
    _initialize(words)
    code = 1
    try:
        with contextlib.nullcontext() if is_first() else _silent():
            yield
        code = 0
    except SystemExit as end:
        code = end.code or 0
        raise
    finally:
        if code and several():
            _end_at_once(code)


def asked_for(environment: Mapping[str, str]) -> tuple[str, int, int] | tuple[()] | None:
    """Address, number of processes, this one's place; () to be found out; None: nothing is asked.

    Raises Refusal for numbers that name no process.
    """
    address = environment.get(ADDRESS)
    if not address:
        return None
    if address == 'auto':
        return ()
    told = [environment.get(name, '') for name in (COUNT, INDEX)]
    if not all(number.isdecimal() for number in told) or int(told[1]) >= int(told[0]):
        raise Refusal(
            f'{ADDRESS} is set, {COUNT} is {told[0]!r} and {INDEX} is {told[1]!r}',
            allowed=f'a number of processes, and one below it for each; or {ADDRESS}=auto',
        )
    return address, int(told[0]), int(told[1])


def _initialize(words: tuple) -> None:
    if words:
        jax.distributed.initialize(*words)
        return
    # The library would take the word for an address.  It is put back: a run may begin itself again.
    del os.environ[ADDRESS]
    try:
        jax.distributed.initialize()
    finally:
        os.environ[ADDRESS] = 'auto'


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What all would say, the first one says; errors are said by whoever meets them."""
    with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _end_at_once(code: int | str) -> None:
    """Say why, and end without the farewell that waits for all."""
    if not isinstance(sys.exc_info()[1], SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)
