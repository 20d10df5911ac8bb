"""Measure a model on task suites: a table of success, turns, calls and where the answers came from.

    ./launch.sh evaluate runs/small --samples 4 --sampling.temperature 0.8
    ./launch.sh evaluate runs/small --cache all --split train
    ./launch.sh evaluate base --suites research trip --levels 1 --tasks 8 --json base.json

Success is what each task's own check says; the reward has no part in it.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import tyro

from cacherl_jax.compose.agent import load_agent, refused, rollout_of, tasks_of
from cacherl_jax.compose.command import saved_config
from cacherl_jax.config import PRESETS, RunConfig
from cacherl_jax.evaluate.metrics import evaluation_metrics
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tool_cache.cache import make_tool_cache
from cacherl_jax.tools.execute import live_sessions


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What is measured, and how."""

    model: tyro.conf.Positional[str]  # a run folder, base, smollm2, a Hugging Face folder, a .gguf
    preset: Literal[*PRESETS] = 'small'  # sizes and suites of a model that is no run's
    suites: tuple[str, ...] = ()  # none named: those of the run or the preset
    levels: tuple[int, ...] = ()  # none named: those of the run or the preset
    split: Literal['train', 'validation', 'test'] = 'test'  # test: entities no training task has
    tasks: int = 16  # of each suite and level
    samples: int = 1  # attempts at each task
    sampling: SamplingSettings = SamplingSettings(temperature=0.0)
    cache: Literal['off', 'exact', 'all'] = 'off'  # tiers of the run's tool cache; off: run tools
    seed: int = 0
    json: pathlib.Path | None = None  # where the numbers go, with the settings they belong to

    def __post_init__(self):
        if self.samples > 1 and not self.sampling.temperature:
            raise ValueError(
                f'{self.samples} samples at temperature 0 are one and the same; '
                'raise sampling.temperature'
            )
        for name in ('tasks', 'samples'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')


def is_run(folder: pathlib.Path) -> bool:
    """Whether train.py wrote the folder; a model's folder has a config.json too."""
    return any((folder / name).exists() for name in ('policy', 'checkpoints', 'result.json'))


def config_of(settings: EvaluateSettings) -> RunConfig:
    """The run's own settings, or the preset's, with the model and the tasks that are asked for."""
    folder, model = pathlib.Path(settings.model), settings.model
    config = PRESETS[settings.preset]
    if is_run(folder):
        config, model = saved_config(folder), str(folder / 'policy')
        if not (folder / 'policy').is_dir():
            raise Refusal(
                f'the run in {folder} is not finished, so it has no policy yet',
                remedy='give the command again that began it',
            )
    course = dataclasses.replace(
        config.curriculum,
        suites=settings.suites or config.curriculum.suites,
        levels=settings.levels or config.curriculum.levels,
    )
    return dataclasses.replace(config, model=model, curriculum=course, seed=settings.seed)


@contextlib.contextmanager
def sessions(settings: EvaluateSettings, config: RunConfig) -> Iterator:
    """What answers the calls: the tools, or nothing but what the run recorded."""
    if settings.cache == 'off':
        yield live_sessions(config.execute).open_session
        return
    path = pathlib.Path(settings.model) / 'tool_cache.sqlite'
    if not path.is_file():
        raise Refusal(
            f'cache is {settings.cache} and there is no {path}',
            allowed='off, or the folder of a run',
        )
    every = settings.cache == 'all'
    tiers = dataclasses.replace(config.tool_cache.tiers, fuzzy=every, best_effort=every)
    replay = dataclasses.replace(config.tool_cache, mode='replay', tiers=tiers)
    with refused(), contextlib.closing(make_tool_cache(path, replay, config.execute)) as cache:
        yield cache.open_session


def table(suites: Mapping[str, Mapping[str, Any]], samples: int) -> tuple[list, list[list]]:
    """Columns and rows: each suite, then its levels; the interval is Wilson's, over tasks."""
    columns = ['suite', 'tasks', 'success', '95%', f'pass@{samples}', 'turns', 'calls', 'answers']
    rows = []
    for suite, numbers in suites.items():
        levels = {f'{suite}, level {level}': part for level, part in numbers['levels'].items()}
        for name, part in ({suite: numbers} | levels).items():
            low, high = part['success_wilson']
            row = [name, part['tasks'], part['success'], f'{low:.2f}–{high:.2f}']
            row += [part[f'pass_at_{samples}'], part['turns'], part['calls']]
            rows.append([*row, answers(part['tier_mix'])])
    return columns, rows


def answers(shares: Mapping[str, float]) -> str:
    """Where answers came from, as far as any did."""
    return ', '.join(f'{tier} {share:.0%}' for tier, share in shares.items() if share)


def evaluate(settings: EvaluateSettings) -> dict[str, Any]:
    """Plays the tasks; numbers by suite out."""
    config = config_of(settings)
    with refused():
        tasks = tasks_of(config, settings.split, settings.tasks)
    agent = load_agent(config)
    with sessions(settings, config) as open_session:
        rollout = rollout_of(
            agent, config, open_session,
            sampling=settings.sampling, samples=settings.samples, purpose='evaluate',
        )  # fmt: skip
        _, episodes = rollout(agent.params, tasks, 0)
    return evaluation_metrics(episodes, ks=(1, settings.samples))


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(EvaluateSettings, description=__doc__)
    suites = evaluate(settings)
    print_table(f'{settings.model}, split {settings.split}', *table(suites, settings.samples))
    if settings.json:
        told = {'settings': plain(settings), 'suites': plain(suites), 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
