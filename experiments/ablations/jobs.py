"""The runs of an ablation: what each is, how far it has come, what it may take.  Nothing runs here.

A run's folder is named after its settings and its model, so that rows with the same settings, of
one ablation or of several, are one run, and other settings never meet the results of these.
"""

import dataclasses
import json
import pathlib
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence

from cacherl_jax.compose.agent import LEEWAY, model_source
from cacherl_jax.compose.start import model_hash, start_config
from cacherl_jax.config import RunConfig
from cacherl_jax.run.ending import State, state_of
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain, settings_hash

TRAIN = pathlib.Path(__file__).parents[1] / 'train.py'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one row."""

    row: str
    config: RunConfig  # with its seed and its folder

    @property
    def folder(self) -> pathlib.Path:
        return self.config.run_dir

    @property
    def settings(self) -> pathlib.Path:
        """The file that the run is started from, and writes again when it begins."""
        return self.folder / 'config.json'

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, str(TRAIN), '--preset', str(self.settings))

    @property
    def arguments(self) -> tuple[str, ...]:
        return ('--preset', str(self.settings))

    @property
    def start(self) -> str:
        """Equal for runs that begin from the same start."""
        return settings_hash(start_config(self.config))

    @property
    def state(self) -> State:
        return state_of(self.folder)

    def prepare(self) -> None:
        """Write the settings."""
        text = json.dumps(plain(self.config), indent=2) + '\n'
        if not self.settings.exists() or self.settings.read_text(encoding='utf-8') != text:
            write_atomically(self.settings, text)


def jobs_of(rows: Mapping[str, RunConfig], seeds: Sequence[int], out: pathlib.Path) -> list[Job]:
    """One for each row and seed; rows vary slowly, so that few wait for each other's start."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise Refusal(f'seeds must be named, each once, got {list(seeds)}')
    models = {config.model: _hash_of(config.model) for config in rows.values()}
    found = []
    for row, config in rows.items():
        for seed in seeds:
            seeded = dataclasses.replace(config, seed=seed, starts=out / 'starts')
            told = {name: x for name, x in plain(seeded).items() if name not in LEEWAY}
            name = settings_hash([told, config.steps, models[config.model]])[:12]
            folder = out / 'runs' / f'{name}-seed-{seed}'
            found.append(Job(row=row, config=dataclasses.replace(seeded, run_dir=folder)))
    return found


def _hash_of(model: str) -> str:
    source = model_source(model)
    if not source.exists():
        raise Refusal(f'there is no model {model}', allowed='base, smollm2, a folder, a .gguf file')
    return model_hash(source)


# ---- what a run may take

# Seconds on two cores with the model that ships; finished runs put a scale to them.
BEGIN, LESSON, EPISODE, ROW = 20.0, 0.15, 0.2, 0.15


def step_seconds(config: RunConfig) -> float:
    """A step of RL: fresh episodes, and an update on them and on cached and text rows."""
    share = max(config.mix.share.values)
    rows = config.rows / (1 - share) + config.text_rows * bool(config.update.loss.language_weight)
    return config.rows * EPISODE + rows * ROW * config.update.epochs


def start_seconds(config: RunConfig) -> float:
    """Learning demonstrations, again after each rejection sampling, and filling the cache."""
    settings, tasks = config.supervised, _places(config) * config.curriculum.tasks
    again = settings.rejection.iterations if settings.rejection.samples else 0
    lessons = _places(config) * settings.demonstrations + settings.general
    played = tasks * (config.collection.samples + again * settings.rejection.samples)
    learned = lessons * settings.epochs * (1 + again) * LESSON
    return learned + (played + _evaluated(config)) * EPISODE


def job_seconds(config: RunConfig, makes_start: bool) -> float:
    """A whole run, with its evaluations during RL and at the end."""
    every = config.evaluation.every
    evaluations = 1 + (max(0, config.steps - 1) // every if every else 0)
    rl = config.steps * step_seconds(config) + evaluations * _evaluated(config) * EPISODE
    return BEGIN + rl + (start_seconds(config) if makes_start else 0.0)


def _places(config: RunConfig) -> int:
    return len(config.curriculum.suites) * len(config.curriculum.levels)


def _evaluated(config: RunConfig) -> int:
    settings = config.evaluation
    return _places(config) * (settings.unseen + settings.seen) * settings.samples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """A job with what is known of it before it runs."""

    job: Job
    state: State
    makes_start: bool  # nobody has made the start that it begins from
    seconds: float  # still to come


def plan(jobs: Sequence[Job]) -> list[Planned]:
    """Every job in order; the first unfinished one of a start makes it, if no run ever has."""
    states = {job.folder: job.state for job in jobs}
    made = {job.start for job in jobs if states[job.folder] is not State.NEW}
    scale, seen, found = scale_of(jobs), set(), []
    for job in jobs:
        state = states[job.folder] if job.folder not in seen else State.FINISHED
        seen.add(job.folder)
        makes = state is State.NEW and job.start not in made
        made.add(job.start)
        seconds = 0.0 if state is State.FINISHED else scale * job_seconds(job.config, makes)
        found.append(Planned(job=job, state=state, makes_start=makes, seconds=seconds))
    return found


def scale_of(jobs: Iterable[Job]) -> float:
    """How much longer steps of these runs took than they were thought to; 1 before the first."""
    found = [measured / step_seconds(job.config) for job in jobs for measured in _measured(job)]
    return statistics.median(found) if found else 1.0


def _measured(job: Job) -> list[float]:
    """Seconds of the steps of a run but the first, which compiles."""
    path = job.folder / 'metrics.jsonl'
    lines = path.read_text(encoding='utf-8').split('\n')[:-1] if path.exists() else []
    steps = [json.loads(line) for line in lines]
    return [line['perf/step_seconds'] for line in steps if line.get('perf/step_seconds')][1:]
