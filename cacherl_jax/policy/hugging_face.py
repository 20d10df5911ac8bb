"""A Hugging Face folder, read: config.json to Shape, safetensors to named arrays.

A tensor is handed on as `(sizes, read)`: its sizes are known before any of it is read, so that a
folder that does not fit is refused in a moment, however large it is.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors

from cacherl_jax.policy.shape import RopeScaling, Shape

Tensors = dict[str, tuple[tuple[int, ...], Callable[[], np.ndarray]]]

FAMILIES = {
    'qwen3': {'head_norm': True, 'qkv_bias': False},
    'qwen2': {'head_norm': False, 'qkv_bias': True},
    'llama': {'head_norm': False, 'qkv_bias': False},
}
ARCHITECTURES = {
    'qwen3': 'Qwen3ForCausalLM',
    'qwen2': 'Qwen2ForCausalLM',
    'llama': 'LlamaForCausalLM',
}
# What the forward pass does not do, by the config field that would ask for it.
ONLY = {
    'attention_bias': (False,),
    'mlp_bias': (False,),
    'use_sliding_window': (False,),
    'hidden_act': ('silu',),
    'partial_rotary_factor': (1.0,),
    'quantization_config': (None,),
}
NEEDED = (
    'hidden_size',
    'num_hidden_layers',
    'num_attention_heads',
    'intermediate_size',
    'vocab_size',
)
FLOATS = ('F64', 'F32', 'F16', 'BF16')


class Generation(NamedTuple):
    """What a model's files say about generating with it."""

    stop_ids: tuple[int, ...]  # any of these ends a message
    start_id: int | None  # the beginning of a text, where the model has one
    padding_id: int | None


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The JSON object in a file; ValueError naming the file where there is none."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as broken:
        raise ValueError(f'{path} cannot be read as JSON: {broken}') from broken
    if not isinstance(content, dict):
        raise ValueError(f'{path} must hold a JSON object, got {type(content).__name__}')
    return content


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """config.json of a model folder."""
    if not (folder / 'config.json').is_file():
        what = 'has no config.json' if folder.is_dir() else 'is not there'
        raise ValueError(
            f'no model at {folder}: it {what}; '
            'give a Hugging Face folder (config.json, *.safetensors, tokenizer) or a .gguf file'
        )
    return read_json(folder / 'config.json')


def read_rope(rope: Mapping[str, Any], where: str) -> RopeScaling | None:
    """Scaling of the rotary positions: none, or Llama-3's."""
    kind = rope.get('rope_type', rope.get('type', 'default'))
    if kind in ('default', None):
        return None
    if kind != 'llama3':
        raise ValueError(f'{where}: rope type {kind!r} is not supported; use default or llama3')
    return RopeScaling(
        factor=float(rope['factor']),
        low_frequency_factor=float(rope['low_freq_factor']),
        high_frequency_factor=float(rope['high_freq_factor']),
        original_context_tokens=int(rope['original_max_position_embeddings']),
    )


def shape_of(config: Mapping[str, Any], where: str) -> Shape:
    """The Shape a config.json describes; ValueError for what we cannot run."""
    family = config.get('model_type')
    if family not in FAMILIES:
        raise ValueError(
            f'{where}: model_type {family!r} is not supported; supported are {sorted(FAMILIES)}'
        )
    for field, allowed in ONLY.items():
        if config.get(field, allowed[0]) not in (*allowed, None):
            raise ValueError(f'{where}: {field} must be {allowed[0]!r}, got {config[field]!r}')
    absent = [field for field in NEEDED if config.get(field) is None]
    if absent:
        raise ValueError(f'{where}: config.json lacks {", ".join(absent)}')
    heads, embed = config['num_attention_heads'], config['hidden_size']
    rope = config.get('rope_parameters') or config.get('rope_scaling') or {}
    return Shape(
        layers=config['num_hidden_layers'],
        embed=embed,
        heads=heads,
        kv_heads=config.get('num_key_value_heads') or heads,
        head_dim=config.get('head_dim') or (128 if family == 'qwen3' else embed // heads),
        hidden=config['intermediate_size'],
        vocab=config['vocab_size'],
        rope_theta=float(rope.get('rope_theta') or config.get('rope_theta') or 1e4),
        rope_scaling=read_rope(rope, where),
        norm_epsilon=config.get('rms_norm_eps', 1e-6),
        tied=config.get('tie_word_embeddings', False),
        context_tokens=config.get('max_position_embeddings', 4096),
        **FAMILIES[family],
    )


def config_of(shape: Shape) -> dict[str, Any]:
    """A config.json for a Shape, in the field names that old and new readers both know."""
    switches = {'head_norm': shape.head_norm, 'qkv_bias': shape.qkv_bias}
    family = next((name for name, has in FAMILIES.items() if has == switches), None)
    if family is None:
        raise ValueError(f'no Hugging Face family has {switches}; families are {FAMILIES}')
    scaling = shape.rope_scaling
    return {
        'architectures': [ARCHITECTURES[family]],
        'model_type': family,
        'hidden_size': shape.embed,
        'num_hidden_layers': shape.layers,
        'num_attention_heads': shape.heads,
        'num_key_value_heads': shape.kv_heads,
        'head_dim': shape.head_dim,
        'intermediate_size': shape.hidden,
        'vocab_size': shape.vocab,
        'hidden_act': 'silu',
        'rms_norm_eps': shape.norm_epsilon,
        'tie_word_embeddings': shape.tied,
        'max_position_embeddings': shape.context_tokens,
        'rope_theta': shape.rope_theta,
        'rope_scaling': scaling
        and {
            'rope_type': 'llama3',
            'factor': scaling.factor,
            'low_freq_factor': scaling.low_frequency_factor,
            'high_freq_factor': scaling.high_frequency_factor,
            'original_max_position_embeddings': scaling.original_context_tokens,
        },
    }


def read_generation(folder: pathlib.Path, config: Mapping[str, Any]) -> Generation:
    """Stop, start and padding ids; generation_config.json has the word where it is present."""
    file = folder / 'generation_config.json'
    merged = dict(config) | (read_json(file) if file.is_file() else {})
    stop = merged.get('eos_token_id')
    stop_ids = tuple(stop) if isinstance(stop, list) else () if stop is None else (stop,)
    start = merged.get('bos_token_id')
    return Generation(stop_ids, start, merged.get('pad_token_id'))


def read_tensors(folder: pathlib.Path) -> Tensors:
    """Every tensor of the folder, from one safetensors file or from the shards of an index."""
    index = folder / 'model.safetensors.index.json'
    if index.is_file():
        names = sorted(set(read_json(index)['weight_map'].values()))
    else:
        names = ['model.safetensors']
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise ValueError(
            f'{folder} lacks the weights {", ".join(absent)}; '
            'other formats (pytorch_model.bin) must be saved as safetensors first'
        )
    return {name: tensor for file in names for name, tensor in read_file(folder / file).items()}


def read_file(path: pathlib.Path) -> Tensors:
    """The tensors of one safetensors file."""
    try:
        opened = safetensors.safe_open(path, 'numpy')
    except safetensors.SafetensorError as broken:
        raise ValueError(f'{path} is damaged: {broken}; copy or download it again') from broken
    tensors = {}
    for name in opened.keys():  # noqa: SIM118 (safe_open is no mapping)
        view = opened.get_slice(name)
        if view.get_dtype() not in FLOATS:
            raise ValueError(
                f'{path}: {name} is {view.get_dtype()}; weights must be one of {FLOATS}'
            )
        tensors[name] = tuple(view.get_shape()), lambda name=name: opened.get_tensor(name)
    return tensors
