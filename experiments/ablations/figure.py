"""An ablation as one SVG: what each row reaches, its difference to the baseline, the way there."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from experiments.ablations.measures import Outcome, Point
from experiments.ablations.table import Estimate, Outcomes, task_table

STYLE = {
    'svg.hashsalt': 'ablation',  # the same numbers give the same file
    'svg.fonttype': 'none',
    'font.size': 9,
    'axes.spines.top': False,
    'axes.spines.right': False,
}
INK, BASELINE = '#1b4f72', '#922b21'


def draw(
    question: str,
    found: Sequence[Mapping[str, Any]],
    outcomes: Outcomes,
    baseline: str,
    target: float | None = None,
) -> str:
    """The figure as text."""
    with matplotlib.rc_context(STYLE):
        rows, ways = 0.9 + 0.38 * len(found), 2.9 if target is not None else 0.0
        figure = Figure(figsize=(9.5, rows + ways), layout='constrained')
        figure.suptitle(question)
        parts = figure.subfigures(2, 1, height_ratios=[rows, ways]) if ways else [figure]
        left, right = parts[0].subplots(1, 2, sharey=True)
        _draw_success(left, found, outcomes, baseline)
        _draw_differences(right, found)
        if ways:
            _draw_ways(parts[1].subplots(1, 2, sharey=True), outcomes, target)
        text = io.StringIO()
        figure.savefig(text, format='svg', metadata={'Date': None})
        return text.getvalue()


def _draw_success(axes, found, outcomes: Outcomes, baseline: str) -> None:
    for place, entry in enumerate(found):
        color = BASELINE if entry['row'] == baseline else INK
        runs = list(outcomes[entry['row']].values())
        each = [values.mean() for values in task_table(runs, 'success') if values.size]
        axes.plot(each, [place] * len(each), 'o', color=color, alpha=0.3, markersize=4)
        _draw_estimate(axes, entry['success'], place, color)
    axes.set_yticks(range(len(found)), [f'{entry["row"]} ({entry["runs"]})' for entry in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel('success on unseen tasks; each run, mean and 95%')


def _draw_differences(axes, found) -> None:
    axes.axvline(0, color=BASELINE, linewidth=1)
    for place, entry in enumerate(found):
        _draw_estimate(axes, entry['success difference'], place, INK)
    axes.locator_params(axis='x', nbins=5)
    axes.set_xlabel('difference to the baseline, paired by seed and task')


def _draw_estimate(axes, estimate: Estimate | None, place: int, color: str) -> None:
    if estimate:
        axes.plot([estimate.low, estimate.high], [place, place], color=color, linewidth=2)
        axes.plot([estimate.mean], [place], 'D', color=color, markersize=6)


def _draw_ways(both, outcomes: Outcomes, target: float) -> None:
    """Success against what was spent, each row the mean of its runs at each evaluation."""
    for axes, spent in zip(both, ('episodes', 'live_calls'), strict=True):
        for row, runs in outcomes.items():
            points = mean_way(list(runs.values()))
            if points:
                x = [getattr(point, spent) for point in points]
                axes.plot(x, [point.success for point in points], marker='.', label=row)
        axes.axhline(target, color='grey', linewidth=1, linestyle=':')
        if spent == 'live_calls':
            axes.set_xscale('symlog', linthresh=100)
        axes.set_xlim(left=0)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel({'live_calls': 'live tool calls, collection counted in'}.get(spent, spent))
    both[0].set_ylabel('success on unseen tasks')
    both[1].legend(frameon=False)


def mean_way(runs: Sequence[Outcome]) -> list[Point]:
    """Evaluation by evaluation, as far as every run has come."""
    together = zip(*(run.points for run in runs), strict=False)
    return [Point(*np.mean(points, axis=0).tolist()) for points in together]
