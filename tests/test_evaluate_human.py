"""People's scores: a sheet comes back as it was filled in, and known correlations are found."""

import csv
import html
import io
import json
import re
import sys

import numpy as np
import pytest
from evaluate_episodes import TRAINS, answer, episode, task
from page_browser import CHROMIUM, drawn

from cacherl_jax.evaluate.human import blank_sheet, read_sheet, scoring_page
from cacherl_jax.evaluate.record import MEASURES, episode_record, read_records
from cacherl_jax.run.files import make_lines
from experiments import compare, correlate

HOSTILE = '</script><img src=x onerror="document.title=1">,"quoted"\nline'


def run_of(folder, rights, suite='trip', samples=1, stage='final'):
    """A run folder with `samples` attempts at each task; `rights[task][sample]` are answered."""
    append = make_lines(folder / 'episodes.jsonl', restored_step=99)
    for number, of_task in enumerate(rights):
        for sample, right in enumerate(of_task):
            said = answer('At 15:40.' if right else 'At noon.')
            of = task(f'{suite}/test/1/{number:05d}', suite)
            played = episode(TRAINS, said, of=of, sample=sample)
            append(episode_record(played, step=9, stage=stage))
    return folder


def filled(records, scores):
    """The sheet of these records with the scores of one person."""
    lines = list(csv.reader(io.StringIO(blank_sheet(records))))
    for line, score in zip(lines[1:], scores, strict=True):
        line[3] = str(score)
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue()


def run_command(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['command', *map(str, arguments)])
    module.main()


def test_a_sheet_comes_back_as_it_was_filled_in(tmp_path):
    records = read_records(run_of(tmp_path / 'run', [[1, 0], [0, 0], [1, 1]]))
    sheet = tmp_path / 'scores.csv'
    sheet.write_text(filled(records, [5, 1, 0, '', 4.5, 4]))
    scores = read_sheet(sheet)
    assert len(scores) == 5 and scores['trip/test/1/00002', 0, 9] == 4.5


def test_several_people_count_with_their_mean(tmp_path):
    sheet = tmp_path / 'scores.csv'
    sheet.write_text('task,sample,step,human\na,0,9,2\na,0,9,5\nb,1,9,1\n')
    assert read_sheet(sheet) == {('a', 0, 9): 3.5, ('b', 1, 9): 1.0}


@pytest.mark.parametrize('text', ['=1+1', '@SUM(A1)', '-2', '+x'])
def test_no_spreadsheet_runs_what_a_policy_wrote(text):
    record = episode_record(episode(answer(text)), step=0, stage='final')
    (row,) = csv.DictReader(io.StringIO(blank_sheet([record])))
    assert row['answer'] == f"'{text}" and row['human'] == ''


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('task,human\na,1\n', 'no column'),
        ('', 'no column'),
        ('task,sample,step,human\na,0,9,\n', 'no score'),
        ('task,sample,step,human\na,0,9,good\n', 'line 2'),
        ('task,sample,step,human\na,0,9,nan\n', 'finite'),
        ('task,sample,step,human\na,0\nb,x,9,1\n', 'line 3'),
    ],
)
def test_a_sheet_that_cannot_be_read_is_refused(text, words, tmp_path):
    (tmp_path / 'scores.csv').write_text(text)
    with pytest.raises(ValueError, match=words):
        read_sheet(tmp_path / 'scores.csv')


def test_the_command_finds_a_known_correlation(tmp_path, monkeypatch, capfd):
    draws = np.random.default_rng(1)
    rights = draws.integers(0, 2, 60)
    run = run_of(tmp_path / 'run', [[right] for right in rights])
    run_command(correlate, monkeypatch, run, '--sheet', tmp_path / 'empty.csv')
    # Success and success with 15% of the marks turned: r = 0.7 for balanced marks.
    human = np.where(np.arange(60) % 20 < 3, 1 - rights, rights)
    (tmp_path / 'full.csv').write_text(filled(read_records(run), human))
    asked = ['--scores', tmp_path / 'full.csv', '--reward', 'success']
    run_command(correlate, monkeypatch, run, *asked, '--json', tmp_path / 'told.json')
    told = json.loads((tmp_path / 'told.json').read_text())
    pearson = told['suites']['all']['pearson']
    assert pearson['coefficient'] == pytest.approx(np.corrcoef(rights, human)[0, 1])
    assert pearson['interval'][0] < 0.7 < pearson['interval'][1] < 1
    assert 'kendall' in capfd.readouterr().out and set(told['hashes']) == {'episodes', 'scores'}


def test_what_training_paid_is_held_against_people_too(tmp_path):
    append = make_lines(tmp_path / 'episodes.jsonl')
    paid = [[0.1, 1.0], [0.2, 0.0], [0.0, 0.3]]
    for number, rewards in enumerate(paid):
        played = episode(TRAINS, answer('At noon.'), of=task(f'trip/train/1/{number:05d}'))
        append(episode_record(played, step=0, stage='train', rewards=rewards))
    records = read_records(tmp_path)
    assert [MEASURES['reward'](record) for record in records] == pytest.approx([1.1, 0.2, 0.3])
    with pytest.raises(ValueError, match='were paid no reward'):
        MEASURES['reward'](read_records(run_of(tmp_path / 'run', [[1]]))[0])


def hostile_records(folder):
    append = make_lines(folder / 'episodes.jsonl')
    for number, said in enumerate((HOSTILE, '=1+1', 'At 15:40.')):
        played = episode(TRAINS, answer(said), of=task(f'trip/test/1/{number:05d}'))
        append(episode_record(played, step=9, stage='final', rewards=[0.5, 0.5]))
    return read_records(folder)


def test_the_page_to_score_on_tells_nothing_of_success(tmp_path):
    records = hostile_records(tmp_path)
    assert {record['success'] for record in records} == {True, False}
    page = scoring_page(records)
    told = json.loads(page.split('id="run">')[1].split('</script>')[0])
    for name in ('success', 'score', 'failure', 'reward', 'advantage', 'terms', 'tokens'):
        assert f'"{name}"' not in json.dumps(told)
    assert '<img' not in page and len(told['episodes']) == 3


SCORED = """<script>
for (const key of ['3', '5', 'k', '1', 'j']) {
  document.dispatchEvent(new KeyboardEvent('keydown', {key}));
}
document.title = JSON.stringify(sheet());
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason='no chromium on this machine')
def test_what_is_scored_on_the_page_is_read_back(tmp_path):
    records = hostile_records(tmp_path)
    dom, said = drawn(scoring_page(records).replace('</body>', SCORED), tmp_path)
    sheet = json.loads(html.unescape(re.search('<title>(.*?)</title>', dom, re.DOTALL)[1]))
    (tmp_path / 'scores.csv').write_text(sheet)
    keys = [('trip/test/1/00000', 0, 9), ('trip/test/1/00001', 0, 9)]
    assert read_sheet(tmp_path / 'scores.csv') == dict(zip(keys, (3.0, 1.0), strict=True))
    row = list(csv.DictReader(io.StringIO(sheet)))[1]
    assert row['answer'] == "'=1+1" and 'CONSOLE' not in said
    assert '2 of 3 scored; this is number 3' in dom


def test_scores_of_another_run_are_refused(tmp_path, monkeypatch, capfd):
    run = run_of(tmp_path / 'run', [[1]])
    (tmp_path / 's.csv').write_text('task,sample,step,human\nelse,0,9,1\n')
    with pytest.raises(SystemExit):
        run_command(correlate, monkeypatch, run, '--scores', tmp_path / 's.csv')
    assert '1 of 1 scores are for no episode' in capfd.readouterr().err


def test_two_runs_are_compared_task_by_task(tmp_path, monkeypatch):
    first = run_of(tmp_path / 'first', [[0, 0]] * 7 + [[1, 0]])
    second = run_of(tmp_path / 'second', [[1, 1]] * 7 + [[0, 1], [0, 0]])
    asked = (first, second, '--json', tmp_path / 'told.json')
    run_command(compare, monkeypatch, *asked)
    told = json.loads((tmp_path / 'told.json').read_text())['suites']
    assert list(told) == ['all'] and told['all']['tasks'] == 8
    assert told['all']['difference'] == 7 / 8 and told['all']['p_value'] == 2 / 2**7


def test_suites_are_compared_apart_and_together(tmp_path):
    for side, right in (('first', 0), ('second', 1)):
        run_of(tmp_path / side, [[right]] * 3)
        run_of(tmp_path / side, [[1]] * 2, suite='analysis')
    settings = compare.CompareSettings(first=tmp_path / 'first', second=tmp_path / 'second')
    found = compare.compare(settings)
    assert {suite: one.difference for suite, one in found.items()} == {
        'all': 0.6, 'analysis': 0.0, 'trip': 1.0,
    }  # fmt: skip
    assert compare.table(found)[1][0][-2:] == [0, 0.25]


def test_the_stage_written_last_is_taken_unless_another_is_named(tmp_path):
    run = run_of(tmp_path, [[1]] * 2, stage='supervised')
    run_of(tmp_path, [[1]] * 3, stage='final')
    with (run / 'episodes.jsonl').open('a') as file:
        file.write('{"half')
    assert (len(read_records(run)), len(read_records(run, 'supervised'))) == (3, 2)
    with pytest.raises(ValueError, match="no stage 'train'; there are"):
        read_records(run, 'train')
    with pytest.raises(ValueError, match='is not there'):
        read_records(tmp_path / 'nothing')
