"""From settings to what a run is made of: agent, tasks, demonstrations, tool cache, functions.

Experiments compose what they need of these; nothing here decides what is done with them.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jinja2
import optax
from jax.sharding import Mesh
from jax.tree_util import Partial

from cacherl_jax import keys
from cacherl_jax.chat.parse import CallFormat
from cacherl_jax.chat.template import Chat, call_format, prove
from cacherl_jax.chat.tokenizer import load_tokenizer, locate_smollm2
from cacherl_jax.config import RunConfig
from cacherl_jax.mesh import make_mesh, parameter_placement, row_shares
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.logprob import first_turn_start, score
from cacherl_jax.policy.lora import LoraSettings, adapter_between, save_adapter
from cacherl_jax.policy.numerics import NumericsSettings, cast, computed_in
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Params, Shape
from cacherl_jax.policy.weights import load_policy, save_policy
from cacherl_jax.processes import is_first
from cacherl_jax.rollout import make_rollout
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.results import plain
from cacherl_jax.supervised.update import muon
from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.suites import BENCHMARKS, SUITES
from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.tool_cache.cache import ToolCache
from cacherl_jax.tools.execute import LiveSessions
from cacherl_jax.tools.together import asked_once
from cacherl_jax.tools.tool import specification

BASE = pathlib.Path(__file__).parent.parent / 'base'
LEEWAY = ('run_dir', 'starts', 'steps')  # settings that a run may change when it goes on


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """A policy that can be talked to."""

    shape: Shape
    params: Params
    chat: Chat
    call_format: CallFormat
    source: pathlib.Path  # where it was read
    mesh: Mesh


@contextlib.contextmanager
def refused(allowed: str = '') -> Iterator[None]:
    """What a file or a setting is refused for is the user's to mend: one message, no trace."""
    try:
        yield
    except (ValueError, FileNotFoundError, ModuleNotFoundError, jinja2.TemplateError) as error:
        raise Refusal(str(error), allowed=allowed) from error


def model_source(model: str) -> pathlib.Path:
    """Where the model of this name lies; a path is its own name."""
    places = {'base': lambda: BASE, 'smollm2': locate_smollm2}
    return pathlib.Path(places.get(model, lambda: model)())


def load_agent(config: RunConfig) -> Agent:
    """Read the model straight into its shards, and prove its chat template."""
    with refused():
        mesh = make_mesh(config.mesh)
    with refused('base, smollm2, a Hugging Face folder, a .gguf file'):
        source = model_source(config.model)
        shape, params, generation = load_policy(source, place=parameter_placement(mesh))
        tokenizer = load_tokenizer(source)
        if len(tokenizer) > shape.vocab:
            raise ValueError(
                f'{source}: the tokenizer has {len(tokenizer)} tokens and the model {shape.vocab}; '
                'give a folder in which they belong together'
            )
    with refused():
        if config.chat_template:
            own = config.chat_template != 'base'
            file = config.chat_template if own else BASE / 'chat_template.jinja'
            tokenizer.chat_template = pathlib.Path(file).read_text(encoding='utf-8')
        chat = Chat(tokenizer=tokenizer, end_ids=tuple(generation.stop_ids))
        prove(chat, thinking=True)
        written = call_format(chat)
    return Agent(
        shape=shape, params=params, chat=chat, call_format=written, source=source, mesh=mesh
    )


def save_agent(agent: Agent, params: Params, folder: pathlib.Path) -> None:
    """A Hugging Face folder, with the template that was trained with in place of the source's."""
    params = fetch(params)
    if is_first():
        save_policy(folder, agent.shape, params, agent.source)
    write_atomically(folder / 'chat_template.jinja', agent.chat.tokenizer.chat_template)


def save_learned(agent: Agent, lora: LoraSettings, params: Params, folder: pathlib.Path) -> None:
    """`policy/`; and `adapter/`, for PEFT on the agent's source, where adapters were learned.

    Two were, the supervised start's and RL's, each of `lora.rank`; together they are one of twice.
    """
    save_agent(agent, params, folder / 'policy')
    if lora.rank:
        both = dataclasses.replace(lora, rank=2 * lora.rank, alpha=2.0 * lora.rank)
        adapter = fetch(adapter_between(agent.params, params, both))
        if is_first():
            save_adapter(folder / 'adapter', adapter, both, str(agent.source))


def task_source(config: RunConfig) -> Callable[[str, str, int, int], Task]:
    """source(suite, split, level, number) -> Task, for the suites of the configuration."""
    shipped = {suite.name: suite for suite in SUITES}
    known = [*shipped, *BENCHMARKS]
    unknown = set(config.curriculum.suites) - set(known)
    if unknown:
        raise Refusal(f'no suite {sorted(unknown)}', allowed=f'{sorted(known)}')
    read = functools.cache(lambda suite, split: _by_level(suite, split, config))

    def source(suite, split, level, number):
        if suite in shipped:
            return shipped[suite].task(split, level, number)
        tasks = read(suite, split).get(level)
        if not tasks:
            raise Refusal(f'{suite} has no {split} task of level {level}')
        return tasks[number % len(tasks)]

    return source


def training_source(config: RunConfig) -> Callable[[str, int, int], Task]:
    """source(suite, level, number) -> training Task."""
    source = task_source(config)
    return lambda suite, level, number: source(suite, 'train', level, number)


def _by_level(suite: str, split: str, config: RunConfig) -> dict[int, list[Task]]:
    """The tasks of a benchmark, in its order within each level."""
    settings = {'bfcl': config.bfcl, 'tau2': config.tau2}
    found: dict[int, list[Task]] = {}
    for task in BENCHMARKS[suite].tasks(split, settings[suite]):
        found.setdefault(task.level, []).append(task)
    return found


def tasks_of(config: RunConfig, split: str, count: int) -> list[Task]:
    """The first `count` tasks of each suite and level, each task once."""
    source, course = task_source(config), config.curriculum
    found = {
        task.id: task
        for suite in course.suites
        for level in course.levels
        for task in (source(suite, split, level, number) for number in range(count))
    }
    return list(found.values())


def demonstrations(tasks: Sequence[Task], live: LiveSessions) -> list[Episode]:
    """The expert's episode of each task, its calls executed live; by the first of processes."""

    def answers():
        for task in tasks:
            session = live.open_session(task.id, task.tools, task.start, 0)
            episodes.append(demonstrate(task, session.answer))
            session.close()
        return [turn.results for one in episodes for turn in one.turns if turn.calls]

    episodes: list[Episode] = []
    said = iter(asked_once(answers))
    return episodes or [demonstrate(task, lambda calls: next(said)) for task in tasks]


def record_demonstrations(cache: ToolCache, episodes: Sequence[Episode]) -> None:
    """Put what the tools said to experts into the cache, as their tasks' gold."""
    for episode in episodes:
        pairs = [
            pair for turn in episode.turns for pair in zip(turn.calls, turn.results, strict=True)
        ]
        cache.record_results(episode.task.id, episode.task.tools, pairs, provenance='teacher')


def make_score(
    agent: Agent, sampling: SamplingSettings, numerics: NumericsSettings = NumericsSettings()
) -> Partial:
    """An agent's scoring function; the same one for the same distribution, so it compiles once."""
    return _make_score(agent.shape, agent.chat.end_ids, sampling, numerics, agent.mesh)


@functools.cache
def _make_score(
    shape: Shape, end_ids, sampling: SamplingSettings, numerics: NumericsSettings, mesh: Mesh
) -> Partial:
    """score(params, tokens, length, sampled), of the distribution sampled from.

    Packed rows are told apart by `position`, `segment` and `split`; with a `critic` values come
    third.
    """

    def scored(
        params, tokens, length, sampled, position=None, segment=None, split=None, critic=None
    ):
        no_end = None
        if sampling.min_tokens:
            # Whoever ended all the same was free to: that token is another policy's.
            ended = jax.numpy.isin(tokens, jax.numpy.asarray(end_ids))
            no_end = first_turn_start(sampled, sampling.min_tokens, segment) & ~ended
        return score(
            computed_in(params, numerics.dtype),
            shape,
            tokens,
            sampled,
            sampling=sampling,
            end_ids=end_ids,
            no_end=no_end,
            position=position,
            segment=segment,
            split=split,
            remat=numerics.remat,
            attention=numerics.attention,
            critic=critic,
            mesh=mesh,
        )

    return Partial(scored)


def rollout_of(
    agent: Agent,
    config: RunConfig,
    open_session: Callable,
    *,
    sampling: SamplingSettings | None = None,
    samples: int | None = None,
    rows: int | None = None,
    purpose: str = 'rollout',
):
    """A rollout of this agent; evaluation has sampling, samples and randomness of its own."""
    dtype, settings = config.numerics.dtype, config.rollout
    if samples is not None:
        settings = dataclasses.replace(settings, samples=samples)
    sizes = config.decode.shared_by(settings.samples, row_shares(agent.mesh))
    decoder = make_decoder(
        agent.shape, sizes, sampling or config.samplings, agent.chat.end_ids,
        jax.numpy.dtype(dtype), agent.mesh,
    )  # fmt: skip
    root = keys.stream(keys.root(config.seed), purpose)
    rollout = make_rollout(
        agent.chat, decoder, open_session, settings, root, rows, agent.call_format
    )
    return lambda params, groups, step: rollout(cast(dtype)(params), groups, step)


def rl_rate(config: RunConfig) -> optax.Schedule:
    """The learning rate of RL by optimizer step: five RL steps of warm-up, then level or falling.

    It falls linearly, to a tenth at `decay_steps` RL steps after the warm-up.
    """
    high, each = config.learning_rate, config.update.epochs * config.update.minibatches
    low = 0.1 * high if config.decay_steps else high
    warm = optax.linear_schedule(0.2 * high, high, 5 * each)
    fall = optax.linear_schedule(high, low, max(1, config.decay_steps * each))
    return optax.join_schedules([warm, fall], [5 * each])


def rl_optimizer(config: RunConfig) -> optax.GradientTransformation:
    """Without weight decay, clipped at norm 1."""
    rate = rl_rate(config)
    if config.optimizer == 'muon':
        return muon(rate, weight_decay=0.0)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98, weight_decay=0.0))


def tool_specifications(task: Task) -> list[dict[str, Any]]:
    """What the prompt of a task declares."""
    return [specification(tool) for tool in task.tools]


def lasting(config: RunConfig) -> dict[str, Any]:
    """The settings that a run may not change when it goes on.

    It may go on with another mesh, whose numbers are the same but for rounding.
    """
    settings = plain(config)
    return {name: value for name, value in settings.items() if name not in (*LEEWAY, 'mesh')}
