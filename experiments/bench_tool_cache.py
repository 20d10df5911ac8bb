"""How fast is a look-up, how large is the cache, and how does that grow?

    python experiments/bench_tool_cache.py --json speed.json
    python experiments/bench_tool_cache.py --entries 41000 --rivals

Random calls of 1,185 tools.  Exact look-ups ask for recorded calls, fuzzy ones dress them otherwise
("The ..." in capitals), best effort asks with a word and a place that no call of the tool has.  One
thread; medians and 99th percentiles in microseconds, and how often the first size goes into the
last one.  The rivals answer exact look-ups only: a scan over all entries, a plain SQLite table in
the file system, and diskcache if it is installed.
"""

import dataclasses
import gc
import importlib.util
import json
import pathlib
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tyro

from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tool_cache.cache import ToolCache, ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.entry import Entry, make_entry
from cacherl_jax.tool_cache.key import call_key
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tools.tool import Result, Status, Tier, Tool

TOOLS = 1185
PROPERTIES = {
    'query': {'type': 'string'},
    'place': {'type': 'string'},
    'count': {'type': 'integer', 'default': 3},
}
SCHEMA = {'type': 'object', 'properties': PROPERTIES}
TIERS = {'exact': Tier.EXACT, 'fuzzy': Tier.FUZZY, 'best_effort': Tier.BEST_EFFORT}

Asked = tuple[Tool, dict[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedSettings:
    """How many entries, and how many look-ups of each kind."""

    entries: tuple[int, ...] = (41_000, 1_000_000)
    look_ups: int = 2000
    rivals: bool = False  # time exact look-ups of other stores as well
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        if not self.entries or min(self.entries) < self.look_ups or self.look_ups < 1:
            raise ValueError(
                f'entries must be at least as many as look_ups ({self.look_ups}), '
                f'got {self.entries}'
            )


def calls_of(entries: int) -> Iterator[Asked]:
    """Random calls, each tool in turn."""
    draw, letters = random.Random(0), 'abcdefghijklmnopqrst'
    words = [''.join(draw.choices(letters, k=draw.randint(3, 9))) for _ in range(2000)]
    fields = {'description': 'x', 'parameters': SCHEMA, 'function': lambda **given: given}
    tools = [Tool(name=f'tool_{number}', **fields) for number in range(TOOLS)]
    for number in range(entries):
        query = ' '.join(draw.choices(words, k=5))
        yield tools[number % TOOLS], {'query': query, 'place': words[number % 2000]}


def entry_of(asked: Asked) -> Entry:
    """A recorded answer of 200 characters."""
    result = Result(status=Status.OK, text='x' * 200)
    return make_entry(call_key(*asked), 0, result, task='t', recorded=0.0)


def filled(entries: int, look_ups: int = 2000) -> tuple[ToolCache, list[Asked]]:
    """A cache of random calls, and some of these calls."""
    store = Store(':memory:')
    store.write(map(entry_of, calls_of(entries)))
    kept = [asked for n, asked in enumerate(calls_of(entries)) if n % (entries // look_ups) == 0]
    return make_tool_cache(store, ToolCacheSettings(mode='replay')), kept


def dressed(asked: Sequence[Asked]) -> dict[str, list[Asked]]:
    """The calls as they are asked for each tier."""
    return {
        'exact': list(asked),
        'fuzzy': [
            (tool, given | {'query': f'The {given["query"].upper()}'}) for tool, given in asked
        ],
        'best_effort': [
            (tool, {'query': f'{given["query"]} zzzz', 'place': f'{given["place"]}z'})
            for tool, given in asked
        ],
    }


def microseconds(look_up: Callable[[Asked], Any], asked: Sequence[Asked]) -> list[float]:
    """The time of each look-up."""
    taken = []
    for each in asked:
        started = time.perf_counter()
        look_up(each)
        taken.append(1e6 * (time.perf_counter() - started))
    return taken


def timed(cache: ToolCache, asked: Sequence[Asked]) -> dict[str, list[float]]:
    """Microseconds of each look-up by tier; every tool was asked once before."""
    times = {}
    for name, calls in dressed(asked).items():
        for tool, given in calls:
            found = cache.find(tool, given)
            if found is None or found.tier is not TIERS[name]:
                raise AssertionError(f'{given} was answered by {found and found.tier}, not {name}')
        times[name] = microseconds(lambda each: cache.find(*each), calls)
    return times


def memory_bytes() -> int:
    """What the process holds in memory now."""
    pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
    return int(pages) * 4096


def measure(entries: int, settings: SpeedSettings) -> dict[str, Any]:
    """Medians, 99th percentiles, the time to open and the memory for one size."""
    gc.collect()
    before, started = memory_bytes(), time.perf_counter()
    cache, asked = filled(entries, settings.look_ups)
    built = time.perf_counter() - started
    told: dict[str, Any] = {}
    for name, times in timed(cache, asked).items():
        told[f'{name}_us'] = statistics.median(times)
        told[f'{name}_p99_us'] = statistics.quantiles(times, n=100)[-1]
    # The SQLite image of ':memory:' counts, too; a cache in a file needs less.
    told |= {'built_seconds': built, 'memory_megabytes': (memory_bytes() - before) / 1e6}
    if settings.rivals:
        told['rivals_us'] = rivals(entries, asked)
    cache.close()
    return told


def rivals(entries: int, asked: Sequence[Asked]) -> dict[str, float]:
    """Median microseconds of exact look-ups elsewhere, with keys made as the cache makes them."""
    rows = [(call_key(*each).digest, 'x' * 200) for each in calls_of(entries)]
    few = asked[:: max(1, len(asked) // 50)]
    told = {}

    def scan(each: Asked) -> str:
        digest = call_key(*each).digest
        return next(text for key, text in rows if key == digest)

    told['scan'] = statistics.median(microseconds(scan, few))
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(f'{folder}/plain.sqlite')
        database.execute('create table a (key text primary key, text text) without rowid')
        with database:
            database.executemany('insert or ignore into a values (?, ?)', rows)
        question = 'select text from a where key = ?'

        def plain(each: Asked) -> str:
            return database.execute(question, [call_key(*each).digest]).fetchone()[0]

        told['sqlite'] = statistics.median(microseconds(plain, asked))
        database.close()
        if importlib.util.find_spec('diskcache'):
            import diskcache

            with diskcache.Cache(f'{folder}/disk') as other:
                with other.transact():
                    for key, text in rows:
                        other[key] = text
                taken = microseconds(lambda each: other[call_key(*each).digest], asked)
                told['diskcache'] = statistics.median(taken)
    return told


def table(sizes: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """A row for each number: its name, it at every size, and the last over the first."""
    flat = [
        {name: x for name, x in part.items() if name != 'rivals_us'}
        | {f'exact, {rival}': x for rival, x in part.get('rivals_us', {}).items()}
        for part in sizes
    ]
    rows = [[name, *(part[name] for part in flat)] for name in flat[0]]
    return [[*row, row[-1] / row[1] if row[1] else None] for row in rows]


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(SpeedSettings, description=__doc__)
    told = {str(entries): measure(entries, settings) for entries in settings.entries}
    print_table('look-ups', ['microseconds', *told, 'growth'], table(list(told.values())))
    if settings.rivals and not importlib.util.find_spec('diskcache'):
        print('diskcache is not installed and was not asked: pip install diskcache')
    if settings.json:
        write_atomically(settings.json, json.dumps({'entries': told}, indent=2) + '\n')


if __name__ == '__main__':
    main()
