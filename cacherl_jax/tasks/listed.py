"""A list of tasks in a file: JSON Lines in, tasks out, so that runs are measured on the same ones.

{"suite": "trip", "split": "test", "level": 2, "number": 17}
"""

import json
import os
import pathlib
from collections.abc import Callable

from cacherl_jax.tasks.suite import LEVELS, SPLITS
from cacherl_jax.tasks.task import Task

FIELDS = {'suite': str, 'split': str, 'level': int, 'number': int}


def read_task_list(
    path: str | os.PathLike, source: Callable[[str, str, int, int], Task], suites: tuple[str, ...]
) -> list[Task]:
    """The tasks of a file, in its order.

    Raises ValueError naming the line and the field where something is missing, unknown, of the
    wrong kind or out of range.
    """
    tasks = []
    for number, line in enumerate(pathlib.Path(path).read_text(encoding='utf-8').splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = _checked(json.loads(line), suites)
        except ValueError as error:
            raise ValueError(f'{path}, line {number}: {error}') from error
        tasks.append(source(**fields))
    if not tasks:
        raise ValueError(f'{path} lists no task; a line is {json.dumps(dict.fromkeys(FIELDS))}')
    return tasks


def _checked(fields, suites) -> dict:
    if not isinstance(fields, dict) or set(fields) != set(FIELDS):
        found = sorted(fields) if isinstance(fields, dict) else fields
        raise ValueError(f'a task has the fields {sorted(FIELDS)}, got {found}')
    for name, kind in FIELDS.items():
        if type(fields[name]) is not kind:
            raise ValueError(f'{name} must be {kind.__name__}, got {fields[name]!r}')
    allowed = {'suite': suites, 'split': SPLITS, 'level': LEVELS}
    for name, values in allowed.items():
        if fields[name] not in values:
            raise ValueError(f'{name} must be one of {list(values)}, got {fields[name]!r}')
    if fields['number'] < 0:
        raise ValueError(f'number must not be negative, got {fields["number"]}')
    return fields
