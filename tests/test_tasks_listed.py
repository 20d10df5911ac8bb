"""A list of tasks is read as it is, or refused with line and field."""

import json

import pytest

from cacherl_jax.tasks.listed import read_task_list
from cacherl_jax.tasks.suites import SUITES

SHIPPED = {suite.name: suite for suite in SUITES}
GOOD = {'suite': 'trip', 'split': 'test', 'level': 2, 'number': 17}


def read(path, *lines):
    path.write_text('\n'.join(lines))
    return read_task_list(path, lambda suite, **where: SHIPPED[suite].task(**where), tuple(SHIPPED))


def test_listed_tasks_come_in_the_order_of_the_file(tmp_path):
    lines = [json.dumps(GOOD | {'number': number}) for number in (3, 1)]
    ids = [task.id for task in read(tmp_path / 'tasks.jsonl', *lines)]
    assert ids == [SHIPPED['trip'].task('test', 2, number).id for number in (3, 1)]


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        ({'levle': 2}, 'fields'),
        ({'level': '2'}, 'level must be int'),
        ({'level': True}, 'level must be int'),
        ({'level': 9}, '[1, 2, 3]'),
        ({'suite': 'golf'}, 'research'),
        ({'split': 'exam'}, 'validation'),
        ({'number': -1}, 'negative'),
    ],
)
def test_a_wrong_field_is_named_with_its_line(tmp_path, change, said):
    with pytest.raises(ValueError) as refusal:
        read(tmp_path / 'tasks.jsonl', json.dumps(GOOD), json.dumps(GOOD | change))
    assert 'line 2' in str(refusal.value) and said in str(refusal.value)


def test_an_empty_list_and_broken_json_are_refused(tmp_path):
    for lines in ([''], ['{"suite": ']):
        with pytest.raises(ValueError, match='tasks.jsonl'):
            read(tmp_path / 'tasks.jsonl', *lines)
