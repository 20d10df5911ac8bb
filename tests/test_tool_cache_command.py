"""The tool cache's own command: what it prints is what the file holds, and damage is seen."""

import contextlib
import json
import sqlite3
import sys

import pytest

from cacherl_jax.tool_cache.__main__ import main
from cacherl_jax.tool_cache.entry import make_entry
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tools.tool import Result, Status


def entry(n, tool='look', text='fine'):
    key = CallKey(f'{tool}@1#0', '', f'{{"n":{n}}}')
    result = Result(status=Status.OK, text=text)
    return make_entry(key, 0, result, task=f't{n}', recorded=0.0, gold=n == 1)


@pytest.fixture
def cache(tmp_path):
    with contextlib.closing(Store(tmp_path / 'cache.sqlite')) as store:
        store.write([entry(1), entry(2, 'see', 'Zürich [/b]'), entry(3)])
    return tmp_path / 'cache.sqlite'


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs the command; its code, and what it wrote with --json."""

    def run(*words):
        out = tmp_path / 'told.json'
        out.unlink(missing_ok=True)
        monkeypatch.setattr(sys, 'argv', ['tool_cache', *map(str, words), '--json', str(out)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return code, json.loads(out.read_text()) if out.exists() else None

    return run


def test_stats_count_what_is_there(command, cache):
    code, told = command('stats', cache)
    assert (code, told['entries'], told['tools'], told['gold_tasks']) == (0, 3, 2, 1)
    assert told['by_tool']['look']['entries'] == 2 and told['provenance'] == {'live': 3}


@pytest.mark.parametrize(
    ('words', 'found'),
    [((), 3), (('--tool', 'see'), 1), (('--text', 'ZÜR'), 1), (('--text', 'nope'), 0)],
)
def test_inspect_shows_what_is_asked_for(command, cache, words, found):
    assert command('inspect', cache, *words)[1]['found'] == found
    told = command('inspect', cache, '--limit', 1)[1]
    assert (told['found'], len(told['entries'])) == (3, 1)


def test_what_is_exported_and_imported_elsewhere_has_the_same_content(command, cache, tmp_path):
    lines, other = tmp_path / 'cache.jsonl', tmp_path / 'other.sqlite'
    out = command('export', cache, lines)[1]
    back = command('import', other, lines)[1]
    assert (out['entries'], back['stored']) == (3, 3)
    assert out['content_hash'] == back['content_hash']
    assert command('verify', other, '--content-hash', out['content_hash'])[0] == 0


def test_another_content_than_expected_ends_with_code_1(command, cache):
    code, told = command('verify', cache, '--content-hash', 'ab')
    assert code == 1 and 'not ab' in told['problems'][0]


@pytest.mark.parametrize(
    ('damage', 'words'),
    [
        ('update entries set arguments = \'{"n":9}\'', 'does not fit its call'),
        ('update entries set arguments = \'{"n": 1}\'', 'not in their one spelling'),
        ("update entries set arguments = '{'", 'are no JSON'),
        ("update entries set status = 'good'", "its status is 'good'"),
        ("update entries set provenance = 'me'", "its provenance is 'me'"),
        ('delete from entries', 'gold names the entry'),
        ('pragma user_version = 9', 'schema version 9'),
        ('pragma application_id = 9', 'another program'),
    ],
)
def test_damage_is_seen(command, cache, damage, words):
    with contextlib.closing(sqlite3.connect(cache, isolation_level=None)) as database:
        database.execute(damage)
    code, told = command('verify', cache)
    assert code == 1 and any(words in problem for problem in told['problems'])


def test_torn_pages_are_seen(command, cache):
    with contextlib.closing(sqlite3.connect(cache)) as database:
        database.execute('pragma wal_checkpoint(truncate)')
    data = bytearray(cache.read_bytes())
    data[4096:8192] = b'\xff' * 4096
    cache.write_bytes(data)
    code, told = command('verify', cache)
    assert code == 1 and told['problems']


@pytest.mark.parametrize('name', ['stats', 'inspect', 'export', 'verify'])
def test_only_import_makes_a_cache(command, tmp_path, name, capsys):
    words = [tmp_path / 'new.sqlite', *([tmp_path / 'x'] if name == 'export' else [])]
    assert command(name, *words)[0] == 2
    assert not (tmp_path / 'new.sqlite').exists()
    assert 'there is no file' in capsys.readouterr().err


def test_a_file_that_cannot_be_imported_is_refused(command, tmp_path, capsys):
    (tmp_path / 'x').write_text('{}\n')
    assert command('import', tmp_path / 'new.sqlite', tmp_path / 'x')[0] == 2
    assert 'nothing was imported' in capsys.readouterr().err
