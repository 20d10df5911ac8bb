"""Weights on disk: what is read is what was written, and what does not fit is refused by name."""

import dataclasses
import json
import resource

import gguf
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from cacherl_jax.chat.tokenizer import load_tokenizer, locate_smollm2
from cacherl_jax.policy.hugging_face import FAMILIES, config_of, shape_of
from cacherl_jax.policy.shape import RopeScaling, Shape
from cacherl_jax.policy.transformer import causal, forward, init_params, logits_of
from cacherl_jax.policy.weights import entries, load_policy, save_policy

LLAMA3 = RopeScaling(
    factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context_tokens=64
)
SHAPES = {'qwen3': Shape(layers=3, embed=16, heads=4, kv_heads=2, head_dim=6, hidden=24, vocab=37)}
for name, changes in {
    'qwen2': {'head_norm': False, 'qkv_bias': True, 'head_dim': 4, 'tied': False},
    'llama': {'head_norm': False, 'head_dim': 4, 'rope_theta': 1e4},
    'llama3': {'head_norm': False, 'head_dim': 4, 'tied': False, 'rope_scaling': LLAMA3},
}.items():
    SHAPES[name] = Shape(**vars(SHAPES['qwen3']) | changes)
each_family = pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)


def write_folder(folder, shape, dtype=np.float32):
    """A folder of random weights, written by the names alone."""
    random = np.random.default_rng(7)
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps(config_of(shape) | {'eos_token_id': [2, 3]}))
    tensors = {
        entry.hugging_face: (0.3 * random.standard_normal(entry.stored)).astype(dtype)
        for entry in entries(shape)
    }
    safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
    return tensors


def rewrite(folder, **changes):
    """Change tensors of a folder, a dot in their name being two underscores; None removes one."""
    tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
    tensors |= {name.replace('__', '.'): tensor for name, tensor in changes.items()}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    safetensors.numpy.save_file(kept, folder / 'model.safetensors')


def logits(folder_or_file, tokens):
    shape, params, _ = load_policy(folder_or_file)
    position = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _ = forward(params, shape, tokens, position, causal(), (None,) * shape.layers)
    return np.asarray(logits_of(params, shape, hidden))


@each_family
@pytest.mark.parametrize('dtype', [np.float32, ml_dtypes.bfloat16, np.float16])
def test_a_folder_comes_back_bit_equal(tmp_path, shape, dtype):
    written = write_folder(tmp_path / 'a', shape, dtype)
    read, params, generation = load_policy(tmp_path / 'a', dtype)
    save_policy(tmp_path / 'b', read, params, tmp_path / 'a')
    again = safetensors.numpy.load_file(tmp_path / 'b' / 'model.safetensors')
    assert read == shape and generation.stop_ids == (2, 3)
    assert again.keys() == written.keys()
    assert all(again[name].tobytes() == written[name].tobytes() for name in written)
    assert load_policy(tmp_path / 'b')[0] == shape


@each_family
def test_a_loaded_policy_has_the_layout_of_a_new_one(tmp_path, shape):
    write_folder(tmp_path / 'a', shape)
    _, params, _ = load_policy(tmp_path / 'a', jnp.bfloat16)
    new = jax.eval_shape(lambda: init_params(shape, jax.random.key(0), jnp.bfloat16))
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    assert like == new


def test_shards_equal_one_file(tmp_path):
    shape = SHAPES['qwen3']
    tensors = write_folder(tmp_path / 'a', shape)
    whole = load_policy(tmp_path / 'a')[1]
    place = {name: f'part-{number % 3}.safetensors' for number, name in enumerate(tensors)}
    for part in set(place.values()):
        held = {name: tensors[name] for name in tensors if place[name] == part}
        safetensors.numpy.save_file(held, tmp_path / 'a' / part)
    (tmp_path / 'a' / 'model.safetensors').unlink()
    index = tmp_path / 'a' / 'model.safetensors.index.json'
    index.write_text(json.dumps({'weight_map': place}))
    assert jax.tree.all(jax.tree.map(np.array_equal, load_policy(tmp_path / 'a')[1], whole))
    (tmp_path / 'a' / 'part-1.safetensors').unlink()
    with pytest.raises(ValueError, match='lacks the weights part-1'):
        load_policy(tmp_path / 'a')


def test_every_tensor_that_does_not_fit_is_named(tmp_path):
    write_folder(tmp_path / 'a', SHAPES['qwen3'])
    rewrite(tmp_path / 'a', model__norm__weight=None, model__extra=np.ones(3))
    rewrite(tmp_path / 'a', model__embed_tokens__weight=np.ones((36, 16), np.float32))
    with pytest.raises(ValueError, match='3 differ') as refused:
        load_policy(tmp_path / 'a')
    assert 'missing model.norm.weight [16]' in str(refused.value)
    assert 'left over model.extra [3]' in str(refused.value)
    assert 'wrong shape model.embed_tokens.weight: needs [37, 16], got [36, 16]' in str(
        refused.value
    )


def test_a_tied_head_saved_twice_is_accepted_and_a_different_one_is_not(tmp_path):
    embed = write_folder(tmp_path / 'a', SHAPES['llama'])['model.embed_tokens.weight']
    rewrite(tmp_path / 'a', lm_head__weight=embed)
    assert 'head' not in load_policy(tmp_path / 'a')[1]
    rewrite(tmp_path / 'a', lm_head__weight=embed + 1)
    with pytest.raises(ValueError, match='tie_word_embeddings'):
        load_policy(tmp_path / 'a')


@pytest.mark.parametrize(
    'field, value, said',
    [
        ('model_type', 'mamba', "'mamba' is not supported; supported are ['llama', "),
        ('attention_bias', True, 'attention_bias must be False, got True'),
        ('rope_scaling', {'rope_type': 'yarn'}, "rope type 'yarn'"),
        ('quantization_config', {'bits': 4}, 'quantization_config'),
        ('hidden_size', None, 'lacks hidden_size'),
    ],
)
def test_a_model_that_cannot_run_is_refused_with_the_reason(tmp_path, field, value, said):
    write_folder(tmp_path / 'a', SHAPES['qwen3'])
    config = json.loads((tmp_path / 'a' / 'config.json').read_text())
    (tmp_path / 'a' / 'config.json').write_text(json.dumps(config | {field: value}))
    with pytest.raises(ValueError) as refused:
        load_policy(tmp_path / 'a')
    assert said in str(refused.value) and str(tmp_path) in str(refused.value)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match='it is not there; give a Hugging Face folder'):
        load_policy(tmp_path / 'none')
    with pytest.raises(ValueError, match='has no config.json'):
        load_policy(tmp_path)
    (tmp_path / 'a.gguf').write_bytes(b'no model')
    with pytest.raises(ValueError, match='no readable GGUF'):
        load_policy(tmp_path / 'a.gguf')
    with pytest.raises(ValueError, match='no tokenizer at'):
        load_tokenizer(tmp_path)


def test_a_damaged_file_is_refused(tmp_path):
    write_folder(tmp_path / 'a', SHAPES['qwen3'])
    file = tmp_path / 'a' / 'model.safetensors'
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match='model.safetensors is damaged'):
        load_policy(tmp_path / 'a')


def test_parameters_that_are_not_the_shape_s_are_not_saved(tmp_path):
    write_folder(tmp_path / 'a', SHAPES['qwen3'])
    shape, params, _ = load_policy(tmp_path / 'a')
    params['layers'][1]['adapter'] = params['layers'][1].pop('gate')
    with pytest.raises(ValueError, match='missing layers/1/gate') as refused:
        save_policy(tmp_path / 'b', shape, params, tmp_path / 'a')
    assert 'left over layers/1/adapter' in str(refused.value)
    assert not (tmp_path / 'b').exists()


def test_a_full_disk_leaves_what_was_there(tmp_path):
    before = write_folder(tmp_path / 'a', SHAPES['qwen3'])
    shape, params, _ = load_policy(tmp_path / 'a')
    changed = jax.tree.map(lambda leaf: leaf + 1, params)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(Exception, match='[Ff]ile too large'):
            save_policy(tmp_path / 'a', shape, changed, tmp_path / 'a')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kept = safetensors.numpy.load_file(tmp_path / 'a' / 'model.safetensors')
    assert all(np.array_equal(kept[name], before[name]) for name in before)
    assert [place.name for place in tmp_path.iterdir()] == ['a']


def test_a_save_replaces_a_model_and_nothing_else(tmp_path):
    write_folder(tmp_path / 'a', SHAPES['llama'])
    shape, params, _ = load_policy(tmp_path / 'a')
    (tmp_path / '.a.saving').mkdir()  # left by a save that was killed
    save_policy(tmp_path / 'a', shape, jax.tree.map(lambda leaf: leaf + 1, params), tmp_path / 'a')
    assert np.array_equal(load_policy(tmp_path / 'a')[1]['norm'], params['norm'] + 1)
    assert [place.name for place in tmp_path.iterdir()] == ['a']
    with pytest.raises(ValueError, match='has no config.json'):
        save_policy(tmp_path, shape, params, tmp_path / 'a')


def write_gguf(file, shape, tensors, kind):
    """The same weights as a GGUF file, query and key rows permuted as its converter does."""
    family = 'llama' if not shape.head_norm and not shape.qkv_bias else 'qwen2'
    writer = gguf.GGUFWriter(file, family)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.embed)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_context_length(shape.context_tokens)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_eos_token_id(2)
    for entry in entries(shape):
        array = tensors[entry.hugging_face]
        heads = {'query': shape.heads, 'key': shape.kv_heads}.get(entry.path[-1])
        if family == 'llama' and heads:
            rows = array.reshape(heads, 2, -1, array.shape[1])
            array = rows.swapaxes(1, 2).reshape(array.shape)
        as_kind = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(entry.gguf, gguf.quants.quantize(array, as_kind), raw_dtype=as_kind)
    if shape.rope_scaling:
        low, high = (
            shape.rope_scaling.low_frequency_factor,
            shape.rope_scaling.high_frequency_factor,
        )
        turns = 8192 / (2 * np.pi * shape.rope_theta ** (np.arange(8) / 8))
        ramp = np.clip((turns - low) / (high - low), 0, 1)
        factors = 1 / ((1 - ramp) / shape.rope_scaling.factor + ramp)
        writer.add_tensor('rope_freqs.weight', factors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize('family', ['qwen2', 'llama', 'llama3'])
@pytest.mark.parametrize('kind, off', [('F32', 0), ('F16', 1e-3), ('Q8_0', 0.01), ('Q4_1', 0.1)])
def test_a_gguf_file_equals_the_folder_it_was_made_from(tmp_path, family, kind, off):
    sizes = {'embed': 64, 'head_dim': 16, 'hidden': 96}
    if family == 'llama3':  # the file does not say it, so it must be Llama 3's own
        sizes['rope_scaling'] = dataclasses.replace(LLAMA3, original_context_tokens=8192)
    shape = Shape(**vars(SHAPES[family]) | sizes)
    tensors = write_folder(tmp_path / 'a', shape)
    write_gguf(tmp_path / 'a.gguf', shape, tensors, gguf.GGMLQuantizationType[kind])
    read, params, generation = load_policy(tmp_path / 'a.gguf')
    assert (read, generation.stop_ids) == (shape, (2,))
    for one, other in zip(
        jax.tree.leaves(params), jax.tree.leaves(load_policy(tmp_path / 'a')[1]), strict=True
    ):
        assert np.abs(one - other).max() <= off


@each_family
def test_logits_are_those_of_transformers(tmp_path, shape):
    torch = pytest.importorskip('torch', reason='torch==2.13.0 is the oracle')
    transformers = pytest.importorskip('transformers')
    family = config_of(shape)['model_type']
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(**config_of(shape) | {'initializer_range': 0.2})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        if name.endswith('bias'):
            torch.nn.init.normal_(weight)  # they start at zero, which would hide them
    model.save_pretrained(tmp_path / 'theirs')
    read, params, _ = load_policy(tmp_path / 'theirs')
    assert read == shape and family in FAMILIES
    save_policy(tmp_path / 'ours', read, params, tmp_path / 'theirs')
    tokens = np.random.default_rng(0).integers(0, 37, (2, 16))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'ours').eval()
    with torch.no_grad():
        expected, exported = (each(torch.tensor(tokens)).logits.numpy() for each in (model, again))
    np.testing.assert_array_equal(exported, expected)
    np.testing.assert_allclose(logits(tmp_path / 'theirs', tokens), expected, atol=2e-4)


def test_the_fields_of_a_config_survive_a_round_trip():
    for shape in SHAPES.values():
        assert shape_of(config_of(shape), 'here') == shape


@pytest.fixture(scope='module')
def smollm2():
    try:
        return locate_smollm2()
    except ModuleNotFoundError as absent:
        pytest.skip(str(absent))


TEXT = "<|im_start|>user\nCall f(x=123, 'é')!  日本\n\n\tI'd <|im_end|>"


def test_the_tokenizer_of_a_gguf_file_reads_back_what_it_wrote(smollm2):
    tokenizer = load_tokenizer(smollm2)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT and ids[0] == 1 and ids[-1] == 2
    assert tokenizer.eos_token_id == 2 and 'im_start' in tokenizer.chat_template


@pytest.mark.slow
def test_the_tokenizer_of_a_gguf_file_is_the_one_of_transformers(smollm2):
    pytest.importorskip('torch', reason='transformers reads GGUF with torch only')
    transformers = pytest.importorskip('transformers')
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    assert theirs.encode(TEXT) == load_tokenizer(smollm2).encode(TEXT)


@pytest.mark.slow
def test_smollm2_gives_the_logits_of_transformers_and_is_exported(smollm2, tmp_path):
    torch = pytest.importorskip('torch', reason='torch==2.13.0 is the oracle')
    transformers = pytest.importorskip('transformers')
    shape, params, _ = load_policy(smollm2)
    save_policy(tmp_path / 'exported', shape, params, smollm2)
    tokenizer = load_tokenizer(tmp_path / 'exported')
    assert tokenizer.chat_template == load_tokenizer(smollm2).chat_template
    tokens = np.array([tokenizer.encode('The capital of France is Paris. 1 + 1 = 2, they say.')])
    ours = logits(smollm2, tokens)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'exported').eval()
    with torch.no_grad():
        np.testing.assert_allclose(ours, model(torch.tensor(tokens)).logits.numpy(), atol=1e-3)
    del model
    pytest.importorskip('accelerate', reason='transformers reads GGUF weights with it only')
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32
    )
    with torch.no_grad():
        np.testing.assert_allclose(
            ours, model.eval()(torch.tensor(tokens)).logits.numpy(), atol=1e-3
        )
