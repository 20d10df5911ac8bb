"""A run goes on with the files that it began with: their content, whatever their paths say."""

import dataclasses

import pytest

from cacherl_jax.compose.agent import BASE, lasting
from cacherl_jax.compose.contents import contents, file_hash, named_files
from cacherl_jax.compose.run import Run
from cacherl_jax.config import PRESETS
from cacherl_jax.mesh import MeshSettings
from cacherl_jax.run.checkpoint import make_checkpoints
from cacherl_jax.run.refusal import Refusal
from experiments.ablations.definition import with_fields

NAMING = {
    'supervised.files': lambda file: (file.with_name('other.jsonl'), file),
    'supervised.thinking': str,
    'chat_template': str,
    'evaluation.file': str,
}


@pytest.fixture
def file(tmp_path):
    for name in ('named.jsonl', 'other.jsonl'):
        (tmp_path / name).write_text('what it held\n')
    return tmp_path / 'named.jsonl'


def naming(setting, file):
    """Settings that name the file there, for a run beside it."""
    changes = {setting: NAMING[setting](file), 'run_dir': file.parent / 'run'}
    return with_fields(PRESETS['small'], changes)


def saved(config):
    """The checkpoint of a run with these settings, with nothing in it."""
    folder = config.run_dir / 'checkpoints'
    make_checkpoints(folder, lasting(config), contents=contents(config)).save(0, {}, {})


@pytest.mark.parametrize('setting', NAMING)
def test_a_run_whose_file_has_other_content_is_refused_before_anything_is_read(setting, file):
    config = naming(setting, file)
    saved(config)
    file.write_text('what it holds now\n')
    with pytest.raises(Refusal) as refused:
        Run(config, None, lambda: False)
    said = str(refused.value)
    assert f'{setting} {file}: its content is another' in said and 'other.jsonl' not in said
    assert 'What to do: put their former content back' in said


@pytest.mark.parametrize('setting', NAMING)
def test_a_file_that_is_gone_is_named(setting, file):
    config = naming(setting, file)
    saved(config)
    file.unlink()
    with pytest.raises(Refusal, match='it is not there any more'):
        Run(config, None, lambda: False)


def test_a_run_may_go_on_with_another_mesh_and_with_no_other_seed(tmp_path):
    config = dataclasses.replace(PRESETS['small'], run_dir=tmp_path)
    saved(config)
    make_checkpoints(
        tmp_path / 'checkpoints', lasting(dataclasses.replace(config, mesh=MeshSettings(data=8)))
    )
    with pytest.raises(Refusal, match='seed'):
        make_checkpoints(tmp_path / 'checkpoints', lasting(dataclasses.replace(config, seed=9)))


@pytest.mark.parametrize('setting', NAMING)
def test_equal_content_goes_on_whenever_it_was_written(setting, file):
    before = contents(naming(setting, file))
    file.write_text(file.read_text())
    assert contents(naming(setting, file)) == before and all(before.values())


@pytest.mark.parametrize('preset', list(PRESETS))
def test_presets_name_no_file_but_the_template_that_ships(preset):
    assert set(named_files(PRESETS[preset]).values()) <= {BASE / 'chat_template.jinja'}


def test_a_hash_is_of_bytes_and_of_no_file_is_empty(file):
    assert file_hash(file) == file_hash(str(file.with_name('other.jsonl'))) != ''
    assert file_hash(file.with_name('none.jsonl')) == ''
