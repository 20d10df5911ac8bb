"""A GGUF file, read: metadata to Shape and tokenizer, blocks to named f32 arrays.

Quantised tensors (Q4_0, Q4_1, Q8_0, the K-quants, ...) come out as the f32 numbers they stand for.
Files of the Llama type keep the rows of query and key permuted for another way of rotating pairs;
here they come out in the order of the original model.
"""

import functools
import pathlib
from typing import Any

import gguf
import numpy as np
import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

from cacherl_jax.policy.hugging_face import FAMILIES, Generation, Tensors
from cacherl_jax.policy.shape import RopeScaling, Shape

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # kinds of token in tokenizer.ggml.token_type
LLAMA3_SCALING = {  # not in the metadata: the file has the factors of the frequencies instead
    'low_frequency_factor': 1.0,
    'high_frequency_factor': 4.0,
    'original_context_tokens': 8192,
}


def open_gguf(path: pathlib.Path) -> gguf.GGUFReader:
    """The file, mapped; ValueError where it is none."""
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as broken:
        raise ValueError(f'{path} is no readable GGUF file: {broken}') from broken


def read_field(reader: gguf.GGUFReader, name: str, default: Any = ...) -> Any:
    """One metadata field; without a default it must be there."""
    field = reader.get_field(name)
    if field is not None:
        return field.contents()
    if default is ...:
        raise ValueError(f'the GGUF file lacks the field {name}')
    return default


def shape_of_gguf(reader: gguf.GGUFReader) -> Shape:
    """The Shape the metadata and the tensors describe; ValueError for what we cannot run."""
    family = read_field(reader, 'general.architecture')
    if family not in FAMILIES:
        raise ValueError(
            f'GGUF architecture {family!r} is not supported; supported are {sorted(FAMILIES)}'
        )

    def read(name, *default):
        return read_field(reader, f'{family}.{name}', *default)

    if read('rope.scaling.type', 'none') != 'none':
        raise ValueError(f'GGUF rope scaling {read("rope.scaling.type")!r} is not supported')
    sizes = {tensor.name: tuple(int(n) for n in tensor.shape[::-1]) for tensor in reader.tensors}
    heads, embed = read('attention.head_count'), read('embedding_length')
    theta = float(read('rope.freq_base', 1e4))
    head_dim = read('attention.key_length', embed // heads)
    return Shape(
        layers=read('block_count'),
        embed=embed,
        heads=heads,
        kv_heads=read('attention.head_count_kv', heads),
        head_dim=head_dim,
        hidden=read('feed_forward_length'),
        vocab=sizes.get('token_embd.weight', (0,))[0],
        rope_theta=theta,
        rope_scaling=read_scaling(reader, theta, head_dim),
        # Written as f32: 1e-5 comes back as 9.999999747e-06; say the number that was meant.
        norm_epsilon=float(str(np.float32(read('attention.layer_norm_rms_epsilon')))),
        tied='output.weight' not in sizes,
        context_tokens=read('context_length'),
        **FAMILIES[family],
    )


def read_scaling(reader: gguf.GGUFReader, theta: float, head_dim: int) -> RopeScaling | None:
    """Llama-3's scaling, recognised by the frequency factors that the file carries."""
    stored = {tensor.name: tensor for tensor in reader.tensors}.get('rope_freqs.weight')
    if stored is None:
        return None
    factors = np.asarray(stored.data, np.float32)
    scaling = RopeScaling(factor=float(factors.max()), **LLAMA3_SCALING)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    wavelength = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = (scaling.original_context_tokens / wavelength - low) / (high - low)
    smooth = np.clip(smooth, 0, 1)
    expected = 1 / ((1 - smooth) / scaling.factor + smooth)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-3):
        raise ValueError('rope_freqs.weight of the GGUF file is not Llama-3 scaling; not supported')
    return scaling


def read_gguf_tensors(reader: gguf.GGUFReader, shape: Shape) -> Tensors:
    """Every tensor by its GGUF name; `rope_freqs` went into the Shape."""
    permuted = {}
    if read_field(reader, 'general.architecture') == 'llama':
        permuted = {'attn_q.weight': shape.heads, 'attn_k.weight': shape.kv_heads}
    tensors = {}
    for tensor in reader.tensors:
        sizes = tuple(int(size) for size in tensor.shape[::-1])
        heads = permuted.get(tensor.name.split('.', 2)[-1])
        tensors[tensor.name] = sizes, functools.partial(dequantise, tensor, sizes, heads)
    tensors.pop('rope_freqs.weight', None)
    return tensors


def dequantise(tensor: gguf.ReaderTensor, sizes: tuple[int, ...], heads: int | None) -> np.ndarray:
    """The numbers of one tensor as f32; rows in the original order where `heads` says how many."""
    try:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as unknown:
        kind = tensor.tensor_type.name
        raise ValueError(f'{tensor.name}: GGUF type {kind} is not supported') from unknown
    numbers = np.asarray(numbers, np.float32).reshape(sizes)
    if heads is None:
        return numbers
    rows, width = sizes
    pairs = numbers.reshape(heads, rows // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def read_gguf_generation(reader: gguf.GGUFReader) -> Generation:
    """Stop, start and padding ids."""

    def read(name):
        return read_field(reader, f'tokenizer.ggml.{name}_token_id', None)

    stop_ids = dict.fromkeys(stop for stop in (read('eos'), read('eot')) if stop is not None)
    return Generation(tuple(stop_ids), read('bos'), read('padding'))


# How a text is cut before the merges, by tokenizer.ggml.pre; None is GPT-2's own expression.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
CUTS = {'qwen2': WORDS % '', 'llama-bpe': WORDS % '{1,3}', 'smollm': r'\p{N}', 'gpt-2': None}


def read_gguf_tokenizer(path: pathlib.Path) -> transformers.PreTrainedTokenizerFast:
    """The file's byte-level BPE tokenizer with its chat template; needs no torch."""
    reader = open_gguf(path)

    def read(name, *default):
        return read_field(reader, f'tokenizer.ggml.{name}', *default)

    kind, cut = read('model'), read('pre', 'gpt-2')
    if kind != 'gpt2' or cut not in CUTS:
        raise ValueError(
            f'{path}: GGUF tokenizer {kind}/{cut} is not supported; supported are gpt2 with '
            f'{sorted(CUTS)}; give the Hugging Face folder of the model instead'
        )
    tokens, merges = read('tokens'), [tuple(pair.split(' ', 1)) for pair in read('merges')]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    bpe = models.BPE(vocabulary, merges, ignore_merges=cut == 'llama-bpe')
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.normalizer = normalizers.NFC() if cut == 'qwen2' else None
    tokenizer.pre_tokenizer = cutter(cut)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = {
        role: read(f'{role}_token_id', None) for role in ('bos', 'eos', 'unknown', 'padding')
    }
    named = {role: tokens[token_id] for role, token_id in special.items() if token_id is not None}
    if read('add_bos_token', False):
        start = named['bos'], special['bos']
        tokenizer.post_processor = processors.TemplateProcessing(
            f'{start[0]} $A', f'{start[0]} $A {start[0]}:1 $B:1', [start]
        )
    kinds = read('token_type', [NORMAL] * len(tokens))
    added = [tokens[at] for at, kind in enumerate(kinds) if kind == USER_DEFINED]
    tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in added])
    control = [tokens[at] for at, kind in enumerate(kinds) if kind == CONTROL]
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(token, normalized=False, special=True) for token in control]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=named.get('bos'),
        eos_token=named.get('eos'),
        unk_token=named.get('unknown'),
        pad_token=named.get('padding', named.get('eos')),
        chat_template=read_field(reader, 'tokenizer.chat_template', None),
        clean_up_tokenization_spaces=False,
    )


def cutter(cut: str) -> pre_tokenizers.PreTokenizer:
    """How a text is cut into words, by the name that GGUF files give to it."""
    if CUTS[cut] is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = pre_tokenizers.Split(tokenizers.Regex(CUTS[cut]), 'isolated')
    # SmolLM only sets digits apart and leaves the words to GPT-2's expression.
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut == 'smollm')
    return pre_tokenizers.Sequence([words, rest])
