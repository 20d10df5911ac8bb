"""Do more devices, or more processes, change a number?  One step on each, and a table.

    python experiments/bench_devices.py --json devices.json

A small training step (rollout with tools, reference, two updates) on one virtual CPU device, on
eight in three layouts, and in two processes with `jax.distributed`.  `tokens` is the share that is
equal to one device's, the other columns are largest absolute differences; `tools run` counts the
executions in each process.  Ends with code 1 where a difference is not within the tolerance.
"""

import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import jax
import numpy as np
import tyro

from cacherl_jax.bench.devices import PARTS, TOLERANCE, Seen, differences, step, within
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.compose.joining import ADDRESS, COUNT, INDEX, joined
from cacherl_jax.mesh import MESH_AXES, MeshSettings, make_mesh
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.terminal import print_table

COLUMNS = ('where', *MESH_AXES, 'tokens', *PARTS, 'tools run', 'within')
Layout = tuple[int, int, int]  # of the mesh's axes, in their order
ALONE: Layout = (1, 1, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DevicesBench:
    """Where the step is taken."""

    devices: int = 8  # virtual ones of one process
    layouts: tuple[Layout, ...] = ((8, 1, 1), (1, 4, 2), (2, 2, 2))  # of these devices
    processes: int = 2  # with a device each; 0 leaves them out
    parameters_shared: bool = True  # fsdp over the processes; or each holds all: data
    seen: pathlib.Path | None = None  # take the steps in this very process, and leave them here
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        wrong = [one for one in self.layouts if np.prod(one) != self.devices]
        if wrong and self.seen is None:
            raise ValueError(f'layouts must be of {self.devices} devices, got {wrong}')
        if self.processes < 0 or self.processes == 1:
            raise ValueError(f'processes must be 0 (none) or 2 and more, got {self.processes}')


def take_steps(settings: DevicesBench) -> None:
    """The step on each layout, over as many of the devices here as it has."""
    tokenizer = load_tokenizer(BASE)
    for layout in settings.layouts:
        sizes = MeshSettings(**dict(zip(MESH_AXES, layout, strict=True)))
        mesh = make_mesh(sizes, jax.devices()[: int(np.prod(layout))])
        np.savez(_file(settings.seen, layout, jax.process_index()), **step(tokenizer, mesh))


def _file(folder: pathlib.Path, layout: Layout, index: int) -> pathlib.Path:
    return folder / f'{"-".join(map(str, layout))}-of-{index}.npz'


def take_elsewhere(folder: pathlib.Path, layouts, environments: list[dict]) -> list[list[Seen]]:
    """What processes with these environments see of each layout, [layout][process]."""
    folder.mkdir()
    words = [str(size) for layout in layouts for size in layout]
    command = [sys.executable, __file__, '--seen', str(folder), '--layouts', *words]
    quiet = {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}
    started = [
        subprocess.Popen(command, env=os.environ | quiet | one, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for one in environments
    ]  # fmt: skip
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError('\n'.join(said))
    places = range(len(environments))
    return [[dict(np.load(_file(folder, one, index))) for index in places] for one in layouts]


def measure(settings: DevicesBench) -> list[dict]:
    """A record for each place; the first one is what the others are compared with."""
    with tempfile.TemporaryDirectory() as folder:
        virtual = {'XLA_FLAGS': f'--xla_force_host_platform_device_count={settings.devices}'}
        layouts = [ALONE, *settings.layouts]
        seen = take_elsewhere(pathlib.Path(folder) / 'devices', layouts, [virtual])
        found = [
            _told(f'{np.prod(layout)} of 1 process', layout, seen[0][0], [one])
            for layout, (one,) in zip(layouts, seen, strict=True)
        ]
        if settings.processes:
            count = settings.processes
            layout = (1, count, 1) if settings.parameters_shared else (count, 1, 1)
            shared = {ADDRESS: f'localhost:{_free_port()}', COUNT: str(count)}
            places = [shared | {INDEX: str(index)} for index in range(count)]
            each = take_elsewhere(pathlib.Path(folder) / 'processes', [layout], places)
            found.append(_told(f'{count} processes', layout, seen[0][0], each[0]))
    return found


def _told(where: str, layout: Layout, alone: Seen, each: list[Seen]) -> dict:
    """The worst of the processes, and what each of them executed."""
    apart = [differences(alone, one) for one in each]
    worst = {part: (min if part == 'tokens' else max)(d[part] for d in apart) for part in apart[0]}
    executed = [int(one['executed']) for one in each]
    right = within(worst) and executed == [int(alone['executed'])] + [0] * (len(each) - 1)
    return {'where': where, 'layout': layout} | worst | {'executed': executed, 'within': right}


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(('localhost', 0))
        return made.getsockname()[1]


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(DevicesBench, description=__doc__)
    if settings.seen:
        with joined(), refusing():
            take_steps(settings)
        return
    found = measure(settings)
    rows = [
        [one['where'], *one['layout'], f'{one["tokens"]:.0%}', *(one[part] for part in PARTS),
         ' + '.join(map(str, one['executed'])), 'yes' if one['within'] else 'NO']
        for one in found
    ]  # fmt: skip
    print_table(f'differences from one device, tolerance {TOLERANCE}', COLUMNS, rows)
    if settings.json:
        write_atomically(settings.json, json.dumps(found, indent=2) + '\n')
    if not all(one['within'] for one in found):
        raise SystemExit(1)


if __name__ == '__main__':
    main()
