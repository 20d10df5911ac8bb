"""How often does the fuzzy tier answer what was not asked, and how often does it miss what was?

    python experiments/bench_tool_cache_pairs.py --show --json pairs.json

Pairs of calls to one tool, each marked as meaning the same or not, are read from a file.  Each pair
is tried both ways: one call is recorded, the other looks for its answer.  Neither may be found from
the other where the meanings differ: that is a false hit.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import tyro

from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.tiers import TierSettings
from cacherl_jax.tools.tool import Call, Result, Status, Tool

CORPUS = pathlib.Path(__file__).resolve().parents[1] / 'tests' / 'tool_cache_near_pairs.jsonl'
TYPES = {str: 'string', bool: 'boolean', int: 'number', float: 'number', list: 'array'}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two calls to one tool."""

    same: bool  # they ask for the same
    kind: str
    one: Mapping[str, Any]
    other: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsSettings:
    """Which pairs, and how alike texts must be."""

    pairs: pathlib.Path = CORPUS  # JSON Lines: same, kind, one, other
    threshold: float = TierSettings().fuzzy_threshold
    show: bool = False  # print each pair that went wrong
    json: pathlib.Path | None = None  # where the numbers go


def read_pairs(path: pathlib.Path = CORPUS) -> list[Pair]:
    """The pairs of a file."""
    return [Pair(**json.loads(line)) for line in path.read_text(encoding='utf-8').splitlines()]


def schema_of(value: Any) -> dict[str, Any]:
    """The plainest JSON Schema that a value fits."""
    if isinstance(value, Mapping):
        return {'type': 'object', 'properties': {name: schema_of(v) for name, v in value.items()}}
    kind = {'type': TYPES[type(value)]}
    return kind | ({'items': schema_of(value[0])} if isinstance(value, list) else {})


def found(recorded: Mapping[str, Any], asked: Mapping[str, Any], threshold: float) -> bool:
    """Whether the exact or the fuzzy tier answers one call from the other."""
    parameters = schema_of({**recorded, **asked})
    tool = Tool(name='t', description='t', parameters=parameters, function=lambda **given: given)
    tiers = TierSettings(fuzzy_threshold=threshold, best_effort=False)
    cache = make_tool_cache(':memory:', ToolCacheSettings(mode='replay', tiers=tiers))
    answer = Result(status=Status.OK, text='t')
    cache.record_results('t', [tool], [(Call('t', recorded), answer)])
    try:
        return cache.find(tool, asked) is not None
    finally:
        cache.close()


def wrong(pairs: Iterable[Pair], threshold: float = TierSettings().fuzzy_threshold) -> list[Pair]:
    """The pairs that are found and should not be, or the other way round, in either direction."""
    return [
        pair
        for pair in pairs
        if not (
            found(pair.one, pair.other, threshold)
            == found(pair.other, pair.one, threshold)
            == pair.same
        )
    ]


def rates(pairs: list[Pair], failed: list[Pair]) -> dict[str, dict[str, Any]]:
    """{group: pairs, wrong, rate}: false hits and misses in all, then each kind."""
    numbers = {}
    for same, name in ((False, 'false hits'), (True, 'misses')):
        asked = collections.Counter(pair.kind for pair in pairs if pair.same is same)
        bad = collections.Counter(pair.kind for pair in failed if pair.same is same)
        groups = {name: (bad.total(), asked.total())}
        groups |= {f'{name}, {kind}': (bad[kind], count) for kind, count in asked.items()}
        numbers |= {
            group: {'pairs': count, 'wrong': part, 'rate': part / count}
            for group, (part, count) in groups.items()
            if count
        }
    return numbers


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(PairsSettings, description=__doc__)
    pairs = read_pairs(settings.pairs)
    failed = wrong(pairs, settings.threshold)
    numbers = rates(pairs, failed)
    rows = [[group, *row.values()] for group, row in numbers.items()]
    print_table(f'threshold {settings.threshold}', ['', 'pairs', 'wrong', 'rate'], rows)
    for pair in failed if settings.show else ():
        print('same ' if pair.same else 'other', pair.kind, dict(pair.one), dict(pair.other))
    if settings.json:
        told = {'threshold': settings.threshold, 'rates': numbers}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
