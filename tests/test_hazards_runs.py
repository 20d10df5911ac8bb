"""Faults that training loops really had, looked for in whole runs of a small random policy.

Sampler and trainer that score other distributions, runs in pieces that are not the whole, adapters
merged twice, evaluation that samples as training does.
"""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
from tiny_policy import SETTINGS, make_policy

from cacherl_jax.compose.agent import load_agent, make_score, rollout_of
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.run import Run
from cacherl_jax.compose.stages import evaluate
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.weights import load_policy
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions
from experiments.train import train

LEARNING = '--lora.rank 2 --learning-rate 0.01 --update.epochs 2'.split()
STEPS = 4


@pytest.fixture(scope='module')
def policy(tmp_path_factory):
    return make_policy(tmp_path_factory.mktemp('model'))


@pytest.fixture(scope='module')
def agent(policy):
    return load_agent(settings(policy))


@functools.cache
def settings(policy, *more):
    return read_config('', ['--model', str(policy), *SETTINGS, *more])


def going_on():
    """Nobody asks for a stop."""
    return False


@pytest.mark.parametrize(
    'sampling', [SamplingSettings(temperature=0.6), SamplingSettings(min_tokens=5)]
)
def test_what_a_run_samples_from_is_what_it_scores(agent, policy, sampling):
    config = dataclasses.replace(settings(policy), sampling=sampling)
    rollout = rollout_of(agent, config, live_sessions().open_session)
    rows, _ = rollout(agent.params, draw(SUITES[1], 'train', 1, 2), 0)
    row = (agent.params, rows.tokens, rows.length, rows.sampled)
    scored, _ = make_score(agent, config.sampling)(*row)
    np.testing.assert_allclose(scored, rows.logprob, atol=1e-4)
    other, _ = make_score(agent, SamplingSettings())(*row)
    assert np.abs(other - rows.logprob).max() > 1e-3 or sampling.min_tokens


def texts(evaluation):
    return [[turn.text for turn in episode.turns] for episode in evaluation.episodes]


def test_evaluation_has_a_sampling_of_its_own(agent, policy):
    config = settings(policy)
    found = texts(evaluate(agent, agent.params, config))
    hot = dataclasses.replace(config, sampling=SamplingSettings(temperature=2.0))
    assert texts(evaluate(agent, agent.params, hot)) == found
    own = dataclasses.replace(config.evaluation, sampling=SamplingSettings(temperature=2.0))
    assert (
        texts(evaluate(agent, agent.params, dataclasses.replace(config, evaluation=own))) != found
    )


@pytest.fixture(scope='module')
def runs(agent, policy, tmp_path_factory):
    """The same run with an adapter, at once and in pieces that end at and beside checkpoints."""
    folder, made = tmp_path_factory.mktemp('runs'), {}
    for name, pauses in (('whole', (STEPS,)), ('pieces', (1, 2, STEPS))):
        for steps in pauses:
            config = dataclasses.replace(
                settings(policy, *LEARNING), steps=steps, run_dir=folder / name,
                starts=folder / 'starts',
            )  # fmt: skip
            run = Run(config, agent, going_on)
            made[name] = run, train(config, run, lambda **numbers: None)
    return made


def steps_of(run):
    lines = (run.folder / 'metrics.jsonl').read_text().splitlines()
    return [record for record in map(json.loads, lines) if 'rewards/judged' in record]


@pytest.mark.slow
def test_a_run_in_pieces_is_the_run(runs):
    learned = [jax.tree.leaves(learner) for _, learner in runs.values()]
    assert all(np.array_equal(x, y) for x, y in zip(*learned, strict=True))
    whole, pieces = (steps_of(run) for run, _ in runs.values())
    assert [line['step'] for line in pieces] == list(range(STEPS))
    varying = {name for name in whole[0] if name.startswith('perf/')}
    for one, other in zip(whole, pieces, strict=True):
        assert {k: v for k, v in one.items() if k not in varying} == {
            k: v for k, v in other.items() if k not in varying
        }
    assert sum(line['rollout_cache/drawn'] for line in whole)  # so that a lost buffer would show


@pytest.mark.slow
def test_the_second_use_of_a_batch_is_weighed_against_who_sampled_it(runs):
    assert all(line['policy/ratio_deviation'] > 1e-4 for line in steps_of(runs['whole'][0]))


@pytest.mark.slow
def test_an_adapter_is_merged_once(runs):
    run, learner = runs['whole']
    run.finish(learner)
    _, saved, _ = load_policy(run.folder / 'policy')
    expected, before = run.tuning.merged(learner.params), run.reference_params
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), saved, expected)
    moved = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), saved, before)
    assert max(jax.tree.leaves(moved)) > 1e-3
