"""The recorded answers on disk: one SQLite file, safe against a kill and against a second writer.

Whole commits go in or none of it.  Entries leave by when they were last used, counted in commits,
then by hits, then by name: never by the clock, so that two equal runs keep the same answers.
"""

import contextlib
import gc
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cacherl_jax.tool_cache.entry import Entry, exact_result
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tools.tool import Status

SCHEMA_VERSION = 2
APPLICATION = 0x43524C54  # says that a SQLite file is a tool cache
PATIENCE_SECONDS = 60  # for another process to finish its commit
TABLES = """
create table entries (
    source text primary key, identity text not null, state text not null, arguments text not null,
    draw integer not null, status text not null, text text not null, provenance text not null,
    task text not null, recorded real not null, used integer not null, hits integer not null,
    seconds real not null default 0
) without rowid;
create table gold (
    source text not null, task text not null, primary key (source, task)
) without rowid;
create table commits (number integer primary key);
"""
# What makes a file of an earlier version one of the next; nothing that it holds is lost.
MIGRATIONS = {1: 'alter table entries add column seconds real not null default 0'}
COLUMNS = (
    'source, identity, state, arguments, draw, status, text, provenance, task, recorded, hits, '
    'seconds'
)


class Written(NamedTuple):
    """What a commit did to the file."""

    added: list[Entry]  # entries that were not there, or replaced others
    evicted: list[tuple[CallKey, int]]  # key and draw of the entries that had to leave
    elsewhere: bool  # another process has written since we last looked


class Store:
    """One file of recorded answers."""

    def __init__(self, path: str | Path):
        self.path = str(path)
        self._lock = threading.Lock()
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f'{self.path} cannot be used as a tool cache ({error}); give the path of '
                'one, or of a file that does not exist yet in a folder that does'
            ) from error
        self._seen = self._data_version()

    def _open(self) -> None:
        self._database = sqlite3.connect(
            self.path, timeout=PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
        )
        tables = self._one('select count(*) from sqlite_master')
        if tables and self._one('pragma application_id') != APPLICATION:
            raise ValueError(f'{self.path} is a SQLite file of another program')
        if self._one('pragma journal_mode') != 'wal':
            self._database.execute('pragma journal_mode = wal')
        self._database.execute('pragma synchronous = normal')
        with self._transaction():
            if not self._one('select count(*) from sqlite_master'):
                for statement in filter(str.strip, TABLES.split(';')):
                    self._database.execute(statement)
                self._database.execute(f'pragma application_id = {APPLICATION}')
                self._database.execute(f'pragma user_version = {SCHEMA_VERSION}')
            self._migrate()

    def _migrate(self) -> None:
        """Brings the file up to this program's version, within the transaction that is open."""
        while (version := self._one('pragma user_version')) != SCHEMA_VERSION:
            if version not in MIGRATIONS:
                raise ValueError(
                    f'{self.path} has schema version {version}, this program reads up to '
                    f'{SCHEMA_VERSION}; export it to JSON Lines with the program that wrote it, '
                    'and import those'
                )
            self._database.execute(MIGRATIONS[version])
            self._database.execute(f'pragma user_version = {version + 1}')

    def _one(self, question: str) -> Any:
        return self._database.execute(question).fetchone()[0]

    def _data_version(self) -> int:
        return self._one('pragma data_version')

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._database.execute('begin immediate')
            ending = 'rollback'
            try:
                yield
                ending = 'commit'
            finally:
                self._database.execute(ending)

    def load(self) -> list[Entry]:
        """Every entry, in the order of its source."""
        with self._transaction():
            return self._load()

    def _load(self) -> list[Entry]:
        gold: dict[str, set[str]] = {}
        for source, task in self._database.execute('select source, task from gold'):
            gold.setdefault(source, set()).add(task)
        self._seen = self._data_version()
        names: dict[str, str] = {}  # one object per tool identity, not one per entry
        rows = self._database.execute(f'select {COLUMNS} from entries order by source')
        with _no_collection():
            return [_entry(row, gold, names) for row in rows]

    def write(
        self,
        entries: Iterable[Entry] = (),
        *,
        hits: Mapping[str, int] | None = None,
        replace: bool = False,
        bound: int = 0,
    ) -> Written:
        """One commit: entries in, hits counted, at most `bound` entries left (0: any number)."""
        with self._transaction():
            elsewhere = self._data_version() != self._seen
            self._database.execute('insert into commits default values')
            number = self._one('select max(number) from commits')
            self._database.execute('delete from commits where number < ?', [number])
            added = [entry for entry in entries if self._put(entry, number, replace)]
            self._database.executemany(
                'update entries set hits = hits + ?, used = ? where source = ?',
                [(count, number, source) for source, count in (hits or {}).items()],
            )
            evicted = self._evict(bound) if bound else []
            return Written(added, evicted, elsewhere)

    def _put(self, entry: Entry, number: int, replace: bool) -> bool:
        self._database.executemany(
            'insert or ignore into gold values (?, ?)',
            [(entry.source, task) for task in entry.gold],
        )
        result, verb = entry.result, 'replace' if replace else 'ignore'
        done = self._database.execute(
            f'insert or {verb} into entries values (?,?,?,?,?,?,?,?,?,?,?,?,?)',
            [entry.source, *entry.key, entry.draw, str(result.status), result.text]
            + [result.provenance, entry.task, entry.recorded, number, entry.hits, entry.seconds],
        )
        return done.rowcount > 0

    def _evict(self, bound: int) -> list[tuple[CallKey, int]]:
        surplus = self._one('select count(*) from entries') - bound
        if surplus <= 0:
            return []
        oldest = 'select * from entries order by used, hits, source limit ?'
        gone = self._database.execute(oldest, [surplus]).fetchall()
        for table in ('entries', 'gold'):
            self._database.executemany(
                f'delete from {table} where source = ?', [row[:1] for row in gone]
            )
        return [(CallKey(*row[1:4]), row[4]) for row in gone]

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._database.close()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Many new objects and no garbage: looking for some would take most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _entry(row: tuple, gold: Mapping[str, set[str]], names: dict[str, str]) -> Entry:
    source, identity, state, arguments, draw, status, text, provenance, task, *numbers = row
    key = CallKey(names.setdefault(identity, identity), state, arguments)
    result = exact_result(source, Status(status), text, provenance)
    return Entry(key, draw, result, task, frozenset(gold.get(source, ())), *numbers)
