"""A tool cache as JSON Lines: one header, then one entry a line in a fixed order.

Provenance, gold and times travel along, so that an imported answer still says where it came from.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cacherl_jax.tool_cache.entry import PROVENANCES, Entry, exact_result, source_of
from cacherl_jax.tool_cache.index import Index
from cacherl_jax.tool_cache.key import CallKey
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tools.tool import Status

FORMAT, VERSION = 'cacherl_jax tool cache', 1


def export_lines(store: Store, path: str | Path) -> int:
    """Writes every entry of a store and returns how many; equal stores give equal files."""
    entries = store.load()
    header = {'format': FORMAT, 'version': VERSION, 'entries': len(entries)}
    header['content_hash'] = Index(entries).content_hash
    with open(path, 'w', encoding='utf-8', newline='\n') as file:
        for record in (header, *map(record_of, entries)):
            file.write(json.dumps(record, ensure_ascii=False) + '\n')
    return len(entries)


def import_lines(store: Store, path: str | Path) -> int:
    """Adds the entries of a file that the store lacks and returns how many; on an error, none."""
    with open(path, encoding='utf-8') as file:
        return len(store.write(list(_entries(file, str(path)))).added)


def record_of(entry: Entry) -> dict[str, Any]:
    """An entry as a line holds it."""
    return {
        'tool': entry.key.identity,
        'state': entry.key.state,
        'arguments': json.loads(entry.key.arguments),
        'draw': entry.draw,
        'status': str(entry.result.status),
        'result': entry.result.text,
        'provenance': entry.result.provenance,
        'task': entry.task,
        'gold': sorted(entry.gold),
        'recorded': entry.recorded,
        'hits': entry.hits,
        'seconds': entry.seconds,
    }


def _entries(lines: Iterator[str], path: str) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if number > 1:
                yield _entry(record)
            elif (record.get('format'), record.get('version')) != (FORMAT, VERSION):
                raise ValueError(
                    f'the header must say {FORMAT!r}, version {VERSION}, got {line:.100}'
                )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f'line {number} of {path} is no cache entry, and nothing was imported: {error!r}'
            ) from error


def _entry(record: dict[str, Any]) -> Entry:
    spelled = json.dumps(record['arguments'], ensure_ascii=False, separators=(',', ':'))
    key = CallKey(record['tool'], record['state'], spelled)
    if record['provenance'] not in PROVENANCES:
        raise ValueError(f'provenance must be one of {PROVENANCES}, got {record["provenance"]!r}')
    status, gold = Status(record['status']), frozenset(record['gold'])
    source = source_of(key, record['draw'])
    result = exact_result(source, status, record['result'], record['provenance'])
    numbers = record['recorded'], record['hits'], record.get('seconds', 0.0)
    return Entry(key, record['draw'], result, record['task'], gold, *numbers)
