"""Votes that were paid for once, kept in one SQLite file.  A key in, a grade or nothing out.

The first vote under a key stays, so that runs which share the file agree.  Safe against a kill and
against several writers.  No vote is stored that could not be read: it may be readable next time.
"""

import hashlib
import json
import os
import pathlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

SCHEMA = 1


class Verdicts(NamedTuple):
    """`find(key)` is a grade or None; `store(key, model, rubric, grade)` is the one that stays."""

    find: Callable[[str], int | None]
    store: Callable[[str, str, str, int], int]
    close: Callable[[], None]


def vote_key(*parts: Any) -> str:
    """Equal for equal questions to the same model under the same rubric."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def make_verdicts(path: str | os.PathLike) -> Verdicts:
    """Opens the file, or makes it and its folder; ':memory:' keeps nothing."""
    if os.fspath(path) != ':memory:':
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
    connection.execute('pragma journal_mode = wal')
    (found,) = connection.execute('pragma user_version').fetchone()
    if found not in (0, SCHEMA):
        raise ValueError(f'{path} has schema {found}; this reads {SCHEMA}; give another file')
    connection.execute(
        'create table if not exists votes (key text primary key, model text not null, '
        'rubric text not null, grade integer not null) without rowid'
    )
    connection.execute(f'pragma user_version = {SCHEMA}')
    lock = threading.Lock()

    def find(key):
        with lock:
            row = connection.execute('select grade from votes where key = ?', (key,)).fetchone()
        return None if row is None else row[0]

    def store(key, model, rubric, grade):
        with lock:
            connection.execute(
                'insert or ignore into votes values (?, ?, ?, ?)', (key, model, rubric, grade)
            )
        return find(key)

    return Verdicts(find, store, connection.close)
