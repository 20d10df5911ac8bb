"""Outcomes of runs in, a table out: means, bootstrap intervals, paired differences to the baseline.

Success and score are compared task by task, with runs of the same seed beside each other; whatever
is one number a run is resampled over runs.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cacherl_jax.evaluate.statistics import bootstrap_interval, bootstrap_ratio, crossed_interval
from experiments.ablations.measures import Outcome, price

Outcomes = Mapping[str, Mapping[int, Outcome]]  # row: seed: what its run came to
COMPARED = ('success', 'score')
TIERS = ('exact', 'fuzzy', 'best_effort', 'miss')


class Estimate(NamedTuple):
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float
    bound: str = ''  # ≥ where some runs did not get there, ≤ for a ratio to such, ? where neither

    def text(self, digits: int = 3, sign: str = '') -> str:
        low, mean, high = (f'{x:{sign}.{digits}f}' for x in (self.low, self.mean, self.high))
        return f'{self.bound}{mean} ({low} to {high})'


def entries(outcomes: Outcomes, baseline: str, target: float | None = None) -> list[dict[str, Any]]:
    """One for each row: its name, its runs, and an Estimate, or None, for each number."""
    return [
        {'row': row, 'runs': len(runs)}
        | _compared(runs, outcomes[baseline])
        | _alone(runs)
        | (_prices(runs, outcomes[baseline], target) if target is not None else {})
        for row, runs in outcomes.items()
    ]


def _compared(runs: Mapping[int, Outcome], others: Mapping[int, Outcome]) -> dict[str, Any]:
    seeds = sorted(runs.keys() & others.keys()) if runs is not others else []
    pairs = [[side[seed] for seed in seeds] for side in (runs, others)]
    found: dict[str, Any] = {}
    for measure in COMPARED:
        found[measure] = _crossed(task_table(list(runs.values()), measure))
        shared = shared_tasks([*pairs[0], *pairs[1]], measure)
        mine, theirs = (task_table(side, measure, shared) for side in pairs)
        found[f'{measure} difference'] = _crossed(mine - theirs)
    return found


def shared_tasks(runs: Sequence[Outcome], measure: str) -> list[str]:
    """The tasks that every run has, by name."""
    tasks = [set(run.by_task[measure]) for run in runs]
    return sorted(set.intersection(*tasks)) if tasks else []


def task_table(
    runs: Sequence[Outcome], measure: str, tasks: Sequence[str] | None = None
) -> np.ndarray:
    """[run, task], of the tasks that all of the runs have unless others are named."""
    tasks = shared_tasks(runs, measure) if tasks is None else tasks
    rows = [[run.by_task[measure][task] for task in tasks] for run in runs]
    return np.array(rows, float).reshape(len(runs), len(tasks))


def _crossed(values: np.ndarray) -> Estimate | None:
    return Estimate(float(values.mean()), *crossed_interval(values)) if values.size else None


def _alone(runs: Mapping[int, Outcome]) -> dict[str, Any]:
    names = list(next(iter(runs.values())).numbers) if runs else []
    return {name: _mean([run.numbers[name] for run in runs.values()]) for name in names}


def _mean(values: Sequence[float], bound: str = '') -> Estimate:
    return Estimate(float(np.mean(values)), *bootstrap_interval(values), bound)


def _prices(
    runs: Mapping[int, Outcome], others: Mapping[int, Outcome], target: float
) -> dict[str, Any]:
    """What it took to reach the target, and how many times less than the baseline that is."""
    mine, theirs = (
        {seed: price(run.points, target) for seed, run in side.items()} for side in (runs, others)
    )
    seeds = sorted(mine.keys() & theirs.keys())
    short = [not all(p.reached for p in side.values()) for side in (mine, theirs)]
    found: dict[str, Any] = {f'reached {target}': sum(p.reached for p in mine.values())}
    for name in ('episodes', 'live_calls'):
        of_row = [getattr(mine[seed], name) for seed in sorted(mine)]
        label = f'{name.replace("_", " ")} to {target}'
        found[label] = _mean(of_row, '≥' * short[0]) if mine else None
        pairs = [(getattr(theirs[s], name), getattr(mine[s], name)) for s in seeds]
        found[f'times fewer {name.replace("_", " ")}'] = _ratio(pairs, *short)
    return found


def _ratio(pairs: Sequence[tuple[float, float]], short: bool, baseline_short: bool):
    """Sum of the first over the sum of the second; None where nothing was spent on the second."""
    if not sum(second for _, second in pairs):
        return None
    bound = '?' if short and baseline_short else '≤' * short + '≥' * baseline_short
    ratio = sum(first for first, _ in pairs) / sum(second for _, second in pairs)
    return Estimate(ratio, *bootstrap_ratio(pairs), bound)


def cells(found: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """What a person reads first: columns, and rows of text."""
    columns = ['row', 'runs', 'success (95%)', 'difference (95%)', 'score', 'score difference']
    columns += ['success on seen', 'answers from']
    prices = [n for n in found[0] if n.startswith(('reached', 'episodes to', 'live calls to'))]
    prices += [name for name in found[0] if name.startswith('times fewer')]
    return columns + prices, [_cells(entry, prices) for entry in found]


def _cells(entry: Mapping[str, Any], prices: Sequence[str]) -> list[str]:
    shown = [entry['row'], str(entry['runs'])]
    for measure in COMPARED:
        shown.append(_shown(entry[measure]))
        shown.append(_shown(entry[f'{measure} difference'], sign='+'))
    shown.append(_shown(entry.get('success on seen')))
    shares = [(tier, entry.get(f'{tier} share')) for tier in TIERS]
    mix = [(tier.replace('_', ' '), share.mean) for tier, share in shares if share]
    asked = any(share for _, share in mix)  # a row without RL asks for nothing
    shown.append(', '.join(f'{tier} {share:.0%}' for tier, share in mix) if asked else '–')
    for name in prices:
        digits = 1 if name.startswith('times') else 0
        value = entry.get(name)
        shown.append(str(value) if isinstance(value, int) else _shown(value, digits))
    return shown


def _shown(value: Estimate | None, digits: int = 3, sign: str = '') -> str:
    return value.text(digits, sign) if value else '–'


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ['---'] * len(columns), *rows]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def table_csv(found: Sequence[Mapping[str, Any]]) -> str:
    """One line a row; every estimate as its mean, the ends of its interval, and its bound."""
    lines = []
    for entry in found:
        line = {}
        for name, value in entry.items():
            if isinstance(value, Estimate):
                line |= {name: value.mean, f'{name} low': value.low, f'{name} high': value.high}
                line |= {f'{name} bound': value.bound} if value.bound else {}
            else:
                line[name] = value
        lines.append(line)
    return _csv(lines)


def runs_csv(outcomes: Outcomes, target: float | None = None) -> str:
    """One line a run."""
    lines = []
    for row, runs in outcomes.items():
        for seed, run in sorted(runs.items()):
            line = {'row': row, 'seed': seed}
            for measure in COMPARED:
                values = list(run.by_task[measure].values())
                line[measure] = sum(values) / len(values) if values else None
            line |= run.numbers
            if target is not None:
                spent = price(run.points, target)
                line |= {f'{name} to {target}': x for name, x in spent._asdict().items()}
            lines.append(line)
    return _csv(lines)


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    names = list(dict.fromkeys(name for line in lines for name in line))
    writer = csv.DictWriter(text, names, lineterminator='\n')
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
