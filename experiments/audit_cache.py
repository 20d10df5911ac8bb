"""Can the cache be trusted, and does it change what a policy does?

    python experiments/audit_cache.py runs/small --plot audit.png --json audit.json
    python experiments/audit_cache.py expert --suites trip research --coverage 0.5 --samples 4

One policy plays the same tasks with the same randomness, once with the tools and once from the
cache alone.  A sample of the hits is executed again in the state they were given in: the share that
is the same, by tier and by tool.  Side by side the episodes show where the two ways part, and what
that does to the reward.  Without a run there is no cache, so the experts' demonstrations make one;
`coverage` leaves out some of what they asked.  `expert` needs no model: the tasks' experts play,
but now and then they word a text otherwise, or ask what they asked before.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import tyro

from cacherl_jax.compose.agent import demonstrations, load_agent, refused, rollout_of, tasks_of
from cacherl_jax.compose.command import saved_config
from cacherl_jax.config import PRESETS, RunConfig
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.tool_cache.cache import ToolCache, make_tool_cache
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Call
from experiments.audit_episodes import divergence, fidelity, reexecute_sample, side_by_side
from experiments.audit_expert import play_experts

PLOT = 'the plot needs matplotlib; get it with: pip install matplotlib'


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What is played, and from which cache."""

    # A run folder, base, smollm2, a Hugging Face folder, a .gguf; or expert.
    model: tyro.conf.Positional[str]
    preset: Literal[*PRESETS] = 'small'  # sizes and suites of a model that is no run's
    suites: tuple[str, ...] = ()  # none named: those of the run or the preset
    levels: tuple[int, ...] = ()
    split: Literal['train', 'validation', 'test'] = 'train'
    tasks: int = 4  # of each suite and level
    samples: int = 2  # attempts at each task
    sampling: SamplingSettings = SamplingSettings(temperature=0.8)
    cache: pathlib.Path | None = None  # none: that of the run, or one of demonstrations
    carelessness: float = 0.3  # share of an expert's calls that it changes
    coverage: float = 1.0  # share of the demonstrations' reading calls that are recorded
    hits: int = 200  # most that are executed again
    seed: int = 0
    plot: pathlib.Path | None = None  # .png, .pdf or .svg
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        for name in ('coverage', 'carelessness'):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f'{name} must be in 0..1, got {getattr(self, name)}')
        for name in ('tasks', 'samples', 'hits'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')


def config_of(settings: AuditSettings) -> RunConfig:
    """The run's own settings, or the preset's, with the model and tasks that are asked for."""
    folder, model = pathlib.Path(settings.model), settings.model
    config = PRESETS[settings.preset]
    if (folder / 'policy').is_dir():
        config, model = saved_config(folder), str(folder / 'policy')
    suites = settings.suites or config.curriculum.suites
    levels = settings.levels or config.curriculum.levels
    course = dataclasses.replace(config.curriculum, suites=suites, levels=levels)
    return dataclasses.replace(config, model=model, curriculum=course, seed=settings.seed)


@contextlib.contextmanager
def opened(settings: AuditSettings, config: RunConfig, tasks: list[Task]) -> Iterator[ToolCache]:
    """The cache that is audited; it is only read."""
    replay = dataclasses.replace(config.tool_cache, mode='replay', content_hash='')
    own = pathlib.Path(settings.model) / 'tool_cache.sqlite'
    path = settings.cache or (own if own.is_file() else ':memory:')
    with refused(), contextlib.closing(make_tool_cache(path, replay, config.execute)) as cache:
        if path == ':memory:':
            fill(cache, tasks, settings.coverage, settings.seed)
        yield cache


def fill(cache: ToolCache, tasks: Sequence[Task], coverage: float, seed: int) -> None:
    """Records the experts' demonstrations, some reading calls left out."""
    for episode in demonstrations(tasks, live_sessions()):
        draw, tools = random.Random(f'{seed}/{episode.task.id}'), episode.task.tools
        moving = {tool.name for tool in tools if tool.changes_state}
        pairs = [
            (call, result)
            for turn in episode.turns
            for call, result in zip(turn.calls, turn.results, strict=True)
            if draw.random() < coverage or (isinstance(call, Call) and call.name in moving)
        ]
        cache.record_results(episode.task.id, tools, pairs)


def play_both(
    play: Callable[[Callable], Sequence[Episode]], cache: ToolCache
) -> tuple[Sequence[Episode], Sequence[Episode]]:
    """What `play(open_session)` plays with the tools, and with the cache."""
    return play(live_sessions(cache.runner.settings).open_session), play(cache.open_session)


def player(
    settings: AuditSettings, config: RunConfig, tasks: Sequence[Task]
) -> Callable[[Callable], list[Episode]]:
    """play(open_session) -> episodes: the same policy and randomness each time."""
    if settings.model == 'expert':
        return functools.partial(
            play_experts, tasks, settings.samples, settings.carelessness, settings.seed
        )
    agent = load_agent(config)

    def play(open_session: Callable) -> list[Episode]:
        rollout = rollout_of(
            agent, config, open_session,
            sampling=settings.sampling, samples=settings.samples, purpose='audit',
        )  # fmt: skip
        return rollout(agent.params, tasks, 0)[1]

    return play


def audit(settings: AuditSettings) -> dict[str, Any]:
    """Plays, executes again, compares."""
    config = config_of(settings)
    with refused():
        tasks = tasks_of(config, settings.split, settings.tasks)
    play = player(settings, config, tasks)
    with opened(settings, config, tasks) as cache:
        live, cached = play_both(play, cache)
        told = {'entries': len(cache.entries()), 'content_hash': cache.content_hash}
    results = Counter(r.tier.name.lower() for e in cached for turn in e.turns for r in turn.results)
    judged = reexecute_sample(cached, settings.hits, settings.seed)
    told |= {'results': dict(results), 'fidelity': fidelity(judged)}
    return told | {'divergence': divergence(side_by_side(live, cached))}


def show(told: dict[str, Any]) -> None:
    """Two tables: hits executed again, and the two ways side by side."""
    rows = [
        [name, part['hits'], part['fidelity'], '{:.2f}–{:.2f}'.format(*part['wilson'])]
        + [part['agreement']]
        for name, part in told['fidelity'].items()
    ]
    print_table('hits executed again', ['tier, tool', 'hits', 'same', '95%', 'agreement'], rows)
    parts = told['divergence']
    rows = [['episodes that part', parts['diverged_share'], *parts['diverged_wilson'], None]]
    for name in ('reward', 'success'):
        gap = parts[name]
        rows.append([f'{name}, live', gap['first'], None, None, None])
        rows.append([f'{name}, cache − live', gap['difference'], *gap['interval'], gap['p_value']])
    print_table(f'{parts["episodes"]} episodes played twice', ['', '', '95%', '', 'p'], rows)
    causes = ', '.join(f'{name} {count}' for name, count in parts['causes'].items())
    print(f'first difference: {causes or "none"}; results by tier: {told["results"]}')


def plot(told: dict[str, Any], path: pathlib.Path) -> None:
    """Fidelity with its intervals on the left; reward and success of either way on the right."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(PLOT) from error
    names, parts = list(told['fidelity']), list(told['fidelity'].values())
    figure = Figure(figsize=(9, 1.5 + 0.28 * max(6, len(names))), layout='constrained')
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    for place, part in enumerate(parts):
        left.plot(part['wilson'], [place, place], color='0.6', linewidth=3)
        left.plot(part['fidelity'], place, 'o', color='tab:blue')
    left.set_yticks(
        range(len(names)), [f'{n} ({p["hits"]})' for n, p in zip(names, parts, strict=True)]
    )
    left.invert_yaxis()
    left.set(xlim=(-0.02, 1.02), xlabel='share of hits that are the same when executed again')
    for place, name in enumerate(('reward', 'success')):
        gap = told['divergence'][name]
        right.bar(
            [place - 0.2, place + 0.2],
            [gap['first'], gap['second']],
            0.38,
            color=['0.7', 'tab:blue'],
        )
    right.set_xticks([0, 1], ['reward', 'success'])
    right.set(ylim=(0, 1), xlabel='grey: live, blue: from the cache')
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(AuditSettings, description=__doc__)
    told = audit(settings)
    show(told)
    if settings.json:
        text = {'settings': plain(settings), 'versions': versions()} | told
        write_atomically(settings.json, json.dumps(text, indent=2) + '\n')
    if settings.plot:
        with refusing(ModuleNotFoundError, ValueError):
            plot(told, settings.plot)


if __name__ == '__main__':
    main()
