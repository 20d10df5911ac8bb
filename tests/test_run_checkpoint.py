"""Checkpoints: what is saved comes back bit for bit, and the latest is always whole."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct

from cacherl_jax.run.checkpoint import make_checkpoints
from cacherl_jax.run.refusal import Refusal

SETTINGS = {'seed': 3, 'policy': {'layers': 2}}


@struct.dataclass
class Learner:
    params: dict
    optimiser: optax.OptState
    rows: np.ndarray
    count: np.int32


def learner(seed):
    key = jax.random.key(seed)
    params = {
        'embed': jax.random.normal(key, (7, 3)),
        'layers': [jax.random.normal(key, (16,), jnp.bfloat16), jnp.arange(3, dtype=jnp.int8)],
    }
    rows = np.random.default_rng(seed).integers(0, 9, (3, 7))
    return Learner(params, optax.adamw(1e-3).init(params), rows, np.int32(seed))


def assert_same(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_what_is_saved_comes_back_bit_for_bit(tmp_path):
    make_checkpoints(tmp_path, SETTINGS).save(7, learner(1), {'cursor': [3, 16], 'word': 'é'})
    step, tree, records = make_checkpoints(tmp_path, SETTINGS).restore(learner(2))
    assert_same(tree, learner(1))
    assert (step, records) == (7, {'cursor': [3, 16], 'word': 'é'})


@pytest.mark.parametrize('tree', [{}, {'x': np.zeros((0, 3))}, {'x': np.zeros(0), 'y': np.ones(7)}])
def test_nothing_in_an_array_is_kept_as_nothing(tmp_path, tree):
    checkpoints = make_checkpoints(tmp_path, SETTINGS)
    checkpoints.save(3, tree, {})
    assert_same(checkpoints.restore(tree).tree, tree)


def test_nothing_saved_restores_nothing(tmp_path):
    checkpoints = make_checkpoints(tmp_path, SETTINGS)
    assert checkpoints.latest() is None and checkpoints.restore(learner(1)) is None


def test_the_newest_stay(tmp_path):
    checkpoints = make_checkpoints(tmp_path, SETTINGS, keep=2)
    for step in (3, 7, 16):
        checkpoints.save(step, learner(step), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ['step-00000007', 'step-00000016']
    assert_same(checkpoints.restore(learner(0)).tree, learner(16))


def test_a_half_written_checkpoint_is_never_the_latest(tmp_path):
    make_checkpoints(tmp_path, SETTINGS).save(3, learner(3), {})
    half = tmp_path / '.unfinished-step-00000007'
    half.mkdir()
    (tmp_path / 'step-notes.txt').touch()
    checkpoints = make_checkpoints(tmp_path, SETTINGS)
    assert checkpoints.latest() == 3 and not half.exists()


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = make_checkpoints(tmp_path, SETTINGS)
    checkpoints.save(3, learner(3), {})
    checkpoints.save(3, learner(7), {'again': True})
    assert_same(checkpoints.restore(learner(0)).tree, learner(7))


def test_other_settings_are_refused_with_both_values(tmp_path):
    make_checkpoints(tmp_path, SETTINGS).save(3, learner(3), {})
    with pytest.raises(Refusal, match='policy.layers: now 16, in the checkpoint 2'):
        make_checkpoints(tmp_path, {'seed': 3, 'policy': {'layers': 16}})


def test_other_content_is_refused_with_the_names_of_its_files(tmp_path):
    began = {'files a.jsonl': '1', 'files b.jsonl': '2', 'list c.jsonl': '3'}
    make_checkpoints(tmp_path, SETTINGS, contents=began).save(3, learner(3), {})
    assert make_checkpoints(tmp_path, SETTINGS, contents=began).latest() == 3
    now = began | {'files b.jsonl': '4', 'list c.jsonl': ''}
    with pytest.raises(Refusal) as refused:
        make_checkpoints(tmp_path, SETTINGS, contents=now)
    said = str(refused.value)
    assert 'files b.jsonl: its content is another' in said and 'a.jsonl' not in said
    assert 'list c.jsonl: it is not there any more' in said
    assert 'What to do: put their former content back, or give another run folder' in said


def test_a_checkpoint_of_before_contents_were_kept_goes_on_and_is_held_to_them_from_then(
    tmp_path, capsys
):
    make_checkpoints(tmp_path, SETTINGS).save(3, learner(3), {})
    about = tmp_path / 'step-00000003' / 'about.json'
    old = {name: x for name, x in json.loads(about.read_text()).items() if name != 'contents'}
    about.write_text(json.dumps(old))
    assert make_checkpoints(tmp_path, SETTINGS).latest() == 3 and not capsys.readouterr().err
    checkpoints = make_checkpoints(tmp_path, SETTINGS, contents={'files a.jsonl': '1'})
    assert_same(checkpoints.restore(learner(0)).tree, learner(3))
    assert 'taken to be what they were: files a.jsonl' in capsys.readouterr().err
    checkpoints.save(7, learner(7), {})
    with pytest.raises(Refusal, match='a.jsonl: its content is another'):
        make_checkpoints(tmp_path, SETTINGS, contents={'files a.jsonl': '2'})


def test_a_file_that_only_a_later_version_looks_at_refuses_nothing(tmp_path):
    make_checkpoints(tmp_path, SETTINGS, contents={'a': '1'}).save(3, learner(3), {})
    assert make_checkpoints(tmp_path, SETTINGS, contents={'a': '1', 'b': '2'}).latest() == 3


def test_arrays_of_another_shape_are_refused_by_name(tmp_path):
    checkpoints = make_checkpoints(tmp_path, SETTINGS)
    checkpoints.save(3, {'embed': jnp.zeros((3, 7))}, {})
    with pytest.raises(Refusal, match=r'embed: now \[\[7, 3\]'):
        checkpoints.restore({'embed': jnp.zeros((7, 3))})


def test_a_random_key_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match='key must be an array of numbers'):
        make_checkpoints(tmp_path, SETTINGS).save(3, {'key': jax.random.key(0)}, {})


FULL_DISK = """
import resource, sys
import jax.numpy as jnp
from cacherl_jax.run.checkpoint import make_checkpoints
from cacherl_jax.run.refusal import refusing
with refusing():
    checkpoints = make_checkpoints(sys.argv[1], {})
    checkpoints.save(3, {'x': jnp.arange(7)}, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    noise = jnp.sin(jnp.arange(300000.) ** 2)
    checkpoints.save(7, {'x': noise}, {})
"""


def test_a_failed_save_leaves_the_former_one_and_one_message(tmp_path):
    ran = subprocess.run(
        [sys.executable, '-c', FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {'PYTHONPATH': str(pathlib.Path(__file__).parents[1])},
    )
    assert ran.returncode == 2, ran.stderr
    assert 'step 3 is untouched' in ran.stderr and 'Traceback' not in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ['step-00000003']


def test_too_little_room_is_noticed_before_writing(tmp_path, monkeypatch):
    checkpoints = make_checkpoints(tmp_path, SETTINGS)
    checkpoints.save(3, learner(3), {})
    monkeypatch.setattr('cacherl_jax.run.checkpoint.RESERVE_BYTES', 2**62)
    with pytest.raises(Refusal, match='MiB are free; step 3 is untouched'):
        checkpoints.save(7, learner(7), {})
    assert checkpoints.latest() == 3
