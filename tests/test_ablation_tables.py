"""Tables and figures of ablations: what is compared with what, and how sure one can be."""

import csv
import dataclasses
import io
import math
import xml.etree.ElementTree

import numpy as np
import pytest
from ablation_outcomes import finished_run, outcome_of

from cacherl_jax.evaluate.statistics import bootstrap_interval, bootstrap_ratio, crossed_interval
from experiments.ablations.figure import draw, mean_way
from experiments.ablations.measures import Point, Price, outcome, price
from experiments.ablations.table import cells, entries, markdown, runs_csv, table_csv

WAYS = {
    'slow': ((0, 0, 0.2), (100, 400, 0.5), (200, 800, 0.8)),
    'fast': ((0, 40, 0.2), (50, 40, 0.9)),
    'never': ((0, 40, 0.2), (50, 40, 0.7)),
}
RUNS = {
    'plain': {0: outcome_of(0, 1, 0), 1: outcome_of(0, 1, 1)},
    'better': {0: outcome_of(1, 1, 0), 1: outcome_of(1, 1, 1)},
    'half': {1: outcome_of(0, 0, 0)},
    'none': {},
}


def by_row(outcomes, *more):
    return {entry['row']: entry for entry in entries(outcomes, *more)}


# ---- intervals


def test_equal_numbers_leave_no_doubt():
    assert crossed_interval([[0.25] * 7] * 3) == pytest.approx((0.25, 0.25))
    assert bootstrap_ratio([(8, 2)] * 5) == (4.0, 4.0)


def test_nothing_leaves_every_doubt():
    assert crossed_interval([]) == (0.0, 1.0) and bootstrap_ratio([]) == (0.0, math.inf)


def test_one_run_is_resampled_over_its_tasks():
    values = [0, 1, 1, 0, 1, 1, 1]
    assert crossed_interval([values]) == pytest.approx(bootstrap_interval(values), abs=0.15)


def test_runs_that_differ_are_less_sure_than_tasks_alone_would_say():
    alike, apart = np.full((5, 16), 0.5), np.full((5, 16), 0.5)
    alike[:, ::2], apart[:, ::2] = 1, 1
    apart[0], apart[1] = 0, 1
    widths = [high - low for low, high in map(crossed_interval, (alike, apart))]
    assert widths[1] > 1.2 * widths[0] > 0


def test_a_ratio_resamples_pairs_together():
    low, high = bootstrap_ratio([(10, 1), (20, 2), (30, 3)])
    assert low == high == pytest.approx(10)


# ---- what a run came to


def test_a_run_is_read_from_its_files(tmp_path):
    success = {('a', 0): 1, ('a', 1): 0, ('b', 0): 1}
    found = outcome(finished_run(tmp_path / 'run', success, [(1, 32, 5, 0.4)]))
    assert found.by_task['success'] == {'a': 0.5, 'b': 1.0}
    assert found.numbers['exact share'] == 0.5 and found.numbers['live calls'] == 30
    assert found.points[:2] == (Point(0, 30, 0.25), Point(32, 35, 0.4))
    assert found.points[2][:2] == (64, 30)


@pytest.mark.parametrize(
    ('way', 'paid'),
    [
        ('slow', Price(200, 800, True)),
        ('fast', Price(50, 40, True)),
        ('never', Price(50, 40, False)),
    ],
)
def test_a_price_is_what_was_spent_at_the_first_evaluation_that_shows_it(way, paid):
    assert price([Point(*point) for point in WAYS[way]], 0.8) == paid


# ---- tables


def test_differences_are_paired_by_seed_and_task():
    found = by_row(RUNS, 'plain')
    assert found['better']['success'].mean == pytest.approx(5 / 6)
    assert found['better']['success difference'].mean == pytest.approx(1 / 3)
    assert found['half']['success difference'].mean == pytest.approx(-2 / 3)  # from seed 1 alone
    assert found['better']['score difference'].mean == pytest.approx(1 / 6)
    assert found['plain']['success difference'] is None


def test_only_tasks_that_both_have_are_compared():
    runs = {'plain': {0: outcome_of(0, 0)}, 'other': {0: outcome_of(1, 1, 0)}}
    found = by_row(runs, 'plain')['other']
    assert found['success difference'].mean == 1.0
    assert found['success'].mean == pytest.approx(2 / 3)


def test_a_row_without_runs_is_shown_as_such():
    columns, rows = cells(entries(RUNS, 'plain'))
    assert rows[3][:4] == ['none', '0', '–', '–'] and len(rows[3]) == len(columns)
    assert rows[1][2].startswith('0.833 (') and rows[1][3].startswith('+0.333 (')
    assert rows[0][-1] == 'exact 50%, fuzzy 17%, best effort 33%, miss 0%'


def test_a_row_that_asked_for_nothing_has_no_mix_of_tiers():
    run = outcome_of(1)
    numbers = {name: 0.0 if 'share' in name else x for name, x in run.numbers.items()}
    columns, rows = cells(
        entries({'no RL': {0: dataclasses.replace(run, numbers=numbers)}}, 'no RL')
    )
    assert rows[0][columns.index('answers from')] == '–'


def test_what_a_target_took_is_compared_with_the_baseline():
    runs = {
        row: {0: outcome_of(1, points=way), 1: outcome_of(1, points=way)}
        for row, way in WAYS.items()
    }
    found = by_row(runs, 'slow', 0.8)
    assert found['fast']['episodes to 0.8'].text(0) == '50 (50 to 50)'
    assert found['fast']['times fewer live calls'].text(1) == '20.0 (20.0 to 20.0)'
    assert found['never']['reached 0.8'] == 0
    assert found['never']['episodes to 0.8'].bound == '≥'
    assert found['never']['times fewer episodes'].bound == '≤'
    against_never = by_row(runs, 'never', 0.8)
    assert against_never['fast']['times fewer episodes'].bound == '≥'
    assert against_never['never']['times fewer episodes'].bound == '?'


def test_a_ratio_to_nothing_spent_is_none():
    runs = {'slow': {0: outcome_of(1)}, 'at once': {0: outcome_of(1, points=((0, 0, 0.9),))}}
    assert by_row(runs, 'slow', 0.8)['at once']['times fewer episodes'] is None


def test_tables_are_files_that_programs_read():
    found = entries(RUNS, 'plain', 0.8)
    table = list(csv.DictReader(io.StringIO(table_csv(found))))
    runs = list(csv.DictReader(io.StringIO(runs_csv(RUNS, 0.8))))
    assert [line['row'] for line in table] == list(RUNS)
    assert float(table[1]['success low']) <= float(table[1]['success']) <= 1
    assert [(line['row'], line['seed']) for line in runs[:3]] == [
        ('plain', '0'), ('plain', '1'), ('better', '0'),
    ]  # fmt: skip
    assert float(runs[0]['success']) == pytest.approx(1 / 3)
    lines = markdown(*cells(found)).splitlines()
    assert len(lines) == 2 + len(RUNS) and len({line.count('|') for line in lines}) == 1


# ---- figures


@pytest.mark.parametrize('target', [None, 0.8])
def test_a_figure_names_every_row_and_is_the_same_again(target):
    found = entries(RUNS, 'plain', target)
    drawn = [draw('Does it help?', found, RUNS, 'plain', target) for _ in range(2)]
    assert drawn[0] == drawn[1]
    texts = ' '.join(xml.etree.ElementTree.fromstring(drawn[0]).itertext())
    assert all(f'{row} ({len(runs)})' in texts for row, runs in RUNS.items())
    assert 'Does it help?' in texts and ('live tool calls' in texts) == bool(target)


def test_a_way_goes_as_far_as_every_run_came():
    runs = [outcome_of(1, points=WAYS[way]) for way in ('slow', 'fast')]
    assert mean_way(runs) == [Point(0, 20, 0.2), Point(75, 220, 0.7)]
