"""Other programs beside ours: run in their own Python, told of when they fail, never imported."""

import json
import os
import pathlib
import sys

import pytest

from cacherl_jax.bench import peers
from cacherl_jax.bench.peers import (
    PEERS,
    TORCH,
    Outcome,
    Peer,
    PeerSettings,
    against_peers,
    run_peer,
)
from cacherl_jax.run.refusal import Refusal

ROW = {'peer': 'other', 'workload': 'W1', 'model': 'S', 'variant': 'plain', 'unit': 'tok/s'}
ROW |= {'median': 250.0, 'compile_s': 1.5, 'note': ''}
WRITES = f"""
import json, os, sys
assert 'cacherl_jax' not in os.environ.get('PYTHONPATH', ''), 'our path'
row = {ROW!r} | {{'note': ' '.join(sys.argv[1:])}}
open(os.environ['PEER_BENCH_OUT'], 'a').write(json.dumps(row) + chr(10))
"""


@pytest.fixture
def settings(tmp_path):
    """A folder of scripts, and an environment that is this very Python."""
    python = tmp_path / 'environments' / TORCH / 'bin' / 'python'
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / 'writes.py').write_text(WRITES)
    (tmp_path / 'breaks.py').write_text('raise SystemExit("no such model")')
    (tmp_path / 'silent.py').write_text('')
    (tmp_path / 'sleeps.py').write_text('import time\ntime.sleep(60)')
    return PeerSettings(scripts=tmp_path, environments=tmp_path / 'environments')


def test_a_peer_s_row_becomes_its_rate(settings):
    found = run_peer(Peer(TORCH, 'writes.py', ('--micro', '8')), settings)
    assert found == Outcome('other plain', 250.0, 1.5, '--micro 8')


@pytest.mark.parametrize(
    ('script', 'said'), [('breaks.py', 'no such model'), ('silent.py', 'exit status 0')]
)
def test_a_peer_that_fails_is_told_of(settings, script, said):
    found = run_peer(Peer(TORCH, script), settings)
    assert found.tokens_per_second is None and said in found.failure


def test_a_peer_that_does_not_end_is_stopped(settings, monkeypatch):
    monkeypatch.setattr(peers, 'LONGEST_SECONDS', 0.5)
    found = run_peer(Peer(TORCH, 'sleeps.py'), settings)
    assert found.tokens_per_second is None and 'not done' in found.failure


def test_ours_is_measured_before_and_after_each_peer(settings):
    order = []

    class Told(Peer):
        pass

    both = (Peer(TORCH, 'writes.py'), Peer(TORCH, 'breaks.py'))
    timing, outcomes = against_peers(lambda: order.append('ours'), 2, both, settings)
    assert len(timing.later) == 2 * 3 and len(order) == 1 + 2 * 3
    assert [each.tokens_per_second for each in outcomes] == [250.0, None]


def test_no_folder_means_no_peer():
    assert PeerSettings().chosen('W1', 'S') == ()


def test_one_folder_without_the_other_is_refused(tmp_path):
    with pytest.raises(ValueError, match='both folders'):
        PeerSettings(scripts=tmp_path)


def test_only_peers_whose_environment_is_there_are_chosen(settings):
    chosen = settings.chosen('W1', 'S')
    assert [peer.environment for peer in chosen] == [TORCH]
    with pytest.raises(Refusal, match='no peer of W1 on model tiny'):
        settings.chosen('W1', 'tiny')


def test_the_peers_of_a_workload_are_different_programs():
    for known in PEERS.values():
        assert len(set(known)) == len(known) >= 2


def test_a_row_without_a_rate_is_a_peer_that_reached_nothing():
    found = peers.outcome_of(ROW | {'median': None, 'note': 'exit status 1'})
    assert found.tokens_per_second is None and found.failure == 'exit status 1'
    assert json.loads(json.dumps(found)) and os.environ.get('PEER_BENCH_OUT') is None
    assert pathlib.Path(found.name).suffix == ''
