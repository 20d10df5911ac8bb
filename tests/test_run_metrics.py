"""Metrics: a resumed run writes the file of an uninterrupted one."""

import json
import math
import re

import jax.numpy as jnp
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cacherl_jax.run.files import make_lines, write_atomically
from cacherl_jax.run.metrics import CHARTS, STORY, make_metrics, written_numbers


def written(folder, steps, restored_step=-1):
    metrics = make_metrics(folder, restored_step)
    for step in steps:
        metrics.write(step, {'rewards/total': jnp.float32(step) / 3, 'kl': 0.5})
    metrics.close()
    return (folder / 'metrics.jsonl').read_bytes()


def test_a_resumed_run_writes_the_lines_of_an_uninterrupted_one(tmp_path):
    whole = written(tmp_path / 'whole', range(7))
    written(tmp_path / 'stopped', range(5))
    assert written(tmp_path / 'stopped', range(3, 7), restored_step=2) == whole


def test_a_line_cut_by_a_crash_is_dropped(tmp_path):
    whole = written(tmp_path, range(3))
    with (tmp_path / 'metrics.jsonl').open('ab') as file:
        file.write(b'{"step": 1, "kl"')
    make_lines(tmp_path / 'metrics.jsonl', restored_step=2)
    assert (tmp_path / 'metrics.jsonl').read_bytes() == whole


def test_each_step_can_be_read_at_once(tmp_path):
    metrics = make_metrics(tmp_path)
    back = metrics.write(3, {'loss': jnp.float32(0.25), 'broken': jnp.nan})
    line = (tmp_path / 'metrics.jsonl').read_text()
    assert json.loads(line) == {'step': 3, 'loss': 0.25, 'broken': None}
    assert back['loss'] == 0.25


def test_tensorboard_shows_the_same_numbers(tmp_path):
    written(tmp_path, range(5))
    written(tmp_path, range(3, 7), restored_step=2)
    events = EventAccumulator(str(tmp_path / 'tensorboard')).Reload().Scalars('rewards/total')
    assert [event.step for event in events] == list(range(7))
    assert [event.value for event in events] == pytest.approx([step / 3 for step in range(7)])


def board_of(folder):
    return EventAccumulator(str(folder / 'tensorboard')).Reload()


def test_the_first_group_of_the_board_is_the_story(tmp_path):
    written(tmp_path, range(5))
    board = board_of(tmp_path)
    names = sorted(board.Tags()['scalars'])
    assert names[0] == STORY['rewards/total'] and names[0] < min(
        n for n in names if n not in STORY.values()
    )
    story, plain = ([(e.step, e.value) for e in board.Scalars(name)]
                    for name in (STORY['rewards/total'], 'rewards/total'))  # fmt: skip
    assert story == plain and 'custom_scalars__config__' in board.Tags()['tensors']


def test_every_chart_of_the_board_has_curves_to_show():
    told = ['rewards/solved', 'rewards/weighted_final', 'tool_cache/exact_fraction', 'loss/kl']
    told += ['rollout_cache/refused/flag', 'policy/kl', 'policy/clip_fraction', 'failure/silent']
    for charts in CHARTS.values():
        for _, patterns in charts.values():
            assert any(re.match(pattern, name) for pattern in patterns for name in told)


def test_spreads_and_texts_are_on_the_board_and_a_row_not_counted_is_not(tmp_path):
    metrics = make_metrics(tmp_path)
    metrics.spread(
        2, {'rewards/total': jnp.array([0.5, jnp.nan, 1.5]), 'none': jnp.array([jnp.nan])}
    )
    metrics.say(2, {'episode': '<b>said</b>\nand answered'})
    metrics.close()
    board = board_of(tmp_path)
    (event,) = board.Histograms('rewards/total')
    found = event.histogram_value
    assert (event.step, found.num, found.min, found.max) == (2, 2, 0.5, 1.5)
    assert board.Tags()['histograms'] == ['rewards/total']
    (text,) = board.Tensors('episode/text_summary')
    assert text.tensor_proto.string_val[0] == b'    <b>said</b>\n    and answered'


def test_a_file_is_whole_or_former(tmp_path):
    path = tmp_path / 'deep' / 'result.json'
    write_atomically(path, 'former')
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, '\ud800')
    assert path.read_text() == 'former'


def test_what_was_written_is_read_back_for_those_who_look_at_history(tmp_path):
    metrics = make_metrics(tmp_path)
    metrics.write(0, {'other': 1.0})
    for step in range(5):
        metrics.write(step, {'kl': step / 2 if step != 3 else jnp.inf})
    numbers = written_numbers(tmp_path, 'kl', last=3)
    assert [record['step'] for record in numbers] == [2, 3, 4]
    assert numbers[0]['kl'] == 1.0 and math.isnan(numbers[1]['kl'])
    assert written_numbers(tmp_path / 'nowhere', 'kl', last=3) == []
