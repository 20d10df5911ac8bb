"""Review: what waits is listed with its reason, decided once, and taken up by the door."""

import json
import sys

import pytest
from rollout_cache_rows import episode, record

from cacherl_jax.rollout_cache import __main__ as command
from cacherl_jax.rollout_cache.admission import AdmissionSettings, Door
from cacherl_jax.rollout_cache.record import append
from cacherl_jax.rollout_cache.review import decide, decisions, waiting


@pytest.fixture
def run(tmp_path):
    """A run's folder with three records in quarantine, as a door set them aside."""
    door = Door(AdmissionSettings(), {'yes': lambda e: True, 'no': lambda e: False}, {})
    for seed in range(3):
        played = episode(answer=f'[red]{seed}\x1b[2J', number=seed)
        door.consider(record(played, seed), played)
    append(tmp_path / 'quarantine', list(door.waiting.values()))
    return tmp_path


def review(monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['x', 'review', *map(str, arguments)])
    monkeypatch.setenv('COLUMNS', '200')
    command.main()


def test_the_list_says_why_each_waits_and_obeys_nothing_in_it(run, monkeypatch, capsys):
    review(monkeypatch, run, '--json', run / 'list.json')
    said = capsys.readouterr().out
    assert said.count('against: no') == 3 and 'sums/train/1/00002' in said
    assert '[red]1' in said and '\x1b' not in said  # neither markup nor the terminal's commands
    assert len(json.loads((run / 'list.json').read_text())['waiting']) == 3


def test_what_is_decided_waits_no_longer_and_settles_the_door(run, monkeypatch, capsys):
    one, other, third = (each.identity for each in waiting(run))
    review(monkeypatch, run / 'quarantine', '--approve', one[:8], '--reject', other)
    assert 'approved' in capsys.readouterr().out
    assert [each.identity for each in waiting(run)] == [third]
    door = Door(AdmissionSettings(), {}, {})
    door.restore({'seen': [], 'counts': {}}, {one: record(), other: record(), third: record()})
    assert {v.reason for v in door.settle(decisions(run))} == {'approved', 'rejected'}
    assert list(door.waiting) == [third]


def test_one_record_is_shown_with_its_turns(run, monkeypatch, capsys):
    review(monkeypatch, run, '--show', waiting(run)[0].identity[:6])
    said = capsys.readouterr().out
    assert 'turn 1: [red]0' in said and 'ok: 3' in said and 'rewards' in said


@pytest.mark.parametrize('name', ['', '0', 'zzzzzzz', 'f' * 64])
def test_a_name_that_is_nobodys_decides_nothing(run, monkeypatch, capsys, name):
    good = waiting(run)[0].identity
    with pytest.raises(SystemExit) as end:
        review(monkeypatch, run, '--approve', good, name)
    assert end.value.code == 2 and 'names' in capsys.readouterr().err and not decisions(run)


def test_nobody_is_approved_and_rejected(run):
    one = waiting(run)[0].identity
    with pytest.raises(ValueError, match='approved and rejected'):
        decide(run, [one], [one[:10]])


def test_a_folder_of_no_run_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        review(monkeypatch, tmp_path)
    assert 'not the folder of a run' in capsys.readouterr().err


def test_a_decision_that_a_kill_cut_short_was_not_made(run):
    one, other, _ = (each.identity for each in waiting(run))
    decide(run, [one])
    with (run / 'reviewed.jsonl').open('a') as file:
        file.write('{"record": "ab')
    assert decisions(run) == {one: True}
    decide(run, [], [other])
    assert decisions(run) == {one: True, other: False}


def test_a_line_that_is_no_decision_is_named(run):
    (run / 'reviewed.jsonl').write_text('{"record": "a", "approved": "yes"}\n')
    with pytest.raises(ValueError, match='line 1'):
        decisions(run)


def test_where_nothing_waits_that_is_said(tmp_path, monkeypatch, capsys):
    (tmp_path / 'rollout_cache').mkdir()
    review(monkeypatch, tmp_path)
    assert 'nothing waits' in capsys.readouterr().out
