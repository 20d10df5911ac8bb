"""Measure a model on task suites: a table of success, turns, calls and where the answers came from.

    ./launch.sh evaluate runs/small --samples 4 --sampling.temperature 0.8
    ./launch.sh evaluate runs/small --cache all --split train
    ./launch.sh evaluate base --suites research trip --levels 1 --tasks 8 --json base.json
    ./launch.sh evaluate --endpoint https://HOST/v1 --endpoint-model NAME --endpoint-key MY_KEY

Success is what each task's own check says; the reward has no part in it.  With --endpoint a model
behind an OpenAI-compatible server plays the same tasks; its key is the value of the environment
variable that --endpoint-key names.  --episodes keeps what was played for diagnose, compare and
correlate.
"""

import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import tyro

from cacherl_jax.chat.endpoint import EndpointError, EndpointSettings
from cacherl_jax.compose.agent import (
    Agent,
    load_agent,
    model_source,
    refused,
    rollout_of,
    tasks_of,
)
from cacherl_jax.compose.command import saved_config
from cacherl_jax.compose.halfway import halfway_params
from cacherl_jax.compose.start import model_hash
from cacherl_jax.config import PRESETS, RunConfig
from cacherl_jax.evaluate.chat_endpoint import ChatEndpoint
from cacherl_jax.evaluate.cost import cost_of, priced, tasks_hash
from cacherl_jax.evaluate.endpoint_play import play_endpoint
from cacherl_jax.evaluate.metrics import evaluation_metrics
from cacherl_jax.evaluate.process import expert_accuracy
from cacherl_jax.evaluate.record import episode_record
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Params
from cacherl_jax.run.ending import reached
from cacherl_jax.run.evaluation import write_evaluation
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import settings_hash
from cacherl_jax.run.terminal import print_table, progress
from cacherl_jax.tasks.bfcl import BfclSettings
from cacherl_jax.tasks.suites import process_accuracy
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tasks.tau2 import Tau2Settings
from cacherl_jax.tool_cache.cache import make_tool_cache
from cacherl_jax.tools.execute import live_sessions


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What is measured, and how."""

    # A run folder, base, smollm2, a Hugging Face folder, a .gguf; with an endpoint, whose settings.
    model: tyro.conf.Positional[str] = ''
    preset: Literal[*PRESETS] = 'small'  # sizes and suites of a model that is no run's
    suites: tuple[str, ...] = ()  # also bfcl, tau2; none named: those of the run or the preset
    levels: tuple[int, ...] = ()  # none named: those of the run or the preset
    split: Literal['train', 'validation', 'test'] = 'test'  # test: entities no training task has
    tasks: int = 16  # of each suite and level
    samples: int = 1  # attempts at each task
    max_turns: int = 0  # assistant messages of an attempt; 0: as the run or the preset has it
    result_characters: int = 0  # most that is read of a result; 0: as the run or the preset has it
    sampling: SamplingSettings = SamplingSettings(temperature=0.0)
    # What of a benchmark is played and shown; not given: as the run or the preset has it.
    bfcl: BfclSettings = BfclSettings()
    tau2: Tau2Settings = Tau2Settings()
    cache: Literal['off', 'exact', 'all'] = 'off'  # tiers of the run's tool cache; off: run tools
    seed: int = 0
    endpoint: str = ''  # url up to /v1 of an OpenAI-compatible server
    endpoint_model: str = ''  # the model's name there
    endpoint_key: str = ''  # environment variable that holds its key; not given: no key is sent
    endpoint_tokens: int = 1024  # of a message
    endpoint_seconds: float = 300.0  # for a message with all its retries
    endpoint_workers: int = 8  # episodes played at once
    endpoint_price: tuple[float, float] | tuple[()] = ()  # of a million prompt, completion tokens
    episodes: pathlib.Path | None = None  # where the episodes go, JSON Lines
    json: pathlib.Path | None = None  # where the numbers go, with the settings they belong to

    def __post_init__(self):
        if not (self.model or self.endpoint) or bool(self.endpoint) != bool(self.endpoint_model):
            raise ValueError('give a model, or --endpoint URL and --endpoint-model NAME')
        if self.endpoint and (self.sampling.top_k or self.sampling.min_p):
            raise ValueError('an endpoint samples by temperature and top_p only')
        if self.samples > 1 and not self.sampling.temperature:
            raise ValueError(
                f'{self.samples} samples at temperature 0 are one and the same; '
                'raise sampling.temperature'
            )
        for name in ('tasks', 'samples', 'endpoint_tokens', 'endpoint_workers'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')
        if min(self.max_turns, self.result_characters) < 0:
            raise ValueError('max_turns and result_characters must be 0 or more')


def is_run(folder: pathlib.Path) -> bool:
    """Whether train.py wrote the folder; a model's folder has a config.json too."""
    return any((folder / name).exists() for name in ('policy', 'checkpoints', 'result.json'))


def read_arguments(arguments: Sequence[str]) -> EvaluateSettings:
    """Options over what the run, or the preset, has for the benchmarks."""
    asked = tyro.cli(EvaluateSettings, args=list(arguments), description=__doc__)
    own = own_config(asked)
    default = dataclasses.replace(asked, bfcl=own.bfcl, tau2=own.tau2)
    return tyro.cli(EvaluateSettings, args=list(arguments), default=default)


def own_config(settings: EvaluateSettings) -> RunConfig:
    """What the run was made with, or the preset of a model that is no run's."""
    folder = pathlib.Path(settings.model)
    of_run = settings.model and is_run(folder)
    return saved_config(folder) if of_run else PRESETS[settings.preset]


def config_of(settings: EvaluateSettings) -> RunConfig:
    """The run's own settings, or the preset's, with the model and the tasks that are asked for."""
    folder, model = pathlib.Path(settings.model), settings.model
    config = own_config(settings)
    if settings.model and is_run(folder):
        finished = (folder / 'policy').is_dir()
        model = str(folder / 'policy') if finished else config.model
        if not settings.endpoint and not finished and reached(folder) is None:
            raise Refusal(
                f'the run in {folder} is not finished, and has no checkpoint yet',
                remedy='give the command again that began it',
            )
    course = dataclasses.replace(
        config.curriculum,
        suites=settings.suites or config.curriculum.suites,
        levels=settings.levels or config.curriculum.levels,
    )
    turns = settings.max_turns or config.rollout.max_turns
    most = settings.result_characters or config.execute.result_characters
    return dataclasses.replace(
        config,
        model=model or config.model,
        curriculum=course,
        bfcl=settings.bfcl,
        tau2=settings.tau2,
        rollout=dataclasses.replace(config.rollout, max_turns=turns),
        execute=dataclasses.replace(config.execute, result_characters=most),
        facts=dataclasses.replace(config.facts, turns=max(turns, config.facts.turns)),
        seed=settings.seed,
    )


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
    columns = ['suite', 'tasks', 'success', '95%', f'pass@{samples}', 'process', 'turns', 'calls']
    columns.append('answers')
    rows = []
    for suite, numbers in suites.items():
        levels = {f'{suite}, level {level}': part for level, part in numbers['levels'].items()}
        for name, part in ({suite: numbers} | levels).items():
            low, high = part['success_wilson']
            row = [name, part['tasks'], part['success'], f'{low:.2f}–{high:.2f}']
            row += [part[f'pass_at_{samples}'], part.get('process_accuracy')]
            row += [part['turns'], part['calls']]
            rows.append([*row, answers(part['tier_mix'])])
    return columns, rows


def answers(shares: Mapping[str, float]) -> str:
    """Where answers came from, as far as any did."""
    return ', '.join(f'{tier} {share:.0%}' for tier, share in shares.items() if share)


def load_measured(settings: EvaluateSettings, config: RunConfig) -> tuple[Agent, Params]:
    """The model, or what the newest checkpoint of a run that has not ended made of it."""
    agent, folder = load_agent(config), pathlib.Path(settings.model)
    if not is_run(folder) or (folder / 'policy').is_dir():
        return agent, agent.params
    print(f'{folder} has not ended; measured at step {reached(folder)}', file=sys.stderr)
    return agent, halfway_params(folder, config, agent)


def play_here(settings: EvaluateSettings, config: RunConfig, tasks, open_session) -> list[Episode]:
    """The episodes of a model that is read from disk."""
    agent, params = load_measured(settings, config)
    rollout = rollout_of(
        agent, config, open_session,
        sampling=settings.sampling, samples=settings.samples, purpose='evaluate',
    )  # fmt: skip
    return rollout(params, tasks, 0)[1]


def play_there(
    settings: EvaluateSettings, config: RunConfig, tasks, open_session
) -> tuple[list[Episode], dict[str, int]]:
    """The episodes of a model behind an endpoint, and what they took."""
    where = EndpointSettings(
        url=settings.endpoint,
        model=settings.endpoint_model,
        key_variable=settings.endpoint_key,
        attempt_seconds=settings.endpoint_seconds,
        max_tokens=settings.endpoint_tokens,
    )
    endpoint = ChatEndpoint(where, settings.sampling, settings.endpoint_seconds)
    limits = dataclasses.replace(config.rollout, samples=settings.samples)
    with progress('episodes', len(tasks) * settings.samples) as advance:
        episodes = play_endpoint(
            endpoint, tasks, open_session, limits, settings.endpoint_workers, advance
        )
    return episodes, endpoint.usage


def evaluate(settings: EvaluateSettings) -> dict[str, Any]:
    """Plays the tasks; out come `suites`, `cost`, `usage` of an endpoint, and `episodes`."""
    config = config_of(settings)
    with refused():
        tasks = tasks_of(config, settings.split, settings.tasks)
    usage = None
    with sessions(settings, config) as open_session:
        if settings.endpoint:
            with refusing(EndpointError, ValueError):
                episodes, usage = play_there(settings, config, tasks, open_session)
        else:
            episodes = play_here(settings, config, tasks, open_session)
    suites = evaluation_metrics(episodes, ks=(1, settings.samples))
    live = live_sessions(config.execute)
    for suite, numbers in suites.items():
        accuracy = process_accuracy(suite, episodes)
        if accuracy is None:
            of_suite = [episode for episode in episodes if episode.task.suite == suite]
            accuracy = expert_accuracy(of_suite, live.open_session)[suite]
        numbers['process_accuracy'] = accuracy
    if usage and settings.endpoint_price:
        usage |= {'price': priced(usage, settings.endpoint_price)}
    return {'suites': suites, 'cost': cost_of(episodes), 'usage': usage, 'episodes': episodes}


def write_episodes(path: pathlib.Path, episodes: Sequence[Episode]) -> None:
    """A record each, as a run writes them."""
    records = (episode_record(episode, step=0, stage='evaluate') for episode in episodes)
    write_atomically(path, ''.join(json.dumps(record) + '\n' for record in records))


def hashes(settings: EvaluateSettings, episodes: Sequence[Episode]) -> dict[str, str | None]:
    """Of what was asked, under which settings, and of whom."""
    config = config_of(settings)
    tasks = list({episode.task.id: episode.task for episode in episodes}.values())
    model = None if settings.endpoint else model_hash(model_source(config.model))
    return {'tasks': tasks_hash(tasks), 'config': settings_hash(config), 'model': model}


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = read_arguments(sys.argv[1:])
    found = evaluate(settings)
    title = f'{settings.endpoint_model or settings.model}, split {settings.split}'
    print_table(title, *table(found['suites'], settings.samples))
    for told in (found['cost'], found['usage'] or {}):
        print(', '.join(f'{name.replace("_", " ")} {count:,}' for name, count in told.items()))
    if settings.episodes:
        write_episodes(settings.episodes, found['episodes'])
    if settings.json:
        write_evaluation(
            settings.json,
            {name: found[name] for name in ('suites', 'cost', 'usage')}
            | {'settings': settings, 'hashes': hashes(settings, found['episodes'])},
        )


if __name__ == '__main__':
    main()
