"""The stages around RL, each a function: supervised start, filling the tool cache, evaluation."""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from cacherl_jax import keys
from cacherl_jax.compose.agent import (
    Agent,
    demonstrations,
    record_demonstrations,
    refused,
    rollout_of,
    task_source,
    tasks_of,
)
from cacherl_jax.compose.learning import Lessons, lessons_of
from cacherl_jax.config import RunConfig
from cacherl_jax.evaluate.metrics import evaluation_metrics
from cacherl_jax.policy.shape import Params
from cacherl_jax.processes import is_first, told
from cacherl_jax.rewards.facts import gather_facts
from cacherl_jax.supervised.dataset import demonstration_arrays, general_rows, padded
from cacherl_jax.supervised.lessons import imported_arrays, with_thinking
from cacherl_jax.tasks.listed import read_task_list
from cacherl_jax.tasks.suites import process_accuracy
from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.tool_cache.settings import ToolCacheSettings
from cacherl_jax.tool_cache.thinning import ThinSettings, thin_file
from cacherl_jax.tool_cache.together import open_tool_cache
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.trajectory import Trajectory


def demonstrated_lessons(agent: Agent, config: RunConfig) -> Lessons:
    """The expert's episodes of the first training tasks of each suite and level, and files.

    What is longer than the context is left out whole, and told.
    """
    settings, context = config.supervised, config.decode.context_tokens
    tasks = tasks_of(config, 'train', settings.demonstrations)
    arrays, fitting = [], []
    with refused():
        played = demonstrations(tasks, live_sessions(config.execute))
        episodes = with_thinking(played, settings.thinking)
        if episodes:
            gather_facts(episodes, config.facts)  # what does not fit its arrays is refused now
            arrays, fitting = demonstration_arrays(agent.chat, episodes, context)
        if left_out := len(episodes) - len(fitting):
            print(
                f'{left_out} of {len(episodes)} demonstrations left out because they are longer '
                f'than decode.context_tokens ({context})'
            )
        arrays += imported_arrays(agent.chat, settings, context, agent.call_format)
    arrays += general_rows(agent.chat, settings.general, context, config.seed)
    return lessons_of(arrays, [episodes[i] for i in fitting], config)


def filling(settings: ToolCacheSettings) -> ToolCacheSettings:
    """The settings under which a cache is filled, whatever it is to answer later."""
    # Every call runs: an answer that is merely like another is none to train on for ever.
    tiers = dataclasses.replace(settings.tiers, fuzzy=False, best_effort=False)
    return dataclasses.replace(settings, mode='read_through', tiers=tiers, content_hash='')


def fill_tool_cache(agent: Agent, params: Params, config: RunConfig, path: pathlib.Path) -> int:
    """Execute training tasks live, by the expert and by the supervised policy; record every answer.

    Returns the number of live tool calls this took.
    """
    for part in ('', '-wal', '-shm') if is_first() else ():
        path.with_name(path.name + part).unlink(missing_ok=True)
    cache = open_tool_cache(path, filling(config.tool_cache), config.execute)
    tasks = tasks_of(config, 'train', config.curriculum.tasks)
    live = live_sessions(config.execute)
    if config.collection.demonstrations:
        record_demonstrations(cache, demonstrations(tasks, live))
    if config.collection.samples:
        rows = len(tasks) * config.collection.samples
        rollout = rollout_of(
            agent, config, cache.open_session,
            samples=config.collection.samples, rows=rows, purpose='collect',
        )  # fmt: skip
        rollout(params, tasks, 0)
        cache.commit()
    calls = told(lambda: live.live_calls) + cache.live_calls
    cache.close()
    if config.collection.thin != ThinSettings() and is_first():
        tools = {tool.identity: tool for task in tasks for tool in task.tools}
        thin_file(path, tools, config.collection.thin, config.tool_cache.tiers.fuzzy_threshold)
    return calls


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was played, and the numbers of it by suite."""

    episodes: list[Episode]
    suites: dict[str, dict]  # success, success_seen, turns, calls, levels ... by suite


def _refuse_unfit_list(tasks: Sequence[Task], config: RunConfig) -> None:
    """Success on unseen entities needs test tasks, and some of every suite."""
    splits, suites = ({getattr(task, name) for task in tasks} for name in ('split', 'suite'))
    if splits != {'test'} or suites != set(config.curriculum.suites):
        raise ValueError(
            f'{config.evaluation.file} must list test tasks of {sorted(config.curriculum.suites)}, '
            f'it lists {sorted(splits)} tasks of {sorted(suites)}'
        )


def evaluation_tasks(config: RunConfig) -> tuple[list[Task], list[Task]]:
    """Unseen entities (test split), and seen ones."""
    if config.evaluation.file:
        with refused():
            source, suites = task_source(config), config.curriculum.suites
            unseen = read_task_list(config.evaluation.file, source, suites)
            _refuse_unfit_list(unseen, config)
    else:
        unseen = tasks_of(config, 'test', config.evaluation.unseen)
    return unseen, tasks_of(config, 'train', config.evaluation.seen)


def evaluate(agent: Agent, params: Params, config: RunConfig, step: int = 0) -> Evaluation:
    """Play unseen and seen tasks live; success is what a task's own check says, not the reward."""
    unseen, seen = evaluation_tasks(config)
    settings = config.evaluation
    tasks = unseen + seen
    live = live_sessions(config.execute)
    rollout = rollout_of(
        agent, config, live.open_session,
        sampling=settings.sampling, samples=settings.samples, purpose='evaluate',
    )  # fmt: skip
    _, episodes = rollout(params, tasks, step)
    new = [episode for episode in episodes if episode.task.split == 'test']
    old = [episode for episode in episodes if episode.task.split != 'test']
    suites, known = evaluation_metrics(new), evaluation_metrics(old)
    for name, numbers in suites.items():
        numbers['success_seen'] = known[name]['success']
        if (accuracy := process_accuracy(name, new)) is not None:
            numbers['process_accuracy'] = accuracy
    return Evaluation(episodes=episodes, suites=suites)


def mean_success(suites: dict[str, dict]) -> float:
    """Mean over suites of success on unseen entities."""
    return float(np.mean([numbers['success'] for numbers in suites.values()]))


def text_rows(
    agent: Agent, lessons: Lessons, config: RunConfig, root: jax.Array, step: int
) -> tuple[Trajectory, list]:
    """Rows for the language-model term of a step, and their lengths.

    What RL forgets is what it does not play: so they are conversations about nothing, others at
    every step, unless the settings ask for what the supervised stage learned.
    """
    if config.text == 'general':
        seed, context = f'text {config.seed} {step}', config.decode.context_tokens
        arrays = general_rows(agent.chat, config.text_rows, context, seed)
        rows, lengths = padded(arrays, context)
        return rows, lengths.tolist()
    key, many = keys.stream(root, 'text', step), len(lessons.lengths)
    chosen = np.asarray(jax.random.choice(key, many, (config.text_rows,), replace=False))
    return jax.tree.map(lambda x: x[chosen], lessons.rows), lessons.lengths[chosen].tolist()


def worst_tier_counts(episodes: Sequence[Episode]) -> dict[str, int]:
    """Answers by tier, over the results of all episodes."""
    counts: dict[str, int] = {}
    for episode in episodes:
        for turn in episode.turns:
            for result in turn.results:
                name = result.tier.name.lower()
                counts[name] = counts.get(name, 0) + 1
    return counts
