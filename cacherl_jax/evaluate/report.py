"""A run folder as one HTML page that needs nothing else: curves, tables and every episode to read.

Reads `metrics.jsonl`, `result.json` and `episodes.jsonl`; what is not there yet is left out and the
page says so.  What the run wrote enters the page as JSON that cannot end its element, and the page
inserts it as text; its policy forbids it to load anything.
"""

import dataclasses
import importlib.resources
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cacherl_jax.evaluate.failures import Failure, Kind, failure_table
from cacherl_jax.tools.tool import Tier

TIERS = tuple(tier.name.lower() for tier in Tier)
# Where answers came from: of all answers in a step, and of those that the update counts.
TIER_METRICS = ('tool_cache/{}_fraction', 'tool_cache/tier_{}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """How much of a run fits on a page."""

    most_points: int = 500  # of one curve; longer ones show the mean of neighbouring steps
    most_episodes: int = 400  # the newest ones
    most_tokens: int = 200_000  # of all episodes; later episodes are shown without their tokens

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f'{name} must be at least 1, got {value}')


def _lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Complete JSON lines; a run that is still writing may have a last one in the making."""
    if path.exists():
        for line in path.read_text(encoding='utf-8').splitlines(keepends=True):
            if line.endswith('\n'):
                yield json.loads(line)


def _thin(points: Sequence[tuple[int, float | None]], most: int) -> list[list]:
    """At most `most` points, each the mean of equally many neighbours that are finite."""
    width = -(-len(points) // most)
    thinned = []
    for start in range(0, len(points), width):
        bucket = points[start : start + width]
        finite = [value for _, value in bucket if value is not None]
        mean = sum(finite) / len(finite) if finite else None
        thinned.append([bucket[-1][0], mean])
    return thinned


def _series(metrics: Sequence[Mapping[str, Any]], most: int) -> dict[str, list[list]]:
    """Each metric as [step, value] pairs, by name."""
    points: dict[str, list] = {}
    for line in metrics:
        for name, value in line.items():
            if name != 'step':
                points.setdefault(name, []).append((line['step'], value))
    return {name: _thin(of_name, most) for name, of_name in sorted(points.items())}


def _tiers(series: dict[str, list[list]]) -> dict[str, Any]:
    """The tier shares of each step, taken out of the other series."""
    found: dict[int, dict[str, float]] = {}
    for spelling in TIER_METRICS[::-1]:  # the first one has the last word
        for tier in TIERS:
            for step, value in series.pop(spelling.format(tier), ()):
                found.setdefault(step, {})[tier] = value or 0.0
    rows = []
    for step, shares in sorted(found.items()):
        total = sum(shares.values())
        if total > 0:
            rows.append([step, [shares.get(tier, 0.0) / total for tier in TIERS]])
    return {'names': list(TIERS), 'rows': rows}


def _failures(episodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The failure table of each stage at its last step, the newest stage first."""
    stages = {}
    for episode in episodes:
        stages[episode['stage']] = max(episode['step'], stages.get(episode['stage'], -1))
    tables = []
    for stage, step in sorted(stages.items(), key=lambda pair: -pair[1]):
        last = [e for e in episodes if e['stage'] == stage and e['step'] == step]
        failed = [
            (e['task'], Failure(**e['failure'] | {'kind': Kind(e['failure']['kind'])}))
            for e in last
            if e['failure']
        ]
        tables.append(
            {
                'stage': stage,
                'step': step,
                'episodes': len(last),
                'failed': len(failed),
                'table': failure_table(failed),
            }
        )
    return tables


def _shown_episodes(episodes: list[dict[str, Any]], settings: ReportSettings) -> list[dict]:
    """The newest first; tokens as long as there is room."""
    shown, room = episodes[::-1][: settings.most_episodes], settings.most_tokens
    for episode in shown:
        count = sum(len(turn.get('tokens', ())) for turn in episode['turns'])
        if count > room:
            for turn in episode['turns']:
                turn.pop('tokens', None)
        else:
            room -= count
    return shown


def run_record(folder: str | os.PathLike, settings: ReportSettings) -> dict[str, Any]:
    """Everything that the page shows."""
    folder = pathlib.Path(folder).resolve()
    result = folder / 'result.json'
    metrics = list(_lines(folder / 'metrics.jsonl'))
    episodes = list(_lines(folder / 'episodes.jsonl'))
    series = _series(metrics, settings.most_points)
    tiers = _tiers(series)
    return {
        'name': folder.name,
        'result': json.loads(result.read_text(encoding='utf-8')) if result.exists() else None,
        'series': series,
        'tiers': tiers,
        'failures': _failures(episodes),
        'episodes': _shown_episodes(episodes, settings),
        'episodes_left_out': max(0, len(episodes) - settings.most_episodes),
    }


def _script_json(value: Any) -> str:
    """JSON that no HTML parser takes for markup; non-ASCII is escaped too."""
    text = json.dumps(value, separators=(',', ':'))
    return text.replace('<', '\\u003c').replace('>', '\\u003e').replace('&', '\\u0026')


def render_report(folder: str | os.PathLike, settings: ReportSettings = ReportSettings()) -> str:
    """The page of the run in `folder`, as text."""
    page = importlib.resources.files('cacherl_jax.evaluate') / 'page'
    data = _script_json(run_record(folder, settings))

    def part(match):
        name = match[1]
        return data if name == 'run' else (page / name).read_text(encoding='utf-8').strip()

    # One pass over the template: what is inserted is not looked at again.
    template = (page / 'page.html').read_text(encoding='utf-8')
    return re.sub(r'<!-- insert ([\w.]+) -->', part, template)
