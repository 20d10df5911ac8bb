"""Look into a tool cache, carry it elsewhere, and see that it is whole.

python -m cacherl_jax.tool_cache stats runs/small/tool_cache.sqlite
python -m cacherl_jax.tool_cache inspect cache.sqlite --tool weather --text Paris
python -m cacherl_jax.tool_cache export cache.sqlite cache.jsonl
python -m cacherl_jax.tool_cache import other.sqlite cache.jsonl
python -m cacherl_jax.tool_cache verify cache.sqlite --content-hash 3f2a...
"""

import contextlib
import dataclasses
import json
import pathlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import tyro

from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.entry import Entry
from cacherl_jax.tool_cache.exchange import export_lines, import_lines, record_of
from cacherl_jax.tool_cache.index import Index
from cacherl_jax.tool_cache.recorded import read_recorded
from cacherl_jax.tool_cache.store import SCHEMA_VERSION, Store
from cacherl_jax.tool_cache.verify import problems
from cacherl_jax.tools.tool import Status

SHOWN_CHARACTERS = 60  # of arguments and results in tables

CachePath = tyro.conf.Positional[pathlib.Path]
JsonPath = pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class Stats:
    """How many answers, of which tools, from where."""

    cache: CachePath
    tools: int = 20  # rows in the table, those with most entries first
    json: JsonPath = None  # where the numbers go


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Single entries: calls, results, where they came from."""

    cache: CachePath
    tool: str = ''  # of this tool only, by name
    text: str = ''  # with this text in arguments, result or task
    source: str = ''  # whose name begins like this
    limit: int = 20
    json: JsonPath = None  # where the entries go, uncut


@dataclasses.dataclass(frozen=True)
class Import:
    """Adds what a file holds and the cache lacks; makes the cache if there is none."""

    cache: CachePath
    file: CachePath  # JSON Lines of `export`, or the wheel or folder of nestful-wrapper
    format: Literal['lines', 'complexfuncbench'] = 'lines'
    json: JsonPath = None  # where the counts go


@dataclasses.dataclass(frozen=True)
class Export:
    """Writes all entries as JSON Lines; equal caches give equal files."""

    cache: CachePath
    file: CachePath
    json: JsonPath = None  # where the count and the content hash go


@dataclasses.dataclass(frozen=True)
class Verify:
    """Looks for damage, entry by entry; ends with code 1 if there is any."""

    cache: CachePath
    content_hash: str = ''  # that the cache must have
    json: JsonPath = None  # where the problems go


Command = (
    Annotated[Stats, tyro.conf.subcommand('stats')]
    | Annotated[Inspect, tyro.conf.subcommand('inspect')]
    | Annotated[Import, tyro.conf.subcommand('import')]
    | Annotated[Export, tyro.conf.subcommand('export')]
    | Annotated[Verify, tyro.conf.subcommand('verify')]
)


@contextlib.contextmanager
def opened(path: pathlib.Path, *, new: bool = False) -> Iterator[Store]:
    """The store at a path; only `new` may make one."""
    if not new and not path.is_file():
        raise Refusal(f'there is no file {path}', remedy='give the path of a tool cache')
    with refusing(ValueError):
        store = Store(path)
    with contextlib.closing(store):
        yield store


def tool_name(entry: Entry) -> str:
    """The name of the tool that answered."""
    return entry.key.identity.rsplit('@', 1)[0]


def stats(command: Stats) -> dict[str, Any]:
    """Prints and returns the numbers of a cache."""
    with opened(command.cache) as store:
        entries = store.load()
    tools: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        tools[tool_name(entry)].append(entry)
    by_tool = {name: of_tool(part) for name, part in sorted(tools.items(), key=_most_first)}
    numbers = {
        'entries': len(entries),
        'calls': len({entry.key for entry in entries}),
        'tools': len(tools),
        'states': len({entry.key.state for entry in entries if entry.key.state}),
        'gold_tasks': len({task for entry in entries for task in entry.gold}),
        'hits': sum(entry.hits for entry in entries),
        'saved_seconds': round(sum(entry.hits * entry.seconds for entry in entries), 3),
        'text_bytes': sum(len(entry.result.text.encode()) for entry in entries),
        'file_bytes': command.cache.stat().st_size,
        'schema_version': SCHEMA_VERSION,
        'content_hash': Index(entries).content_hash,
        'provenance': dict(Counter(entry.result.provenance for entry in entries)),
        'status': dict(Counter(str(entry.result.status) for entry in entries)),
    }
    show(str(command.cache), numbers)
    columns = ['tool', 'entries', 'calls', 'states', 'hits', 'median characters']
    rows = [[name, *part.values()] for name, part in list(by_tool.items())[: command.tools]]
    print_table(f'tools, {len(rows)} of {len(by_tool)}', columns, rows)
    return numbers | {'by_tool': by_tool}


def show(title: str, numbers: Mapping[str, Any]) -> None:
    """A table of names and numbers; the hash, which is wide, has a line of its own."""
    rows = [[name, _line(x)] for name, x in numbers.items() if name != 'content_hash']
    print_table(title, ['', ''], rows)
    print(f'content hash {numbers["content_hash"]}')


def of_tool(entries: list[Entry]) -> dict[str, int]:
    """The numbers of one tool."""
    return {
        'entries': len(entries),
        'calls': len({entry.key for entry in entries}),
        'states': len({entry.key.state for entry in entries if entry.key.state}),
        'hits': sum(entry.hits for entry in entries),
        'median_characters': int(statistics.median(len(each.result.text) for each in entries)),
    }


def _most_first(item: tuple[str, list[Entry]]) -> tuple[int, str]:
    return -len(item[1]), item[0]


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ', '.join(f'{name} {count}' for name, count in sorted(value.items()))
    return str(value)


def inspect(command: Inspect) -> dict[str, Any]:
    """Prints and returns the entries asked for."""
    with opened(command.cache) as store:
        found = [entry for entry in store.load() if asked_for(command, entry)]
    rows = [
        [entry.source[:8], tool_name(entry), _cut(entry.key.arguments), _cut(_answer(entry))]
        for entry in found[: command.limit]
    ]
    columns = ['source', 'tool', 'arguments', 'answer']
    print_table(f'{len(rows)} of {len(found)} entries', columns, rows)
    records = [{'source': each.source} | record_of(each) for each in found[: command.limit]]
    return {'found': len(found), 'entries': records}


def asked_for(command: Inspect, entry: Entry) -> bool:
    """Whether an entry is one of those to be shown."""
    held = (entry.key.arguments, entry.result.text, entry.task)
    return (
        command.tool in ('', tool_name(entry))
        and entry.source.startswith(command.source)
        and any(command.text.casefold() in part.casefold() for part in held)
    )


def _answer(entry: Entry) -> str:
    result = entry.result
    return result.text if result.status is Status.OK else f'{result.status}: {result.text}'


def _cut(text: str) -> str:
    line = ' '.join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + '…'


def import_(command: Import) -> dict[str, Any]:
    """Adds the entries of a file; says what became of them."""
    with opened(command.cache, new=True) as store, refusing(ValueError, FileNotFoundError):
        if command.format == 'lines':
            told = {'stored': import_lines(store, command.file)}
        else:
            told = dict(import_recorded(store, command.file))
        told['content_hash'] = Index(store.load()).content_hash
    show(f'{command.file} to {command.cache}', told)
    return told


def import_recorded(store: Store, path: pathlib.Path) -> Counter[str]:
    """The recorded API answers of a wheel or folder, under the number of their trajectory."""
    recorded, told = read_recorded(path), Counter()
    cache = make_tool_cache(store, ToolCacheSettings(mode='replay'))
    for number, each in enumerate(recorded.trajectories):
        task = f'complexfuncbench/{each.block:02d}/{number:04d}'
        told.update(cache.record_results(task, recorded.tools, each.pairs, 'imported'))
    return told


def export(command: Export) -> dict[str, Any]:
    """Writes the file; says how many entries went into it."""
    with opened(command.cache) as store:
        told = {'entries': export_lines(store, command.file)}
        told['content_hash'] = Index(store.load()).content_hash
    show(f'{command.cache} to {command.file}', told)
    return told


def verify(command: Verify) -> dict[str, Any]:
    """Prints and returns what is wrong."""
    if not command.cache.is_file():
        raise Refusal(f'there is no file {command.cache}', remedy='give the path of a tool cache')
    wrong, told = problems(command.cache), ''
    if not wrong:
        with opened(command.cache) as store:
            told = Index(store.load()).content_hash
        if command.content_hash not in ('', told):
            wrong = [f'its content hash is {told}, not {command.content_hash}']
    print('\n'.join(wrong) or f'whole; content hash {told}')
    return {'whole': not wrong, 'problems': wrong, 'content_hash': told}


COMMANDS = {Stats: stats, Inspect: inspect, Import: import_, Export: export, Verify: verify}


@refusing()
def main() -> None:
    """The command."""
    command = tyro.cli(Command, description=__doc__, prog='python -m cacherl_jax.tool_cache')
    told = COMMANDS[type(command)](command)
    if command.json:
        write_atomically(command.json, json.dumps(told, indent=2, ensure_ascii=False) + '\n')
    if told.get('problems'):
        raise SystemExit(1)


if __name__ == '__main__':
    main()
