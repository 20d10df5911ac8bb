"""Results of runs in, tables out: mean and range of each number over seeds."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Numbers = dict[str, float]


def numbers_of(result: Mapping[str, Any]) -> Numbers:
    """Success by suite and stage out of a result.json, with the means over suites."""
    found = {
        f'{stage} {suite}': stages[stage]['success']
        for stage in ('supervised', 'final')
        for suite, stages in result['suites'].items()
    }
    for stage in ('supervised', 'final'):
        of_stage = [value for name, value in found.items() if name.startswith(f'{stage} ')]
        found[f'{stage} mean'] = statistics.fmean(of_stage)
    return found | {'seconds': result['seconds']}


def summary(points: Sequence[Mapping[str, str]], numbers: Sequence[Numbers]) -> list[dict]:
    """One entry for each combination of settings other than the seed: mean, least and largest."""
    groups: dict[tuple, list[Numbers]] = {}
    for point, found in zip(points, numbers, strict=True):
        key = tuple((name, value) for name, value in point.items() if name != 'seed')
        groups.setdefault(key, []).append(found)
    return [
        {'settings': dict(key), 'runs': len(found)}
        | {
            name: [statistics.fmean(values), min(values), max(values)]
            for name in found[0]
            for values in [[one[name] for one in found]]
        }
        for key, found in groups.items()
    ]


def cells(entries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of text: settings, runs, then `mean (least to largest)` of every number."""
    columns = [*entries[0]['settings'], *(name for name in entries[0] if name != 'settings')]
    rows = []
    for entry in entries:
        shown = [
            f'{x[0]:.3f} ({x[1]:.3f} to {x[2]:.3f})' if isinstance(x, list) else str(x)
            for name, x in entry.items()
            if name != 'settings'
        ]
        rows.append([*entry['settings'].values(), *shown])
    return columns, rows


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ['---'] * len(columns), *rows]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def comma_separated(points: Sequence[Mapping[str, str]], numbers: Sequence[Numbers]) -> str:
    """One line for each run."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*points[0], *numbers[0]], lineterminator='\n')
    writer.writeheader()
    writer.writerows(point | found for point, found in zip(points, numbers, strict=True))
    return text.getvalue()
