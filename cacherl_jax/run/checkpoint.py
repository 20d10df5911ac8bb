"""Checkpoints that are whole or absent: a pytree of arrays (orbax) and records (JSON) for a step.

A checkpoint is written under a hidden name and renamed when complete, so the newest visible one is
always whole.  Keys of jax.random are not stored: a run's randomness is addressed by seed and step.
Of several processes the first writes, and all read: they need one folder that all of them see.
"""

import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from cacherl_jax.processes import is_first, several, told
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain, settings_hash
from cacherl_jax.run.stored import load_arrays, load_some, store_arrays

RESERVE_BYTES = 16 * 2**20  # what a checkpoint writes beside its arrays, generously
PREFIX = 'step-'


class Restored(NamedTuple):
    """What `save` was given."""

    step: int
    tree: Any
    records: dict[str, Any]


class Checkpoints(NamedTuple):
    """`save(step, tree, records)`; `latest()` is a step or None; `restore(template)` or None."""

    save: Callable[[int, Any, Mapping[str, Any]], pathlib.Path]
    latest: Callable[[], int | None]
    restore: Callable[[Any], Restored | None]


def _steps(folder: pathlib.Path) -> list[int]:
    names = (path.name.removeprefix(PREFIX) for path in folder.glob(f'{PREFIX}*'))
    return sorted(int(name) for name in names if name.isdecimal())


def _place(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f'{PREFIX}{step:08d}'


def _named_leaves(tree: Any) -> dict[str, Any]:
    """Leaves by their path; names do not depend on how a container class is stored."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(path, simple=True, separator='/'): x for path, x in leaves}
    if len(named) != len(leaves):
        raise ValueError('two leaves of the checkpoint have the same path')
    for name, leaf in named.items():
        dtype = getattr(leaf, 'dtype', None)
        if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
            raise TypeError(f'{name} must be an array of numbers, got {dtype or type(leaf)}')
    # A scalar of numpy is stored, and comes back, as an array without axes.
    return {name: np.asarray(x) if isinstance(x, np.generic) else x for name, x in named.items()}


def _filled(named: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays that hold something; the others are known by their shape and are not stored."""
    return {name: leaf for name, leaf in named.items() if leaf.size}


def _shapes(named: Mapping[str, Any]) -> dict[str, list]:
    return {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in named.items()}


def _differences(ours: Any, theirs: Any, name: str = '') -> list[str]:
    """Every setting that differs, as `path: here ..., there ...`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted(set(ours) | set(theirs))
        return [
            line
            for key in keys
            for line in _differences(ours.get(key), theirs.get(key), f'{name}.{key}'.strip('.'))
        ]
    return [] if ours == theirs else [f'{name}: now {ours!r}, in the checkpoint {theirs!r}']


def _about(folder: pathlib.Path, step: int) -> dict[str, Any]:
    return json.loads((_place(folder, step) / 'about.json').read_text(encoding='utf-8'))


def _refuse_other_settings(folder: pathlib.Path, settings: Any, stored: dict[str, Any]) -> None:
    ours = settings_hash(settings)
    if stored['settings_hash'] == ours:
        return
    lines = _differences(json.loads(json.dumps(plain(settings))), stored['settings'])
    raise Refusal(
        f'{folder} holds checkpoints of other settings ({stored["settings_hash"]}) than these '
        f'({ours}):\n  ' + '\n  '.join(lines),
        allowed='a run continues with the settings that it began with',
        remedy='give those settings again, or another run folder',
    )


def _refuse_other_contents(
    folder: pathlib.Path, contents: Mapping[str, str], stored: dict[str, Any]
) -> None:
    """A checkpoint of before contents were kept cannot tell, and is taken up with what is there."""
    former = stored.get('contents')
    if former is None:
        if contents:
            print(
                f'{folder}: written before the content of files was kept with a checkpoint, so '
                f'these are taken to be what they were: {", ".join(contents)}',
                file=sys.stderr,
            )
        return
    lines = [
        f'{name}: its content is another' if now else f'{name}: it is not there any more'
        for name, now in contents.items()
        if now != former.get(name, now)
    ]
    if lines:
        raise Refusal(
            f'{folder} holds checkpoints of a run that began with other files than there are now:'
            '\n  ' + '\n  '.join(lines),
            allowed='a run continues with the files that it began with',
            remedy='put their former content back, or give another run folder',
        )


def _refuse_small_disk(folder: pathlib.Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f'{needed / 2**20:.0f} MiB are needed, {free / 2**20:.0f} MiB are free')


def _write(folder: pathlib.Path, step: int, tree: Any, about: str) -> pathlib.Path:
    named = _named_leaves(tree)
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in named.values())
    _refuse_small_disk(folder, needed + RESERVE_BYTES)
    unfinished = folder / f'.unfinished-{PREFIX}{step:08d}'
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    store_arrays(unfinished / 'arrays', _filled(named))
    with (unfinished / 'about.json').open('w', encoding='utf-8') as file:
        file.write(about)
        file.flush()
        os.fsync(file.fileno())
    final = _place(folder, step)
    _remove(final)
    unfinished.rename(final)
    return final


def _remove(path: pathlib.Path) -> None:
    """First out of sight, then gone: a half-removed checkpoint is never the latest."""
    if path.exists():
        hidden = path.with_name(f'.removed-{path.name}')
        shutil.rmtree(hidden, ignore_errors=True)
        path.rename(hidden)
        shutil.rmtree(hidden)


def _remove_leftovers(folder: pathlib.Path) -> None:
    """What a kill left of a checkpoint that was written or removed."""
    for leftover in [*folder.glob('.unfinished-*'), *folder.glob('.removed-*')]:
        shutil.rmtree(leftover)


def _load(folder: pathlib.Path, step: int, template: Any) -> Restored:
    place = _place(folder, step)
    about = _about(folder, step)
    named = _named_leaves(template)
    lines = _differences(_shapes(named), about['leaves'])
    if lines:
        raise Refusal(
            f'the arrays of {place} are not those of this program:\n  ' + '\n  '.join(lines),
            remedy='use the version of the program that wrote it, or another run folder',
        )
    found = load_arrays(place / 'arrays', _filled(named))
    leaves = [found.get(name, empty) for name, empty in named.items()]
    return Restored(
        step, jax.tree.unflatten(jax.tree.structure(template), leaves), about['records']
    )


def restore_part(folder: str | os.PathLike, name: str, template: Any) -> Any:
    """What the newest checkpoint's tree has under `name`, whatever its settings; nothing else.

    A part of a part is named `learner/params`; the leaves of `template` may be shapes.  Raises
    FileNotFoundError where there is no checkpoint, Refusal where its arrays are others than those
    of `template`.
    """
    folder = pathlib.Path(folder).resolve()
    if not (steps := _steps(folder)):
        raise FileNotFoundError(f'{folder} holds no checkpoint')
    place, named = _place(folder, steps[-1]), _named_leaves({name: template})
    stored = _about(folder, steps[-1])['leaves']
    part = {leaf: shape for leaf, shape in stored.items() if leaf.startswith(f'{name}/')}
    if lines := _differences(_shapes(named), part):
        raise Refusal(f'{name} in {place} has other arrays:\n  ' + '\n  '.join(lines))
    found = load_some(place / 'arrays', named)
    return jax.tree.unflatten(jax.tree.structure(template), [found[leaf] for leaf in named])


def make_checkpoints(
    folder: str | os.PathLike,
    settings: Any,
    keep: int = 2,
    contents: Mapping[str, str] | None = None,
) -> Checkpoints:
    """Checkpoints in `folder` for runs with `settings`; the newest `keep` stay.

    `settings` is a dataclass or a mapping, without what may change when a run continues (its
    folder, its number of steps).  `contents` are hashes of the files that the settings name, by
    what the user knows them by.  Checkpoints of other settings or contents are refused at once.
    """
    if keep < 1:
        raise ValueError(f'keep must be at least 1, got {keep}')
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    contents = dict(contents or {})
    if steps := _steps(folder):
        stored = _about(folder, steps[-1])
        _refuse_other_settings(folder, settings, stored)
        _refuse_other_contents(folder, contents, stored)
    if is_first():
        _remove_leftovers(folder)

    def latest():
        return told(lambda: max(_steps(folder), default=None))

    def save(step, tree, records):
        if not several():
            return write(step, tree, records)
        tree = fetch(tree)  # asked of all, before the first one writes
        return pathlib.Path(told(lambda: str(write(step, tree, records))))

    def write(step, tree, records):
        about = json.dumps(
            {
                'step': step,
                'settings': plain(settings),
                'settings_hash': settings_hash(settings),
                'contents': contents,
                'leaves': _shapes(_named_leaves(tree)),
                'records': records,
            }
        )
        former = max(_steps(folder), default=None)
        try:
            written = _write(folder, step, tree, about)
        except (OSError, ValueError) as error:
            shutil.rmtree(folder / f'.unfinished-{PREFIX}{step:08d}', ignore_errors=True)
            # What the storage library is told by the system arrives as a ValueError.
            if isinstance(error, ValueError) and 'os_error_code' not in str(error):
                raise
            left = 'there is no former one' if former is None else f'step {former} is untouched'
            raise Refusal(
                f'the checkpoint of step {step} could not be written to {folder}: {error}; {left}',
                remedy='make room there and give the same command again; it continues',
            ) from error
        for old in _steps(folder)[:-keep]:
            _remove(_place(folder, old))
        return written

    def restore(template):
        step = latest()
        return None if step is None else _load(folder, step, template)

    return Checkpoints(save, latest, restore)
