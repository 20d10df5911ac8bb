"""The start of a run: made once for all that agree on it, and untouched by looking at RL."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from rollout_cache_rows import task
from tiny_policy import SETTINGS, make_policy

from cacherl_jax.compose import learning
from cacherl_jax.compose import start as start_module
from cacherl_jax.compose.agent import load_agent
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.run import Run
from cacherl_jax.compose.stages import demonstrated_lessons
from cacherl_jax.compose.start import start_config, start_key, start_of
from cacherl_jax.config import PRESETS, RunConfig
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.schedule import Schedule
from cacherl_jax.tool_cache.cache import make_tool_cache
from cacherl_jax.tool_cache.thinning import ThinSettings
from experiments.ablations.definition import with_fields
from experiments.train import train


@pytest.fixture(scope='module')
def begun(tmp_path_factory):
    """A configuration with a small policy, and the agent and lessons that it asks for."""
    folder = tmp_path_factory.mktemp('model')
    config = read_config('', ['--model', str(make_policy(folder)), *SETTINGS])
    agent = load_agent(config)
    return config, agent, demonstrated_lessons(agent, config)


def going_on():
    """Nobody asks for a stop."""
    return False


def equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def metrics_of(folder):
    return [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]


@pytest.mark.parametrize('preset', list(PRESETS))
def test_the_settings_of_a_start_are_settings_and_those_of_themselves(preset):
    once = start_config(PRESETS[preset])
    assert isinstance(once, RunConfig) and start_config(once) == once


def test_min_tokens_belongs_to_a_start_whatever_else_it_forbids():
    config = with_fields(PRESETS['small'], {'sampling.min_tokens': 4})
    assert start_config(config).sampling.min_tokens == 4


@pytest.mark.parametrize(
    'difference',
    [
        {'steps': 0},
        {'update.loss.kl_weight': 0.0},
        {'hybrid.tier_aware': 'worst'},
        {'tool_cache.tiers.fuzzy': False},
        {'tool_cache.mode': 'live'},
        {'mix.share': Schedule(start=0.0)},
        {'curriculum.order': 'success'},
        {'evaluation.every': 3},
    ],
)
def test_what_belongs_to_rl_changes_no_start(begun, difference):
    config, agent, lessons = begun
    other = with_fields(config, difference)
    assert start_key(agent, lessons, other) == start_key(agent, lessons, config)


@pytest.mark.parametrize(
    'difference',
    [
        {'seed': 1},
        {'supervised.epochs': 2},
        {'curriculum.tasks': 5},
        {'collection.samples': 0},
        {'collection.thin': ThinSettings(exact=0.5)},
        {'evaluation.unseen': 3},
        {'lora.rank': 4},
        {'supervised.rejection.samples': 2},
    ],
)
def test_what_belongs_to_a_start_makes_another(begun, difference):
    config, agent, lessons = begun
    other = with_fields(config, difference)
    assert start_key(agent, lessons, other) != start_key(agent, lessons, config)


def test_another_model_or_template_makes_another_start(begun, tmp_path):
    config, agent, lessons = begun
    source = tmp_path / 'other'
    shutil.copytree(agent.source, source)
    copied = dataclasses.replace(agent, source=source)
    assert start_key(copied, lessons, config) == start_key(agent, lessons, config)
    weights = bytearray((source / 'model.safetensors').read_bytes())
    weights[-1] ^= 1
    (source / 'model.safetensors').write_bytes(weights)
    assert start_key(copied, lessons, config) != start_key(agent, lessons, config)


def test_other_content_of_the_tasks_of_evaluation_makes_another_start(begun, tmp_path):
    config, agent, lessons = begun
    listed = tmp_path / 'tasks.jsonl'
    config, keys = with_fields(config, {'evaluation.file': str(listed)}), []
    for number in (0, 1, 0):
        listing = {'suite': 'trip', 'split': 'test', 'level': 1, 'number': number}
        listed.write_text(json.dumps(listing) + '\n')
        keys.append(start_key(agent, lessons, config))
    assert keys[0] == keys[2] != keys[1]


def test_a_shared_start_is_made_once_and_is_the_one_that_would_be_made_alone(begun, tmp_path):
    config, agent, lessons = begun
    shared = {'starts': tmp_path / 'starts'}
    configs = [
        dataclasses.replace(config, run_dir=tmp_path / name, **(shared if name != 'alone' else {}))
        for name in ('alone', 'first', 'second')
    ]
    configs[2] = with_fields(configs[2], {'update.loss.kl_weight': 0.0})
    alone, first, second = (start_of(agent, lessons, each, going_on) for each in configs)
    assert equal(alone.params, first.params) and equal(first.params, second.params)
    assert alone.suites == second.suites and alone.episodes == second.episodes
    assert alone.filling_calls == second.filling_calls > 0
    assert not equal(first.params, agent.params)
    caches = [make_tool_cache(each.run_dir / 'tool_cache.sqlite') for each in configs]
    assert len({cache.content_hash for cache in caches}) == 1 and len(caches[0].entries())
    assert (configs[1].run_dir / 'supervised').exists()
    assert not (configs[2].run_dir / 'supervised').exists()  # nothing was learned again


def test_samples_enter_the_cache_and_survive_a_shared_start_and_a_resumption(
    begun, tmp_path, monkeypatch
):
    """Every id ends a turn, so that each sample is an empty answer, and these tasks like any."""
    found = [task(number) for number in range(3)]
    for module in (learning, start_module):
        monkeypatch.setattr(module, 'tasks_of', lambda config, split, count: found)
    config, agent, _ = begun
    chat = dataclasses.replace(agent.chat, end_ids=tuple(range(agent.shape.vocab)))
    agent = dataclasses.replace(agent, chat=chat)
    asked = {'supervised.rejection.samples': 2, 'honesty.process_score': 0.5}
    config = with_fields(config, asked | {'starts': tmp_path / 'starts'})
    made, taken = (dataclasses.replace(config, run_dir=tmp_path / name) for name in ('one', 'two'))
    first, *others = (Run(each, agent, going_on) for each in (made, taken, made))  # the last: on
    for run in others:
        assert equal(run.store, first.store)
        assert run.cache.door.state() == first.cache.door.state()
    entries = jax.tree.map(lambda x: x[first.store.filled], first.store.entries)
    own = entries.source == Source.REJECTION
    assert own.sum() == 6 and own.tolist() == entries.has_behaviour.tolist()
    assert (own | (entries.source == Source.DEMONSTRATION)).all() and not own.all()


def test_looking_at_a_policy_during_rl_does_not_change_it(begun, tmp_path):
    config, agent, _ = begun
    base = dataclasses.replace(config, steps=3, starts=tmp_path / 'starts')
    learned, runs = [], []
    for every in (0, 1):
        run_dir = tmp_path / f'every-{every}'
        each = with_fields(base, {'evaluation.every': every, 'run_dir': run_dir})
        run = Run(each, agent, going_on)
        learned.append(train(each, run, lambda **numbers: None).params)
        runs.append(metrics_of(run_dir))
    assert equal(*learned)
    seen = [[line['step'] for line in run if 'evaluate/success' in line] for run in runs]
    assert seen == [[], [0, 1]]  # the last step is evaluated as the end of the run
    played = [line['episodes/played'] for line in runs[1] if 'episodes/played' in line]
    assert played == [config.rows * steps for steps in (1, 2, 3)]


@pytest.mark.slow
def test_live_calls_are_counted_over_a_resumption(tmp_path):
    config = read_config('', [*SETTINGS, '--decode.turn-tokens', '48'])  # of a model that calls
    agent = load_agent(config)
    live = with_fields(config, {'tool_cache.mode': 'live', 'starts': tmp_path / 'starts'})
    calls = []
    for name, pauses in (('whole', (2,)), ('broken', (1, 2))):
        for steps in pauses:
            each = dataclasses.replace(live, steps=steps, run_dir=tmp_path / name)
            run = Run(each, agent, going_on)
            train(each, run, lambda **numbers: None)
        calls.append(run.totals.live_tool_calls)
    assert calls[0] == calls[1] > 0 == run.totals.collection_calls
