"""What comes before RL: the supervised start, its own right attempts, its tool cache, its success.

Runs that agree on everything that matters here have the same start.  Where the settings name a
folder for starts it is made by the first of them and taken from there by all others: its folder is
named after the settings it was made from, the model, the template and the examples it learned.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from cacherl_jax.compose.agent import Agent, tasks_of
from cacherl_jax.compose.contents import file_hash
from cacherl_jax.compose.learning import Lessons, supervised_stages
from cacherl_jax.compose.samples import Samples, all_accepted, read_samples, write_samples
from cacherl_jax.compose.stages import evaluate, fill_tool_cache, filling
from cacherl_jax.config import RunConfig
from cacherl_jax.evaluate.record import episode_record
from cacherl_jax.grpo.loss import LossSettings
from cacherl_jax.policy.shape import Params
from cacherl_jax.processes import is_first, told
from cacherl_jax.rollout_cache.curriculum import CurriculumSettings
from cacherl_jax.rollout_cache.mix import MixSettings
from cacherl_jax.run.checkpoint import make_checkpoints
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.metrics import make_metrics
from cacherl_jax.run.results import plain, settings_hash
from cacherl_jax.run.stop import leave_if
from cacherl_jax.schedule import Schedule
from cacherl_jax.seat import RolloutSettings

NOTHING_SAVED = 'before RL; the same command begins anew'
TOOL_CACHE = 'tool_cache.sqlite'
SAMPLES = 'samples'  # what rejection sampling accepted, in the folder of a shared start
MODEL_FILES = ('.safetensors', '.json')
OF_RL = (
    'run_dir', 'starts', 'steps', 'groups', 'refills', 'optimizer', 'learning_rate', 'text_rows',
    'text', 'decay_steps', 'checkpoint_steps', 'final', 'hybrid', 'weights', 'buffer', 'admission',
    'advantage', 'watchdog',
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """Where RL begins; the tool cache lies in the run's folder."""

    params: Params
    learning_calls: int  # live calls that rejection sampling made
    filling_calls: int  # live calls that filled the tool cache; 0 for a run without one
    suites: dict[str, Any]  # its evaluation, by suite
    episodes: list[dict[str, Any]]  # records of the evaluation
    samples: Samples  # what rejection sampling accepted


def start_config(config: RunConfig) -> RunConfig:
    """The settings with all that belongs to RL as if never set: a start is made from these."""
    unset = RunConfig()
    course, former = config.curriculum, config.update.loss
    loss = LossSettings(
        supervised_weight=former.supervised_weight,
        kl_weight=0.0,
        aggregation=former.aggregation,
        constant_tokens=former.constant_tokens,
    )
    return dataclasses.replace(
        config,
        curriculum=CurriculumSettings(
            suites=course.suites, levels=course.levels, tasks=course.tasks
        ),
        tool_cache=filling(config.tool_cache),
        rollout=dataclasses.replace(config.rollout, samples=RolloutSettings().samples),
        mix=MixSettings(share=Schedule(start=0.0)),
        update=dataclasses.replace(config.update, loss=loss),
        evaluation=dataclasses.replace(config.evaluation, every=0),
        **{name: getattr(unset, name) for name in OF_RL},
    )


def start_of(agent: Agent, lessons: Lessons, config: RunConfig, stop: Callable[[], bool]) -> Start:
    """The start that the settings ask for; its tool cache is put into the run's folder.

    A run that always asks the tools uses no cache, so none is filled, and none counted, for it.
    """
    live = config.tool_cache.mode == 'live'
    if config.starts is None:
        return _make(agent, lessons, config, None if live else config.run_dir / TOOL_CACHE, stop)
    place = config.starts / start_key(agent, lessons, config)
    with _alone(place.with_name(f'{place.name}.lock'), stop):
        kept = make_checkpoints(place, start_config(config))
        if kept.latest() is None:
            made = _make(agent, lessons, config, place / TOOL_CACHE, stop)
            if is_first():
                write_samples(place / SAMPLES, made.samples)
            apart = ('params', 'samples')
            records = {
                name: plain(value) for name, value in vars(made).items() if name not in apart
            }
            kept.save(0, {'params': made.params}, records)
        _, tree, records = kept.restore({'params': agent.params})
    rejection = config.supervised.rejection.samples
    tasks = tasks_of(config, 'train', config.curriculum.tasks) if rejection else []
    start = Start(
        params=tree['params'], samples=read_samples(place / SAMPLES, tasks), **records
    )  # fmt: skip
    if live:
        return dataclasses.replace(start, filling_calls=0)
    copy_tool_cache(place / TOOL_CACHE, config.run_dir / TOOL_CACHE)
    return start


def start_key(agent: Agent, lessons: Lessons, config: RunConfig) -> str:
    """Equal for runs that have the same start."""
    rows = fetch(lessons.rows)
    parts = {
        'settings': start_config(config),
        'model': model_hash(agent.source),
        'template': agent.chat.tokenizer.chat_template or '',
        'examples': [_hash(rows.tokens.tobytes()), _hash(rows.sampled.tobytes())],
        'tasks': file_hash(config.evaluation.file) if config.evaluation.file else '',
    }
    if config.supervised.rejection.samples:
        parts['samples'] = SAMPLES  # a start of before these were kept is another
    return settings_hash(parts)


def model_hash(source: pathlib.Path) -> str:
    """Equal for models of equal files, whether a folder or one file; templates count apart."""
    files = [source]
    if source.is_dir():
        files = sorted(file for file in source.iterdir() if file.suffix in MODEL_FILES)
    return settings_hash([file_hash(file) for file in files])


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _make(
    agent: Agent,
    lessons: Lessons,
    config: RunConfig,
    path: pathlib.Path | None,
    stop: Callable[[], bool],
) -> Start:
    """Learn, fill the tool cache at `path`, evaluate; a stop that was asked for keeps nothing."""
    settings, steps = start_config(config), iter(range(1_000_000))
    written = make_metrics(config.run_dir / 'supervised')

    def tell(metrics):
        written.write(next(steps), metrics)
        leave_if(stop(), NOTHING_SAVED)

    learned = supervised_stages(agent, lessons, settings, tell)
    written.close()
    params = learned.params
    calls = fill_tool_cache(agent, params, settings, path) if path else 0
    leave_if(stop(), NOTHING_SAVED)
    found = evaluate(agent, params, settings)
    return Start(
        params=params,
        samples=all_accepted(learned.accepted),
        learning_calls=learned.live_calls,
        filling_calls=calls,
        suites=plain(found.suites),
        episodes=[episode_record(one, step=-1, stage='supervised') for one in found.episodes],
    )


def copy_tool_cache(source: pathlib.Path, target: pathlib.Path) -> None:
    """A closed cache in place of whatever lay at the target; the first of processes copies."""
    if not is_first():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for part in ('-wal', '-shm'):
        target.with_name(target.name + part).unlink(missing_ok=True)
    shutil.copyfile(source, target)


@contextlib.contextmanager
def _alone(path: pathlib.Path, stop: Callable[[], bool]) -> Iterator[None]:
    """Holds a lock that ends with the process; waits for whoever holds it.

    Of several processes the first one holds it for all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', encoding='utf-8') as file:
        while not told(lambda: _locked(file)):
            leave_if(stop(), NOTHING_SAVED)
            time.sleep(0.2)
        yield


def _locked(file: IO) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
