"""Low-rank adapters (arxiv.org/abs/2106.09685): W x becomes W x + alpha/rank B A x, W rests.

An adapter is a tree of its own, {'layers': ({leaf: {'lora_a', 'lora_b'}}, ...)}, so that
gradients and optimizer states are made for it alone.  `adapted` puts it on the weights it belongs
to; the same weights without it are the reference model, so no second copy of them is ever needed.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from cacherl_jax.mesh import whole_beside
from cacherl_jax.policy.hugging_face import read_json
from cacherl_jax.policy.shape import Params
from cacherl_jax.policy.transformer import Adapted
from cacherl_jax.policy.weights import LAYER

Adapter = dict[str, Any]
TARGETS = ('query', 'key', 'value', 'output', 'gate', 'up', 'down')
PREFIX = 'base_model.model.model.layers'


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Which matrices are adapted, and how.  There is no dropout: what samples is what is scored."""

    rank: int = 0  # 0: every parameter is trained, without an adapter
    alpha: float = 32.0  # the adapter counts alpha / rank
    targets: tuple[str, ...] = TARGETS  # matrices of every layer

    def __post_init__(self):
        if self.rank < 0:
            raise ValueError(f'rank must be 0 (no adapter) or more, got {self.rank}')
        if not self.alpha > 0:
            raise ValueError(f'alpha must be above 0, got {self.alpha}')
        unknown = set(self.targets) - set(TARGETS)
        if unknown or not self.targets or len(set(self.targets)) < len(self.targets):
            raise ValueError(f'targets must be some of {TARGETS}, each once, got {self.targets}')

    @property
    def scale(self) -> float:
        """What B A x is multiplied by."""
        return self.alpha / self.rank


def init_adapter(params: Params, settings: LoraSettings, key: jax.Array) -> Adapter:
    """An adapter that changes nothing yet: A is uniform in +-1/sqrt(inputs), B is 0; f32.

    It is small, so every device of the parameters has all of it.
    """
    if not settings.rank:
        raise ValueError('rank 0 has no adapter; give a rank of 1 or more')

    def matrix(name, weight, key):
        inputs = LAYER[name].turned
        bound = math.prod(weight.shape[:inputs]) ** -0.5
        size = (*weight.shape[:inputs], settings.rank)
        down = jax.random.uniform(key, size, minval=-bound, maxval=bound)
        return {'lora_a': down, 'lora_b': jnp.zeros((settings.rank, *weight.shape[inputs:]))}

    layers = []
    for number, layer in enumerate(params['layers']):
        keys = jax.random.split(jax.random.fold_in(key, number), len(settings.targets))
        pairs = zip(settings.targets, keys, strict=True)
        layers.append({name: matrix(name, layer[name], one) for name, one in pairs})
    return whole_beside({'layers': tuple(layers)}, params)


def adapted(params: Params, adapter: Adapter, settings: LoraSettings) -> Params:
    """The parameters with the adapter on: what a forward pass takes.  Copies nothing."""

    def both(layer: Mapping[str, Any], change: Mapping[str, Any]):
        return {**layer} | {
            name: Adapted(layer[name], pair['lora_a'], pair['lora_b'], settings.scale)
            for name, pair in change.items()
        }

    layers = zip(params['layers'], adapter['layers'], strict=True)
    return {**params, 'layers': tuple(both(*pair) for pair in layers)}


def merge(params: Params, adapter: Adapter, settings: LoraSettings) -> Params:
    """Plain parameters that do what weights and adapter do together."""
    return jax.tree.map(
        lambda leaf: leaf.merged() if isinstance(leaf, Adapted) else leaf,
        adapted(params, adapter, settings),
        is_leaf=lambda leaf: isinstance(leaf, Adapted),
    )


def unmerge(merged: Params, adapter: Adapter, settings: LoraSettings) -> Params:
    """The parameters that `merge` was given, to rounding."""
    layers = tuple(
        {name: pair | {'lora_b': -pair['lora_b']} for name, pair in layer.items()}
        for layer in adapter['layers']
    )
    return merge(merged, {'layers': layers}, settings)


def adapter_between(before: Params, after: Params, settings: LoraSettings) -> Adapter:
    """The adapter that makes `after` of `before`, which differ by adapters of this rank together.

    W' - W = Q (Q^T (W' - W)) for an orthonormal Q of its range, which as many random products span
    (arxiv.org/abs/0909.4061).  A change of higher rank is not told whole.
    """

    def matrix(name, old, new, key):
        inputs, sizes = LAYER[name].turned, old.shape
        change = (new.astype(jnp.float32) - old.astype(jnp.float32)).reshape(
            math.prod(sizes[:inputs]), -1
        )
        seen = change @ jax.random.normal(key, (change.shape[1], settings.rank))
        basis = jnp.linalg.qr(seen)[0]
        basis = jnp.pad(basis, [(0, 0), (0, settings.rank - basis.shape[1])])
        return {
            'lora_a': basis.reshape(*sizes[:inputs], settings.rank),
            'lora_b': (basis.T @ change / settings.scale).reshape(settings.rank, *sizes[inputs:]),
        }

    matrix = jax.jit(matrix, static_argnums=0)
    layers = tuple(
        {name: matrix(name, old[name], new[name], jax.random.key(0)) for name in settings.targets}
        for old, new in zip(before['layers'], after['layers'], strict=True)
    )
    return {'layers': layers}


# ---- on disk, as PEFT keeps it


def save_adapter(
    folder: pathlib.Path, adapter: Adapter, settings: LoraSettings, base: str = ''
) -> None:
    """adapter_config.json and adapter_model.safetensors; `base` names the model it belongs to."""
    tensors = {}
    for number, layer in enumerate(adapter['layers']):
        for name, pair in layer.items():
            down, up = (np.asarray(pair[part], np.float32) for part in ('lora_a', 'lora_b'))
            first = np.ascontiguousarray(down.reshape(-1, settings.rank).T)
            second = np.ascontiguousarray(up.reshape(settings.rank, -1).T)
            tensors[f'{_module(number, name)}.lora_A.weight'] = first
            tensors[f'{_module(number, name)}.lora_B.weight'] = second
    config = {
        'peft_type': 'LORA',
        'task_type': 'CAUSAL_LM',
        'base_model_name_or_path': base,
        'r': settings.rank,
        'lora_alpha': settings.alpha,
        'lora_dropout': 0.0,
        'bias': 'none',
        'fan_in_fan_out': False,
        'target_modules': [_their_name(name) for name in settings.targets],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'adapter_config.json').write_text(json.dumps(config, indent=2) + '\n')
    safetensors.numpy.save_file(tensors, folder / 'adapter_model.safetensors')


def load_adapter(folder: pathlib.Path, params: Params) -> tuple[Adapter, LoraSettings]:
    """An adapter for these parameters; ValueError for what does not fit or is no plain LoRA."""
    settings = _read_settings(folder / 'adapter_config.json')
    stored = safetensors.numpy.load_file(folder / 'adapter_model.safetensors')
    layers = []
    for number, layer in enumerate(params['layers']):
        layers.append({})
        for name in settings.targets:
            inputs, sizes = LAYER[name].turned, layer[name].shape
            down, up = (
                stored.pop(f'{_module(number, name)}.lora_{part}.weight', None) for part in 'AB'
            )
            wanted = (settings.rank, math.prod(sizes[:inputs])), math.prod(sizes[inputs:])
            if down is None or up is None or (down.shape, up.shape[0]) != wanted:
                got = [None if part is None else part.shape for part in (down, up)]
                raise ValueError(
                    f'{folder}: {_module(number, name)} must have lora_A of {wanted[0]} and lora_B '
                    f'of {(wanted[1], settings.rank)}, got {got}'
                )
            layers[-1][name] = {
                'lora_a': jnp.asarray(down.T.reshape(*sizes[:inputs], settings.rank), jnp.float32),
                'lora_b': jnp.asarray(up.T.reshape(settings.rank, *sizes[inputs:]), jnp.float32),
            }
    if stored:
        raise ValueError(f'{folder}: tensors for no matrix of this model: {sorted(stored)[:5]}')
    return whole_beside({'layers': tuple(layers)}, params), settings


def _read_settings(path: pathlib.Path) -> LoraSettings:
    config = read_json(path)
    ours = {_their_name(name): name for name in TARGETS}
    plain = {'peft_type': 'LORA', 'bias': 'none', 'fan_in_fan_out': False, 'use_dora': False}
    plain |= {'use_rslora': False, 'rank_pattern': {}, 'alpha_pattern': {}, 'modules_to_save': None}
    for field, allowed in plain.items():
        if config.get(field, allowed) != allowed:
            raise ValueError(f'{path}: {field} must be {allowed!r}, got {config[field]!r}')
    modules = config.get('target_modules')
    if not isinstance(modules, list) or set(modules) - set(ours):
        raise ValueError(f'{path}: target_modules must list some of {sorted(ours)}, got {modules}')
    targets = tuple(name for name in TARGETS if _their_name(name) in modules)
    return LoraSettings(rank=config['r'], alpha=float(config['lora_alpha']), targets=targets)


def _their_name(name: str) -> str:
    return LAYER[name].hugging_face.split('.')[-2]


def _module(number: int, name: str) -> str:
    return f'{PREFIX}.{number}.' + LAYER[name].hugging_face.removesuffix('.weight')
