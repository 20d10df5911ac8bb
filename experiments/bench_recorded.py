"""How far does a cache get on real API calls that it has not seen, and how true is what it says?

    python experiments/bench_recorded.py --material nestful_wrapper-0.1.7-py3-none-any.whl --show 20

5,070 recorded calls (see `tool_cache/recorded.py`), split by block so that no paraphrase of a
held-out request is in the cache.  Each held-out call is looked up in all tiers; what is served
stands beside the answer that the service once gave.  Recorded answers to one and the same call
differ among themselves, because prices and seats change: `exact` shows how much.
"""

import dataclasses
import json
import pathlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import tyro

from cacherl_jax.evaluate.statistics import wilson_interval
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tool_cache.audit import Judged, judged
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.lookup import Seat
from cacherl_jax.tool_cache.recorded import Recorded, read_recorded
from cacherl_jax.tool_cache.session import as_result, missing
from cacherl_jax.tool_cache.tiers import TierSettings
from cacherl_jax.tools.arguments import problem
from cacherl_jax.tools.tool import Tier

TIERS = (Tier.EXACT, Tier.FUZZY, Tier.BEST_EFFORT, Tier.MISS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedSettings:
    """Which answers, and what may stand in for them."""

    material: pathlib.Path | None = None  # wheel or folder of nestful-wrapper; none: the installed
    folds: int = 5  # parts the blocks are dealt to; each part is held out once
    only_fold: int | None = None  # hold out this part only
    tiers: TierSettings = TierSettings()
    show: int = 0  # so many fuzzy and best-effort answers beside the true ones
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        if self.folds < 2:
            raise ValueError(f'folds must be at least 2, got {self.folds}')
        if self.only_fold is not None and not 0 <= self.only_fold < self.folds:
            raise ValueError(f'only_fold must be in 0..{self.folds - 1}, got {self.only_fold}')


def look_up_held_out(recorded: Recorded, settings: RecordedSettings, fold: int) -> Iterator[Judged]:
    """Every proper call of the held-out blocks beside the truth."""
    tools = {tool.name: tool for tool in recorded.tools}
    held_out = [each for each in recorded.trajectories if each.block % settings.folds == fold]
    cache_settings = ToolCacheSettings(mode='replay', tiers=settings.tiers)
    cache = make_tool_cache(':memory:', cache_settings)
    for number, each in enumerate(recorded.trajectories):
        if each.block % settings.folds != fold:
            cache.record_results(str(number), recorded.tools, each.pairs, 'imported')
    for number, each in enumerate(held_out):
        task = f'held out {number}'
        for call, true in each.pairs:
            tool = tools[call.name]
            if problem(tool, call.arguments):
                continue
            found = cache.find(tool, call.arguments, seat=Seat(task, 0))
            yield judged(task, call, as_result(found) if found else missing(), true)
    cache.close()


def rows_of(told: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """{tool: calls, and for each tier its share, how many were the same, how far they agree}."""
    groups: dict[str, list[Judged]] = {'all tools': list(told)}
    for each in told:
        groups.setdefault(each.tool, []).append(each)
    return {name: _numbers(part) for name, part in groups.items()}


def _numbers(told: Sequence[Judged]) -> dict[str, Any]:
    by_tier: dict[Tier, list[Judged]] = defaultdict(list)
    for each in told:
        by_tier[each.tier].append(each)
    numbers: dict[str, Any] = {'calls': len(told)}
    for tier in TIERS:
        part, name = by_tier[tier], tier.name.lower()
        numbers[name] = {'hits': len(part), 'share': len(part) / len(told)}
        if part and tier is not Tier.MISS:
            same = sum(each.same for each in part)
            numbers[name] |= {
                'same': same / len(part),
                'same_wilson': wilson_interval(same / len(part), len(part)),
                'agreement': sum(each.agreement for each in part) / len(part),
            }
    return numbers


def table(rows: dict[str, dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Share, same and agreement of each tier, most called tools first."""
    columns = ['tool', 'calls', *(tier.name.lower() for tier in TIERS)]
    lines = []
    for name, row in sorted(rows.items(), key=lambda item: -item[1]['calls']):
        cells = []
        for tier in TIERS:
            part = row[tier.name.lower()]
            text = f'{part["share"]:.0%}'
            if 'same' in part:
                text += f' ({part["same"]:.0%}, {part["agreement"]:.2f})'
            cells.append(text if part['hits'] else '–')
        lines.append([name, row['calls'], *cells])
    return columns, lines


def show(told: Sequence[Judged], count: int) -> None:
    """Some inexact answers beside the true ones, an equal number of each tier."""
    for tier in (Tier.FUZZY, Tier.BEST_EFFORT):
        part = [each for each in told if each.tier is tier]
        for each in part[:: max(1, len(part) // count)][:count]:
            arguments = json.dumps(each.arguments, ensure_ascii=False)
            print(f'\n{tier.name.lower()} {each.similarity:.3f}  {each.tool} {arguments:.160}')
            print(f'  served {each.served:.150}\n  true   {each.true:.150}')


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(RecordedSettings, description=__doc__)
    with refusing(FileNotFoundError):
        recorded = read_recorded(settings.material)
    folds = range(settings.folds) if settings.only_fold is None else [settings.only_fold]
    started = time.perf_counter()
    told = [each for fold in folds for each in look_up_held_out(recorded, settings, fold)]
    rows = rows_of(told)
    title = f'held-out calls, {len(folds)} of {settings.folds} folds: share (same, agreement)'
    print_table(title, *table(rows))
    print(f'{len(told)} look-ups, {time.perf_counter() - started:.0f} seconds in all')
    if settings.show:
        show(told, settings.show)
    if settings.json:
        write_atomically(settings.json, json.dumps({'folds': list(folds), 'tools': rows}) + '\n')


if __name__ == '__main__':
    main()
