"""The command line of experiments: a preset, then settings by name; refused at once where wrong."""

import dataclasses
import enum
import json
import pathlib
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import tyro

from cacherl_jax.config import PRESETS, RunConfig
from cacherl_jax.run.refusal import Refusal

CHOICES = f'{", ".join(PRESETS)}, or the config.json of a run'


def read_config(
    description: str,
    arguments: list[str] | None = None,
    change: Callable[[RunConfig], RunConfig] = lambda preset: preset,
) -> RunConfig:
    """The configuration that the command line asks for: options over `change` over a preset.

    Raises Refusal for an unknown preset and for settings that contradict each other; unknown
    options end the program with code 2 and a list of like ones.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    default = change(_preset(_take_preset(arguments)))
    try:
        return tyro.cli(
            RunConfig,
            default=default,
            args=arguments,
            description=f'{description}\n--preset NAME: {CHOICES}',
        )
    except ValueError as error:
        raise Refusal(str(error)) from error


def _preset(name: str) -> RunConfig:
    if name.endswith('.json'):
        return read_settings(pathlib.Path(name))
    if name not in PRESETS:
        raise Refusal(f'no preset {name!r}', allowed=CHOICES)
    return PRESETS[name]


def _take_preset(arguments: list[str]) -> str:
    """Remove --preset NAME or --preset=NAME; the first preset where there is none."""
    for place, argument in enumerate(arguments):
        if argument.startswith('--preset='):
            return arguments.pop(place).partition('=')[2]
        if argument == '--preset':
            if place + 1 == len(arguments):
                raise Refusal('--preset needs a name', allowed=CHOICES)
            arguments.pop(place)
            return arguments.pop(place)
    return next(iter(PRESETS))


def saved_config(folder: pathlib.Path) -> RunConfig:
    """The settings that a run wrote down when it began."""
    return read_settings(folder / 'config.json')


def read_settings(file: pathlib.Path) -> RunConfig:
    """The settings in a config.json."""
    try:
        return _settings(RunConfig, json.loads(file.read_text(encoding='utf-8')))
    except (OSError, ValueError, KeyError) as error:
        raise Refusal(f'{file} holds no settings of a run: {error}') from error


def _settings(kind: Any, saved: Any) -> Any:
    """The value of type `kind` that `results.plain` turned into `saved`."""
    inner = typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        kinds = typing.get_type_hints(kind)
        return kind(**{name: _settings(kinds[name], value) for name, value in saved.items()})
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return None if saved is None else _settings(inner[0], saved)
    if typing.get_origin(kind) is tuple:
        each = inner[:1] * len(saved) if inner[1:] == (...,) else inner
        return tuple(_settings(one, value) for one, value in zip(each, saved, strict=True))
    if isinstance(kind, type) and issubclass(kind, (enum.Enum, pathlib.Path)):
        return kind(saved)
    return saved
