"""A run folder as one HTML page that needs nothing else: curves, tables and every episode to read.

Reads `metrics.jsonl`, `result.json` (`config.json` before there is one) and `episodes.jsonl`; what
is not there yet is left out and the page says so.  What the run wrote enters the page as JSON that
cannot end its element, and the page inserts it as text; its policy forbids it to load anything.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cacherl_jax.evaluate.failures import Failure, Kind, failure_table
from cacherl_jax.evaluate.html import page_with
from cacherl_jax.schedule import Schedule
from cacherl_jax.tools.tool import Tier

TIERS = tuple(tier.name.lower() for tier in Tier)
# Where answers came from: of all answers in a step, and of those that the update counts.
TIER_METRICS = ('tool_cache/{}_fraction', 'tool_cache/tier_{}')
# The parts of the reward, from the bottom of their stack, and what is drawn over them.
REWARD_TERMS = ('final', 'macro', 'micro', 'penalty')
REWARD_LINES = ('total', 'solved')
# Settings that change while the policy learns, by their place in the configuration.
SCHEDULES = (('weights', 'final'), ('weights', 'macro'), ('weights', 'micro'), ('mix', 'share'))
REFUSED = 'rollout_cache/refused/'  # and the reason: how many so far


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


def _thin(points: Sequence[Sequence], most: int) -> list[list]:
    """At most `most` points, each the mean of equally many neighbours that are finite."""
    width = max(1, -(-len(points) // most))
    thinned = []
    for start in range(0, len(points), width):
        bucket = points[start : start + width]
        finite = [value for _, value in bucket if value is not None]
        mean = sum(finite) / len(finite) if finite else None
        thinned.append([bucket[-1][0], mean])
    return thinned


Series = dict[str, list[list]]  # [step, value] pairs by name; None where a value was not finite


def _series(metrics: Sequence[Mapping[str, Any]]) -> Series:
    """Each metric by name, every step of it."""
    points: Series = {}
    for line in metrics:
        for name, value in line.items():
            if name != 'step':
                points.setdefault(name, []).append([line['step'], value])
    return dict(sorted(points.items()))


def _rows(parts: Sequence[Sequence[Sequence]]) -> list[list]:
    """Series that are drawn as one: [step, values], and None for values of which one is missing."""
    found: dict[int, list] = {}
    for place, points in enumerate(parts):
        for step, value in points:
            found.setdefault(step, [None] * len(parts))[place] = value
    return [[step, None if None in row else row] for step, row in sorted(found.items())]


def _reward(series: Series, most: int) -> dict[str, Any]:
    """The weighted terms of the reward and its lines, taken out of the other series."""
    names = [name for name in REWARD_TERMS if f'rewards/weighted_{name}' in series]
    lines = [name for name in REWARD_LINES if names and f'rewards/{name}' in series]
    terms = [_thin(series.pop(f'rewards/weighted_{name}'), most) for name in names]
    return {
        'names': names,
        'rows': _rows(terms),
        'lines': {name: _thin(series.pop(f'rewards/{name}'), most) for name in lines},
    }


def _schedule(told: Any) -> Schedule | None:
    """The schedule that settings tell; None where there is none that this version knows."""
    if not isinstance(told, Mapping):
        return None
    try:
        points = tuple((step, value) for step, value in told.get('points', ()))
        return Schedule(**dict(told) | {'points': points})
    except (TypeError, ValueError):
        return None


def _schedules(config: Mapping[str, Any], steps: Sequence[int]) -> Series:
    """What the settings plan for these steps."""
    found = {}
    for area, name in SCHEDULES:
        settings = config.get(area)
        schedule = _schedule(settings.get(name)) if isinstance(settings, Mapping) else None
        if schedule and steps:
            found[f'{area}/{name}'] = [[step, schedule.at(step)] for step in steps]
    return found


def _refused(series: Series, most: int) -> dict[str, Any]:
    """How many episodes each step refused, by reason, taken out of the other series.

    The run counts from its start; a reason is 0 before it is first named.
    """
    counts = {n.removeprefix(REFUSED): series.pop(n) for n in list(series) if n.startswith(REFUSED)}
    steps = sorted({step for points in counts.values() for step, _ in points})
    added, total = {}, {}
    for reason, points in counts.items():
        before, known, grown = 0, dict(points), []
        for step in steps:
            now = known.get(step)
            now = before if now is None else now
            grown.append([step, now - before])
            before = now
        added[reason], total[reason] = _thin(grown, most), before
    names = sorted(counts, key=lambda reason: (total[reason], reason))  # the most on top
    return {
        'names': names,
        'rows': _rows([added[name] for name in names]),
        'totals': [total[name] for name in names],
    }


def _unchanged(series: Series) -> dict[str, Any]:
    """The one value of each series that never changed in several steps, taken out of the others."""
    still = [
        name
        for name, points in series.items()
        if len(points) > 1 and len({value for _, value in points}) == 1
    ]
    return {name: series.pop(name)[0][1] for name in still}


def _twins(series: Series) -> dict[str, list[str]]:
    """Series that another one equals at every step, by that one's name, taken out of the others.

    Some measures have a name for what they are and one for what they enter, such as an answer that
    is the whole of the final reward.  Those of the rollout cache are drawn where they belong.
    """
    first: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for name, points in list(series.items()):
        if name.startswith('rollout_cache/') or len(points) < 2:
            continue
        like = first.setdefault(json.dumps(points), name)
        if like != name:
            found.setdefault(like, []).append(name)
            del series[name]
    return found


def _tiers(series: Series, most: int) -> dict[str, Any]:
    """The tier shares of each step, taken out of the other series."""
    found: dict[int, dict[str, float]] = {}
    for spelling in TIER_METRICS[::-1]:  # the first one has the last word
        for tier in TIERS:
            for step, value in _thin(series.pop(spelling.format(tier), ()), most):
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


def _json(path: pathlib.Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else None


def run_record(folder: str | os.PathLike, settings: ReportSettings) -> dict[str, Any]:
    """Everything that the page shows."""
    folder = pathlib.Path(folder).resolve()
    result = _json(folder / 'result.json')
    config = (result['config'] if result else _json(folder / 'config.json')) or {}
    episodes = list(_lines(folder / 'episodes.jsonl'))
    series = _series(list(_lines(folder / 'metrics.jsonl')))
    # Each of these takes what it shows out of the series; what is left is drawn one by one.
    reward = _reward(series, settings.most_points)
    refused = _refused(series, settings.most_points)
    tiers = _tiers(series, settings.most_points)
    unchanged = _unchanged(series)
    twins = _twins(series)
    series = {name: _thin(points, settings.most_points) for name, points in series.items()}
    return {
        'name': folder.name,
        'result': result,
        'config': None if result else config,
        'reward': reward,
        'schedules': _schedules(config, [step for step, _ in reward['rows']]),
        'refused': refused,
        'tiers': tiers,
        'unchanged': unchanged,
        'twins': twins,
        'series': series,
        'failures': _failures(episodes),
        'episodes': _shown_episodes(episodes, settings),
        'episodes_left_out': max(0, len(episodes) - settings.most_episodes),
    }


def render_report(folder: str | os.PathLike, settings: ReportSettings = ReportSettings()) -> str:
    """The page of the run in `folder`, as text."""
    return page_with('page.html', run_record(folder, settings))
