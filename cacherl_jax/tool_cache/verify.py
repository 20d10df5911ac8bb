"""Is a store whole?  Reads the file as it lies there, believes nothing, changes nothing."""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterator

from cacherl_jax.tool_cache.entry import PROVENANCES, source_of
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tool_cache.store import APPLICATION, MIGRATIONS, SCHEMA_VERSION
from cacherl_jax.tools.tool import Status

ROWS = 'select source, identity, state, arguments, draw, status, provenance, hits from entries'
LONE_GOLD = 'select distinct source from gold where source not in (select source from entries)'


def problems(path: str | pathlib.Path) -> list[str]:
    """What is wrong with a store, one sentence each; empty for a whole one."""
    place = pathlib.Path(path).resolve().as_uri()
    try:
        with contextlib.closing(sqlite3.connect(f'{place}?mode=ro', uri=True)) as database:
            return list(_problems(database))
    except sqlite3.DatabaseError as error:
        return [f'the file cannot be read as SQLite: {error}']


def _problems(database: sqlite3.Connection) -> Iterator[str]:
    def one(question: str) -> object:
        return database.execute(question).fetchone()[0]

    if one('pragma application_id') != APPLICATION:
        yield 'it is a file of another program'
        return
    if one('pragma user_version') not in (*MIGRATIONS, SCHEMA_VERSION):
        yield f'it has schema version {one("pragma user_version")}, not {SCHEMA_VERSION}'
        return
    for (said,) in database.execute('pragma integrity_check'):
        if said != 'ok':
            yield f'SQLite says: {said}'
    for row in database.execute(ROWS):
        yield from (f'entry {row[0]}: {wrong}' for wrong in _entry_problems(row))
    for (source,) in database.execute(LONE_GOLD):
        yield f'gold names the entry {source}, which is not there'


def _entry_problems(row: tuple) -> Iterator[str]:
    source, identity, state, arguments, draw, status, provenance, hits = row
    if source != source_of(CallKey(identity, state, arguments), draw):
        yield 'its name does not fit its call; the call or the name was changed'
    try:
        value = json.loads(arguments)
        again = json.dumps(value, ensure_ascii=False, separators=(',', ':'))
        if not isinstance(value, dict) or again != arguments or list(value) != sorted(value):
            yield 'its arguments are not in their one spelling, so no call can find it'
    except ValueError:
        yield 'its arguments are no JSON'
    if status not in list(Status):
        yield f'its status is {status!r}; there are {list(map(str, Status))}'
    if provenance not in PROVENANCES:
        yield f'its provenance is {provenance!r}; there are {PROVENANCES}'
    if draw < 0 or hits < 0:
        yield f'draw and hits must not be negative, they are {draw} and {hits}'
