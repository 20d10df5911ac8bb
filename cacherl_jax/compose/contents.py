"""What the files hold that settings name, as hashes; settings themselves know paths alone.

A run that is taken up again goes on only with the content that it began with (run/checkpoint.py
refuses any other), and a shared start is that of equal content (compose/start.py).  A model is told
apart by its own hash there; here it is not read.
"""

import hashlib
import os
import pathlib

from cacherl_jax.compose.agent import BASE
from cacherl_jax.config import RunConfig
from cacherl_jax.supervised.update import THINKING


def file_hash(file: str | os.PathLike) -> str:
    """Equal for files of equal bytes; empty where there is no file, which its reader will tell."""
    try:
        with pathlib.Path(file).open('rb') as opened:
            return hashlib.file_digest(opened, 'sha256').hexdigest()
    except FileNotFoundError:
        return ''


def named_files(config: RunConfig) -> dict[str, pathlib.Path]:
    """Every file that these settings name, by the setting and what it was given."""
    settings = config.supervised
    found = {f'supervised.files {file}': pathlib.Path(file) for file in settings.files}
    if settings.thinking not in THINKING:
        found[f'supervised.thinking {settings.thinking}'] = pathlib.Path(settings.thinking)
    if config.chat_template:
        ships = config.chat_template == 'base'
        file = BASE / 'chat_template.jinja' if ships else pathlib.Path(config.chat_template)
        found[f'chat_template {config.chat_template}'] = file
    if config.evaluation.file:
        found[f'evaluation.file {config.evaluation.file}'] = pathlib.Path(config.evaluation.file)
    encoder = config.tool_cache.tiers.embedding
    if encoder:
        weights = pathlib.Path(encoder) / 'model.safetensors'
        found[f'tool_cache.tiers.embedding {encoder}'] = weights
    if config.final.head:
        head = pathlib.Path(config.final.head) / 'arrays.safetensors'
        found[f'final.head {config.final.head}'] = head
    return found


def contents(config: RunConfig) -> dict[str, str]:
    """The hash of each named file, by the same names."""
    return {name: file_hash(file) for name, file in named_files(config).items()}
