"""Small learned arrays on disk: `arrays.safetensors` and `about.json` in a folder.  No pickle."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file


def save_arrays(
    folder: str | os.PathLike, kind: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> None:
    """Each file is written aside and renamed; `kind` says what reads them."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({'kind': kind} | dict(about), indent=2, allow_nan=False) + '\n'
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(kept, folder / '.arrays.safetensors')
    os.replace(folder / '.arrays.safetensors', folder / 'arrays.safetensors')
    (folder / '.about.json').write_text(text, encoding='utf-8')
    os.replace(folder / '.about.json', folder / 'about.json')


def load_arrays(
    folder: str | os.PathLike, kind: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `save_arrays` was given; ValueError where the folder holds anything else."""
    folder = pathlib.Path(folder)
    try:
        about = json.loads((folder / 'about.json').read_text(encoding='utf-8'))
        arrays = load_file(folder / 'arrays.safetensors')
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f'{folder} is no folder of a {kind}: {error}') from error
    if not isinstance(about, dict) or about.get('kind') != kind:
        found = about.get('kind') if isinstance(about, dict) else about
        raise ValueError(f'{folder} holds {found!r}, not a {kind}; give a folder of one')
    return arrays, about


def expect_shapes(
    folder: str | os.PathLike,
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuses other names, other shapes and numbers that are not finite."""
    found = {name: array.shape for name, array in arrays.items()}
    if found != dict(shapes):
        raise ValueError(f'{folder} has arrays {found}; they must be {dict(shapes)}')
    broken = sorted(name for name, array in arrays.items() if not np.isfinite(array).all())
    if broken:
        raise ValueError(f'{folder} has numbers in {broken} that are not finite')
