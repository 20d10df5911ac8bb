"""Models on disk: a Hugging Face folder or a GGUF file in, Shape and Params out, and a folder back.

One table names every tensor in the three worlds.  A file that does not fit the table exactly is
refused with the name of every tensor that is missing, left over or of the wrong shape.
"""

import ctypes
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from cacherl_jax.policy import gguf_file, hugging_face
from cacherl_jax.policy.hugging_face import Generation, Tensors
from cacherl_jax.policy.shape import Params, Shape


class Leaf(NamedTuple):
    """One of our arrays and how the files keep it.

    `turned` counts our leading axes that are a matrix's inputs: files keep such a matrix as
    [outputs, inputs], we keep inputs first, and each axis by itself.
    """

    axes: str
    hugging_face: str
    gguf: str
    turned: int = 0
    present: Callable[[Shape], bool] = lambda shape: True


def has_bias(shape: Shape) -> bool:
    return shape.qkv_bias


def has_head_norm(shape: Shape) -> bool:
    return shape.head_norm


def has_head(shape: Shape) -> bool:
    return not shape.tied


LAYER = {
    'attention_norm': Leaf('embed', 'input_layernorm.weight', 'attn_norm.weight'),
    'query': Leaf('embed head head_dim', 'self_attn.q_proj.weight', 'attn_q.weight', 1),
    'key': Leaf('embed kv_head head_dim', 'self_attn.k_proj.weight', 'attn_k.weight', 1),
    'value': Leaf('embed kv_head head_dim', 'self_attn.v_proj.weight', 'attn_v.weight', 1),
    'query_norm': Leaf(
        'head_dim', 'self_attn.q_norm.weight', 'attn_q_norm.weight', present=has_head_norm
    ),
    'key_norm': Leaf(
        'head_dim', 'self_attn.k_norm.weight', 'attn_k_norm.weight', present=has_head_norm
    ),
    'query_bias': Leaf('head head_dim', 'self_attn.q_proj.bias', 'attn_q.bias', present=has_bias),
    'key_bias': Leaf('kv_head head_dim', 'self_attn.k_proj.bias', 'attn_k.bias', present=has_bias),
    'value_bias': Leaf(
        'kv_head head_dim', 'self_attn.v_proj.bias', 'attn_v.bias', present=has_bias
    ),
    'output': Leaf('head head_dim embed', 'self_attn.o_proj.weight', 'attn_output.weight', 2),
    'mlp_norm': Leaf('embed', 'post_attention_layernorm.weight', 'ffn_norm.weight'),
    'gate': Leaf('embed hidden', 'mlp.gate_proj.weight', 'ffn_gate.weight', 1),
    'up': Leaf('embed hidden', 'mlp.up_proj.weight', 'ffn_up.weight', 1),
    'down': Leaf('hidden embed', 'mlp.down_proj.weight', 'ffn_down.weight', 1),
}
WHOLE = {
    'embed': Leaf('vocab embed', 'model.embed_tokens.weight', 'token_embd.weight'),
    'norm': Leaf('embed', 'model.norm.weight', 'output_norm.weight'),
    'head': Leaf('embed vocab', 'lm_head.weight', 'output.weight', 1, present=has_head),
}
BUFFERS = ('rotary_emb.inv_freq', 'masked_bias')  # old folders keep these; they are no weights
KEPT = (
    *('tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'added_tokens.json'),
    *('vocab.json', 'merges.txt', 'tokenizer.model', 'chat_template.jinja', 'chat_template.json'),
    'generation_config.json',
)


class Entry(NamedTuple):
    """One leaf of one Shape: our path and sizes, the files' names and sizes."""

    path: tuple[str | int, ...]
    sizes: tuple[int, ...]
    stored: tuple[int, ...]
    hugging_face: str
    gguf: str
    turned: int

    def ours(self, array: np.ndarray) -> np.ndarray:
        return (array.T if self.turned else array).reshape(self.sizes)

    def theirs(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.stored[::-1]).T if self.turned else array.reshape(self.stored)


def entries(shape: Shape) -> list[Entry]:
    """Every leaf that a policy of this Shape has, in order of depth."""
    numbers = {
        'vocab': shape.vocab,
        'embed': shape.embed,
        'head': shape.heads,
        'kv_head': shape.kv_heads,
        'head_dim': shape.head_dim,
        'hidden': shape.hidden,
    }

    def entry(path, leaf, hugging_face_prefix='', gguf_prefix=''):
        sizes = tuple(numbers[axis] for axis in leaf.axes.split())
        stored = sizes if path == ('embed',) else (math.prod(sizes),)
        if leaf.turned:
            stored = math.prod(sizes[leaf.turned :]), math.prod(sizes[: leaf.turned])
        names = hugging_face_prefix + leaf.hugging_face, gguf_prefix + leaf.gguf
        return Entry(path, sizes, stored, *names, leaf.turned)

    whole = [entry((name,), leaf) for name, leaf in WHOLE.items() if leaf.present(shape)]
    layers = [
        entry(('layers', layer, name), leaf, f'model.layers.{layer}.', f'blk.{layer}.')
        for layer in range(shape.layers)
        for name, leaf in LAYER.items()
        if leaf.present(shape)
    ]
    return layers + whole


def check_names(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """ValueError with the name of everything missing, left over or of the wrong shape."""
    missing = [f'missing {name} {list(expected[name])}' for name in expected if name not in found]
    left_over = [f'left over {name} {list(found[name])}' for name in found if name not in expected]
    wrong = [
        f'wrong shape {name}: needs {list(sizes)}, got {list(found[name])}'
        for name, sizes in expected.items()
        if name in found and tuple(found[name]) != sizes
    ]
    problems = missing + left_over + wrong
    if problems:
        raise ValueError(
            f'{where} does not hold the weights that its configuration describes '
            f'({len(problems)} differ):\n  ' + '\n  '.join(problems)
        )


def assemble(shape: Shape, leaves: Iterable[tuple[tuple[str | int, ...], Any]]) -> Params:
    """The tree of Params from (path, array) pairs."""
    params: Params = {'layers': tuple({} for _ in range(shape.layers))}
    for path, array in leaves:
        place = params
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = array
    return params


def load_policy(
    source: str | os.PathLike,
    dtype: jnp.dtype = jnp.float32,
    place: Callable[[Sequence, np.ndarray], jax.Array] = lambda path, array: jnp.asarray(array),
) -> tuple[Shape, Params, Generation]:
    """The policy in a Hugging Face folder or a .gguf file, its weights as `dtype`.

    `place(path, array)` puts one leaf where it is to live; one is read after the other.
    """
    source = pathlib.Path(source)
    if source.is_file() and source.suffix == '.gguf':
        reader = gguf_file.open_gguf(source)
        shape = gguf_file.shape_of_gguf(reader)
        tensors = gguf_file.read_gguf_tensors(reader, shape)
        generation = gguf_file.read_gguf_generation(reader)
        names = {entry.gguf: entry for entry in entries(shape)}
    else:
        config = hugging_face.read_config(source)
        shape = hugging_face.shape_of(config, str(source))
        tensors = drop_copies(hugging_face.read_tensors(source), shape)
        generation = hugging_face.read_generation(source, config)
        names = {entry.hugging_face: entry for entry in entries(shape)}
    check_names(
        {name: entry.stored for name, entry in names.items()},
        {name: sizes for name, (sizes, _) in tensors.items()},
        str(source),
    )
    leaves = (
        (entry.path, place(entry.path, np.asarray(entry.ours(tensors[name][1]()), dtype)))
        for name, entry in names.items()
    )
    return shape, assemble(shape, leaves), generation


def drop_copies(tensors: Tensors, shape: Shape) -> Tensors:
    """Without buffers, and without a tied head that was saved a second time."""
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(BUFFERS)}
    head, embed = WHOLE['head'].hugging_face, WHOLE['embed'].hugging_face
    if not shape.tied or head not in tensors or embed not in tensors:
        return tensors
    if not np.array_equal(tensors[head][1](), tensors[embed][1]()):
        raise ValueError(
            f'tie_word_embeddings is true but {head} differs from {embed}; '
            'set it to false in config.json if the head is meant to be its own'
        )
    del tensors[head]
    return tensors


def save_policy(
    folder: str | os.PathLike, shape: Shape, params: Params, source: str | os.PathLike
) -> None:
    """Write a Hugging Face folder; tokenizer, chat template and generation facts are the source's.

    `params` are host arrays.  The folder appears whole or not at all: it is written beside its
    place and then exchanged, so a full disk or a kill leaves what was there before.
    """
    folder, source = pathlib.Path(folder).absolute(), pathlib.Path(source)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hugging_face.read_config(folder)  # only a model may be replaced
    found = {name_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    leaves = {'/'.join(map(str, entry.path)): entry for entry in entries(shape)}
    check_names(
        {name: entry.sizes for name, entry in leaves.items()},
        {name: leaf.shape for name, leaf in found.items()},
        'params',
    )
    tensors = {
        entry.hugging_face: np.ascontiguousarray(entry.theirs(found[name]))
        for name, entry in leaves.items()
    }
    beside = folder.with_name(f'.{folder.name}.saving')
    shutil.rmtree(beside, ignore_errors=True)  # left by a save that was killed
    beside.mkdir(parents=True)
    try:
        write_side_files(beside, shape, source, str(tensors[WHOLE['embed'].hugging_face].dtype))
        safetensors.numpy.save_file(
            tensors, beside / 'model.safetensors', metadata={'format': 'pt'}
        )
        settle(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def name_of(path: tuple[Any, ...]) -> str:
    """'layers/3/query' for the path of a leaf."""
    return '/'.join(str(getattr(step, 'key', getattr(step, 'idx', step))) for step in path)


def write_side_files(folder: pathlib.Path, shape: Shape, source: pathlib.Path, dtype: str) -> None:
    """Everything but the weights."""
    if source.suffix == '.gguf' and source.is_file():
        config = hugging_face.config_of(shape)
        generation = gguf_file.read_gguf_generation(gguf_file.open_gguf(source))
        ids = {
            'bos_token_id': generation.start_id,
            'eos_token_id': list(generation.stop_ids),
            'pad_token_id': generation.padding_id,
        }
        (folder / 'generation_config.json').write_text(json.dumps(ids, indent=2))
        gguf_file.read_gguf_tokenizer(source).save_pretrained(folder)
    else:
        config = hugging_face.read_config(source)
        described = hugging_face.shape_of(config, str(source))
        if described != shape:
            raise ValueError(f'shape is not that of {source}: got {shape}, there {described}')
        for name in KEPT:
            if (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
    config.pop('dtype', None)
    (folder / 'config.json').write_text(json.dumps(config | {'torch_dtype': dtype}, indent=2))


def settle(beside: pathlib.Path, folder: pathlib.Path) -> None:
    """Put a finished folder in its place, in one step that a kill cannot halve."""
    for file in beside.iterdir():
        with file.open('rb') as opened:
            os.fsync(opened.fileno())
    if not folder.exists():
        os.rename(beside, folder)
        return
    at_working_directory, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
    swap = getattr(ctypes.CDLL(None), 'renameat2', None)
    places = os.fsencode(beside), os.fsencode(folder)
    if (
        swap
        and swap(at_working_directory, places[0], at_working_directory, places[1], exchange) == 0
    ):
        return
    # Not on Linux, or a file system without it: two steps, the old folder kept aside in between.
    previous = folder.with_name(f'.{folder.name}.previous')
    os.rename(folder, previous)
    os.rename(beside, folder)
    shutil.rmtree(previous)
