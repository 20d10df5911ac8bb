"""What a finished run amounts to, read from its folder: success by task, tiers, the way there."""

import dataclasses
import json
import pathlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cacherl_jax.compose.stages import mean_success
from cacherl_jax.evaluate.record import MEASURES, read_records
from cacherl_jax.tasks.task import Termination


class Point(NamedTuple):
    """Success on unseen tasks at one moment of a run, and what had been spent by then."""

    episodes: int
    live_calls: int  # of RL, and of filling the tool cache that it is answered from
    success: float


class Price(NamedTuple):
    """What was spent until a success was reached, or in all where it never was."""

    episodes: int
    live_calls: int
    reached: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One finished run."""

    by_task: Mapping[str, Mapping[str, float]]  # measure: task: mean over attempts, unseen tasks
    numbers: Mapping[str, float]
    points: tuple[Point, ...]


def outcome(folder: pathlib.Path) -> Outcome:
    """What the files of a finished run say."""
    result = json.loads((folder / 'result.json').read_text(encoding='utf-8'))
    records = [record for record in read_records(folder, 'final') if record['split'] == 'test']
    return Outcome(
        by_task={name: _task_means(records, MEASURES[name]) for name in ('success', 'score')},
        numbers=_numbers(result),
        points=tuple(_points(folder, result)),
    )


def price(points: Sequence[Point], target: float) -> Price:
    """At the first evaluation that shows the target; nothing is read between two evaluations."""
    for point in points:
        if point.success >= target:
            return Price(point.episodes, point.live_calls, True)
    return Price(points[-1].episodes, points[-1].live_calls, False)


def _task_means(records: Sequence[Mapping[str, Any]], measure) -> dict[str, float]:
    """Mean over attempts at each task, without those that infrastructure spoiled."""
    attempts: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record['termination'] != Termination.TOOL_INFRASTRUCTURE:
            attempts[record['task']].append(measure(record))
    return {task: sum(values) / len(values) for task, values in sorted(attempts.items())}


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    suites, rl = result['suites'], result['rl']
    start, final = (_stage(suites, stage) for stage in ('supervised', 'final'))
    seen = [numbers['success_seen'] for numbers in final.values()]
    mix = {f'{tier} share': share for tier, share in rl['tier_mix'].items()}
    return {
        'success at the start': mean_success(start),
        'success on seen': sum(seen) / len(seen),
        **mix,
        'episodes': rl['episodes'],
        'live calls': rl['live_tool_calls'] + rl['collection_calls'],
    }


def _stage(suites: Mapping[str, Any], stage: str) -> dict[str, dict]:
    return {name: stages[stage] for name, stages in suites.items()}


def _points(folder: pathlib.Path, result: Mapping[str, Any]) -> list[Point]:
    """Before RL, at each evaluation during it, at its end."""
    rl, suites = result['rl'], result['suites']
    collected = rl['collection_calls']
    lines = (folder / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for line in map(json.loads, lines):
        steps[line['step']].update(line)
    between = [
        Point(
            int(numbers['episodes/played']),
            collected + int(numbers['tool_cache/live_calls']),
            numbers['evaluate/success'],
        )
        for _, numbers in sorted(steps.items())
        if 'evaluate/success' in numbers
    ]
    first = Point(0, collected, mean_success(_stage(suites, 'supervised')))
    spent = collected + rl['live_tool_calls']
    return [first, *between, Point(rl['episodes'], spent, mean_success(_stage(suites, 'final')))]
