"""One step as a program, and what else processes do together; test_distributed.py starts it.

several_processes_step.py OUT PORT COUNT INDEX DATA FSDP: the process of that index, of so many, on
a mesh of so many devices; what it saw goes to OUT.npz.
"""

import pathlib
import sys

import jax
import numpy as np
from tiny_policy import BASE

from cacherl_jax.bench.devices import step
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.mesh import MeshSettings, make_mesh
from cacherl_jax.processes import any_says, from_first
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.metrics import make_metrics


def written(folder: pathlib.Path) -> dict:
    """One line of metrics and one file, whoever writes; all know the first one's numbers."""
    metrics = make_metrics(folder)
    numbers = metrics.write(0, {'clock': float(jax.process_index())})
    metrics.close()
    write_atomically(folder / 'writer.txt', str(jax.process_index()))
    return {'clock': np.asarray(numbers['clock'])}


def told() -> dict:
    """Messages of every length arrive whole; a failure of the first process is heard by all."""
    first = jax.process_index() == 0
    whole = [from_first(lambda n=n: bytes(n % 251 for n in range(n))) for n in (0, 1, 16376, 99999)]
    right = all(text == bytes(n % 251 for n in range(len(text))) for text in whole)
    failed = ''
    try:
        from_first(lambda: int('x').to_bytes())
    except (ValueError, RuntimeError) as error:
        failed = type(error).__name__
    expected = 'ValueError' if first else 'RuntimeError'
    last = jax.process_index() == jax.process_count() - 1  # one signal, to the last one
    heard = any_says(last) and not any_says(False)
    return {'told': np.asarray([len(text) for text in whole] + [right, failed == expected, heard])}


def main():
    out, (port, count, index, data, fsdp) = sys.argv[1], map(int, sys.argv[2:])
    if count > 1:
        jax.config.update('jax_cpu_collectives_implementation', 'gloo')
        jax.distributed.initialize(f'localhost:{port}', count, index)
    folder = pathlib.Path(out).parent / f'{count}-processes'
    mesh = make_mesh(MeshSettings(data=data, fsdp=fsdp))
    found = step(load_tokenizer(BASE), mesh) | written(folder) | told()
    np.savez(pathlib.Path(out), **found)


if __name__ == '__main__':
    main()
