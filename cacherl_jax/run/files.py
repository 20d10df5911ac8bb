"""Files that survive a crash: whole files appear at once, lines belong to a step and can be cut.

Of several processes that run one program the first writes, the others do nothing here.
"""

import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from cacherl_jax.processes import is_first


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """The file holds the former text or the new one, never a part."""
    if not is_first():
        return
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f'.{path.name}.unfinished')
    with unfinished.open('w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def cut_after(path: str | os.PathLike, step: int) -> None:
    """Drops lines of later steps, and a last line that a crash cut short."""
    path = pathlib.Path(path)
    if not is_first() or not path.exists():
        return
    kept = []
    for line in path.read_text(encoding='utf-8').splitlines(keepends=True):
        if line.endswith('\n') and json.loads(line)['step'] <= step:
            kept.append(line)
    write_atomically(path, ''.join(kept))


def make_lines(
    path: str | os.PathLike, restored_step: int = -1
) -> Callable[[Mapping[str, Any]], None]:
    """`append(record)` writes one JSON line; the record has a `step`.  Resumes after a step."""
    if not is_first():
        return _nowhere
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_after(path, restored_step)

    def append(record):
        # Escapes, because a policy may write half a surrogate pair, which no file can hold.
        line = json.dumps(record, allow_nan=False)
        # One write in append mode: a reader never sees lines mixed.
        with path.open('a', encoding='utf-8', newline='\n') as file:
            file.write(line + '\n')

    return append


def _nowhere(record):
    """Another process writes the line."""
