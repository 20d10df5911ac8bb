"""The store keeps whole commits, through a kill and beside another writer."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.entry import make_entry
from cacherl_jax.tool_cache.exchange import export_lines, import_lines
from cacherl_jax.tool_cache.index import Index
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tool_cache.store import APPLICATION, Store
from cacherl_jax.tool_cache.verify import problems
from cacherl_jax.tools.tool import Result, Status

ROOT = pathlib.Path(__file__).resolve().parents[1]
WRITER = """
import sys
from cacherl_jax.tool_cache.entry import make_entry
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tool_cache.verify import problems
from cacherl_jax.tools.tool import Result, Status
store, name, commits = Store(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for commit in range(commits):
    result = Result(status=Status.OK, text='x' * 500)
    keys = [CallKey('look', name, f'{{"n":{commit},"m":{part}}}') for part in range(3)]
    store.write([make_entry(key, 0, result, task=name, recorded=0.0) for key in keys])
    print(commit, flush=True)
"""


def writer(path, name, commits):
    command = [sys.executable, '-c', WRITER, str(path), name, str(commits)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def entry(n, *, gold=False, text='x'):
    key = CallKey('look@1#0', '', json.dumps({'n': n}, separators=(',', ':')))
    result = Result(status=Status.OK, text=text)
    return make_entry(key, 0, result, task=f't{n}', recorded=float(n), gold=gold)


def kept(store):
    return sorted(json.loads(each.key.arguments)['n'] for each in store.load())


def test_what_is_written_is_read_back(tmp_path):
    Store(tmp_path / 'a.db').write([entry(1, gold=True, text='é\x00\n"'), entry(2)])
    again = {each.source: each for each in Store(tmp_path / 'a.db').load()}
    assert again == {each.source: each for each in (entry(1, gold=True, text='é\x00\n"'), entry(2))}


def test_a_kill_loses_no_commit_that_was_reported(tmp_path):
    path, reported = tmp_path / 'a.db', 0
    for kill in range(3):
        process = writer(path, f'w{kill}', 100_000)
        lines = [process.stdout.readline() for _ in range(5 + kill)]
        time.sleep(0.003 * kill)
        os.kill(process.pid, signal.SIGKILL)
        reported += len(lines) + len(process.stdout.readlines())
        process.wait()
        entries = Store(path).load()
        assert len(entries) % 3 == 0
        assert reported * 3 <= len(entries) <= (reported + kill + 1) * 3
    assert sqlite3.connect(path).execute('pragma integrity_check').fetchone() == ('ok',)


def test_two_processes_write_side_by_side(tmp_path):
    path = tmp_path / 'a.db'
    processes = [writer(path, name, 20) for name in ('one', 'other', 'one')]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(Store(path).load()) == 2 * 20 * 3


def test_another_process_s_answers_come_with_the_next_commit_and_never_into_a_replay(tmp_path):
    path, other = tmp_path / 'a.db', Store(tmp_path / 'a.db')
    caches = [make_tool_cache(path, ToolCacheSettings(mode=m)) for m in ('read_through', 'replay')]
    other.write([entry(1)])
    for cache in caches:
        cache._write([], {'nothing': 1}, replace=False)
    assert [len(cache.entries()) for cache in caches] == [1, 0]


def test_the_first_answer_stays_unless_it_is_to_be_replaced():
    store = Store(':memory:')
    store.write([entry(1, text='first')])
    assert store.write([entry(1, text='second')]).added == []
    assert store.load()[0].result.text == 'first'
    store.write([entry(1, text='second')], replace=True)
    assert store.load()[0].result.text == 'second'


def test_the_longest_unused_leave_first_and_then_the_least_hit():
    store = Store(':memory:')
    store.write([entry(n) for n in range(4)])
    store.write(hits={entry(0).source: 1, entry(2).source: 2})
    assert {key.arguments for key, _ in store.write([entry(7)], bound=3).evicted} == {
        '{"n":1}',
        '{"n":3}',
    }
    store.write([entry(8)], bound=3)
    assert kept(store) == [2, 7, 8]
    assert {json.loads(each.key.arguments)['n']: each.hits for each in store.load()}[2] == 2


def test_eviction_does_not_depend_on_the_order_of_arrival():
    stores = [Store(':memory:'), Store(':memory:')]
    for store, order in zip(stores, (range(16), reversed(range(16))), strict=True):
        store.write([entry(n) for n in order], bound=7)
    assert kept(stores[0]) == kept(stores[1]) and len(kept(stores[0])) == 7


def test_the_index_forgets_what_was_evicted():
    index = Index([entry(1), entry(2)])
    index.remove([(entry(1).key, 0), (entry(3).key, 0)])
    assert [each.source for each in index] == [entry(2).source]
    assert index.content_hash == Index([entry(2)]).content_hash


def test_the_content_hash_sees_answers_and_gold_but_no_clock_and_no_order():
    one, other = entry(1), entry(2)
    same = Index([other, one]).content_hash
    assert Index([one, other]).content_hash == same
    assert Index([one, entry(2, gold=True)]).content_hash != same
    assert Index([one, entry(2, text='y')]).content_hash != same


def test_json_lines_go_out_and_in_unchanged(tmp_path):
    store, other = Store(':memory:'), Store(':memory:')
    store.write([entry(n, gold=n == 2, text='é\n') for n in range(3)])
    assert export_lines(store, tmp_path / 'a.jsonl') == 3
    assert import_lines(other, tmp_path / 'a.jsonl') == 3
    assert import_lines(other, tmp_path / 'a.jsonl') == 0
    export_lines(other, tmp_path / 'b.jsonl')
    assert (tmp_path / 'a.jsonl').read_bytes() == (tmp_path / 'b.jsonl').read_bytes()
    assert other.load() == store.load()


@pytest.mark.parametrize('line', ['{', '{}', '[]', '{"tool": "a", "status": "fine"}'])
def test_a_broken_line_is_named_and_nothing_is_imported(tmp_path, line):
    store, path = Store(':memory:'), tmp_path / 'a.jsonl'
    full = Store(':memory:')
    full.write([entry(1)])
    export_lines(full, path)
    path.write_text(path.read_text() + line + '\n')
    with pytest.raises(ValueError, match='line 3 of .* nothing was imported'):
        import_lines(store, path)
    assert store.load() == []


def test_a_file_that_is_no_cache_of_this_version_is_refused(tmp_path):
    (tmp_path / 'text').write_text('not a database, ' * 100)
    sqlite3.connect(tmp_path / 'other').execute('create table a (b)')
    Store(tmp_path / 'newer').close()
    sqlite3.connect(tmp_path / 'newer').execute('pragma user_version = 9')
    for name, words in (
        ('text', 'cannot be used as a tool cache'),
        ('other', 'of another program'),
        ('newer', 'has schema version 9, this program reads up to 2'),
        ('no/folder', 'cannot be used as a tool cache'),
    ):
        with pytest.raises(ValueError, match=words):
            Store(tmp_path / name)


FIRST_TABLES = """
create table entries (
    source text primary key, identity text not null, state text not null, arguments text not null,
    draw integer not null, status text not null, text text not null, provenance text not null,
    task text not null, recorded real not null, used integer not null, hits integer not null
) without rowid;
create table gold (
    source text not null, task text not null, primary key (source, task)
) without rowid;
create table commits (number integer primary key);
"""


def first_version(path, *entries):
    """A file as the first version of this program wrote it."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.executescript(FIRST_TABLES)
        for each in entries:
            result = [str(each.result.status), each.result.text, each.result.provenance]
            row = [each.source, *each.key, each.draw, *result, each.task, each.recorded, 1, 5]
            database.execute(f'insert into entries values ({",".join("?" * 12)})', row)
            rows = [(each.source, task) for task in each.gold]
            database.executemany('insert into gold values (?, ?)', rows)
        database.execute('insert into commits values (1)')
        database.execute(f'pragma application_id = {APPLICATION}')
        database.execute('pragma user_version = 1')


def test_a_file_of_an_earlier_version_is_whole_and_becomes_one_of_this(tmp_path):
    path, held = tmp_path / 'a.db', [entry(1, gold=True), entry(2)]
    first_version(path, *held)
    assert problems(path) == []
    with contextlib.closing(Store(path)) as store:
        assert {each.source: each for each in store.load()} == {
            each.source: dataclasses.replace(each, hits=5) for each in held
        }
        store.write([entry(3), dataclasses.replace(entry(4), seconds=1.5)])
    with contextlib.closing(Store(path)) as again:
        assert sorted(each.seconds for each in again.load()) == [0, 0, 0, 1.5]
    assert problems(path) == []


def test_a_file_that_two_open_at_once_becomes_one_of_this_version_once(tmp_path):
    first_version(tmp_path / 'a.db', entry(1))
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: Store(tmp_path / 'a.db'), range(4)))
    assert [kept(store) for store in stores] == [[1]] * 4


def test_lines_of_the_first_version_are_read(tmp_path):
    store, path = Store(':memory:'), tmp_path / 'a.jsonl'
    store.write([entry(1)])
    export_lines(store, path)
    path.write_text(path.read_text().replace(', "seconds": 0.0', ''))
    other = Store(':memory:')
    assert import_lines(other, path) == 1 and other.load() == store.load()


@pytest.mark.slow
def test_two_hundred_kills_during_writes_lose_nothing_and_corrupt_nothing(tmp_path):
    path, reported = tmp_path / 'a.db', 0
    draw = random.Random(0)
    # Writers are forked, so that no kill costs a start of Python.
    for kill in range(200):
        child = os.fork()
        if not child:
            write_until_killed(path, f'w{kill}', tmp_path / f'reported{kill}')
        time.sleep(0.03 + 0.05 * draw.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        file = tmp_path / f'reported{kill}'
        reported += file.stat().st_size if file.exists() else 0
        with contextlib.closing(Store(path)) as store:
            entries = store.load()
        assert len(entries) % 3 == 0
        assert reported * 3 <= len(entries) <= (reported + kill + 1) * 3
        assert problems(path) == []
    assert reported > 200


def write_until_killed(path, name, reported):
    """Commits of three entries each; a byte is reported after each commit."""
    store, result = Store(path), Result(status=Status.OK, text='x' * 500)
    with open(reported, 'wb', buffering=0) as file:
        for commit in itertools.count():
            keys = [CallKey('look', name, f'{{"m":{part},"n":{commit}}}') for part in range(3)]
            store.write([make_entry(key, 0, result, task=name, recorded=0.0) for key in keys])
            file.write(b'.')
