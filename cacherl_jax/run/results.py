"""What a run amounted to: `result.json`, with everything needed to know what was run."""

import dataclasses
import enum
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

from cacherl_jax.run.files import write_atomically

PACKAGES = ('jax', 'jaxlib', 'numpy', 'flax', 'optax', 'orbax-checkpoint', 'chex', 'transformers')
STAGES = {'supervised', 'final'}
STAGE_NUMBERS = {'success', 'success_seen', 'turns', 'calls'}
RL_NUMBERS = {'steps', 'episodes', 'live_tool_calls', 'tier_mix'}
TIERS = {'exact', 'fuzzy', 'best_effort', 'miss'}
PROJECT = pathlib.Path(__file__).resolve().parents[2]


def plain(value: Any) -> Any:
    """Settings as JSON can hold them: dataclasses become dicts, enums values, functions names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (int, str)):
        return value
    if getattr(value, 'shape', None) == ():
        return plain(value.item())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        return f'{value.__module__}.{value.__qualname__}'
    raise TypeError(f'{type(value).__name__} has no form in JSON: {value!r}')


def settings_hash(settings: Any) -> str:
    """Equal for settings that mean the same, whatever the order of their fields."""
    text = json.dumps(plain(settings), sort_keys=True, separators=(',', ':'))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def commit() -> str | None:
    """The project's git commit, marked where files differ from it; None outside a checkout."""

    def git(*arguments):
        ran = subprocess.run(
            ['git', '-C', str(PROJECT), *arguments], capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    try:
        if pathlib.Path(git('rev-parse', '--show-toplevel')).resolve() != PROJECT:
            return None
        changed = git('status', '--porcelain', '--untracked-files=no')
        return git('rev-parse', 'HEAD') + ('+changes' if changed else '')
    except (OSError, subprocess.CalledProcessError):
        return None


def versions() -> dict[str, str | None]:
    """Python, the packages that numbers depend on, and the commit."""
    found = {'python': platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found | {'commit': commit()}


def _expect(where: str, found: Mapping, wanted: set, *, all_of: bool = True) -> None:
    missing = wanted - set(found) if all_of else set()
    unknown = set() if all_of else set(found) - wanted
    if missing or unknown:
        raise ValueError(
            f'result {where}: missing {sorted(missing)}, unknown {sorted(unknown)}; '
            f'names are {sorted(wanted)}'
        )


def write_result(
    path: str | os.PathLike,
    *,
    suites: Mapping[str, Mapping[str, Mapping[str, float | None]]],
    rl: Mapping[str, Any],
    seconds: float,
    seed: int,
    config: Any,
) -> dict[str, Any]:
    """Writes the result and hands it back.

    `suites` is {suite: {stage: {'success', 'success_seen', 'turns', 'calls'}}} with stages out of
    'supervised' and 'final'; `rl` is {'steps', 'episodes', 'live_tool_calls', 'tier_mix'}; more
    names are welcome, fewer are not.
    """
    for suite, stages in suites.items():
        _expect(f'of {suite}', stages, STAGES, all_of=False)
        for stage, numbers in stages.items():
            _expect(f'of {suite}, {stage}', numbers, STAGE_NUMBERS)
    _expect('rl', rl, RL_NUMBERS)
    _expect('rl tier_mix', rl['tier_mix'], TIERS)
    result = {
        'suites': plain(suites),
        'rl': plain(rl),
        'seconds': round(float(seconds), 3),
        'seed': int(seed),
        'config': plain(config),
        'config_hash': settings_hash(config),
        'versions': versions(),
    }
    write_atomically(path, json.dumps(result, indent=2) + '\n')
    return result
