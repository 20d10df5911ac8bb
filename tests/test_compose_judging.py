"""Who scores in a run is who its settings name: a head on a trunk, or a model of an endpoint."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
from judge_server import says, serving
from rewards_episodes import play, say
from tiny_policy import SETTINGS, make_policy

from cacherl_jax.compose.agent import load_agent
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.judging import final_scorer, row_scorer
from cacherl_jax.compose.run import Run
from cacherl_jax.rewards.reward_model import save_head
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.trajectory import Trajectory
from experiments.train import train
from experiments.train_reward_model import RewardModelSettings
from experiments.train_reward_model import train as train_head


@pytest.fixture(scope='module')
def policy(tmp_path_factory):
    return make_policy(tmp_path_factory.mktemp('made'))


def read(policy, *options):
    return read_config('', ['--model', str(policy), *SETTINGS, *map(str, options)])


def head(folder, trunk, bias):
    """A reward model that likes everything alike."""
    weight = np.zeros(32, np.float32)
    save_head(folder, {'weight': weight, 'bias': np.float32(bias)}, str(trunk))
    return folder


def rows(tokens, length):
    shape = tokens.shape
    nothing = np.zeros(shape, np.float32)
    return Trajectory(
        tokens=tokens, length=length, sampled=nothing > 0, logprob=nothing, turn=tokens * 0
    )


def test_a_reward_model_scores_the_rows_of_a_batch(policy, tmp_path):
    config = read(policy, '--final.rules', 0, '--final.reward-model', 1,
                  '--final.head', head(tmp_path, policy, np.log(3)))  # fmt: skip
    scorer = final_scorer(load_agent(config), config)
    made = rows(np.ones((2, 5), np.int32), np.array([5, 3], np.int32))
    judge = scorer.judge([play(say()), play(say(''), sample=1)], made)
    assert judge(play(say())) == pytest.approx(0.75, abs=1e-6)
    assert judge(play(say(''), sample=1)) == 0


def test_a_reward_model_that_reads_other_tokens_is_refused(policy, tmp_path):
    folder = head(tmp_path / 'head', policy, 0)
    agent = load_agent(read(policy))
    other = make_policy(tmp_path)
    file = json.loads((other / 'tokenizer.json').read_text())
    (token,) = list(file['model']['vocab'])[-1:]
    file['model']['vocab']['another word'] = file['model']['vocab'].pop(token)
    file['model']['merges'] = []
    (other / 'tokenizer.json').write_text(json.dumps(file))
    with pytest.raises(ValueError, match='another vocabulary'):
        row_scorer(agent, str(head(folder, other, 0)))


def test_a_head_that_is_not_there_is_refused_at_the_start(policy, tmp_path):
    config = read(policy, '--final.reward-model', 1, '--final.head', tmp_path / 'nowhere')
    with pytest.raises(Refusal, match='is no folder of a reward model'):
        final_scorer(load_agent(config), config)


@pytest.mark.slow
def test_a_reward_model_is_trained_on_wrong_answers_and_told_how_well(policy, tmp_path):
    settings = RewardModelSettings(
        model=str(policy), out=tmp_path / 'head', suites=('trip',), levels=(1,), tasks=4,
        rows=4, steps=40,
    )  # fmt: skip
    told = train_head(settings)
    assert told['learned']['in order'] > 0.8 and told['unseen']['pairs'] > 0
    assert row_scorer(load_agent(read(policy)), str(settings.out))


def quick_to_answer(policy, folder):
    """The same policy with a thousand more tokens that end a message: most say little else."""
    shutil.copytree(policy, folder)
    path = folder / 'generation_config.json'
    told = json.loads(path.read_text())
    own = told['eos_token_id']
    ends = [*(own if isinstance(own, list) else [own]), *range(500, 1500)]
    path.write_text(json.dumps(told | {'eos_token_id': ends}))
    return folder


@pytest.mark.slow
def test_a_run_is_paid_by_the_model_behind_its_endpoint(policy, tmp_path):
    with serving(lambda body: says('{"score": 2}')) as (url, script):
        options = ('--final.rules', 0, '--final.language-model', 1, '--final.endpoint', url)
        options += ('--final.endpoint-model', 'm', '--final.votes', 1, '--final.quorum', 1)
        config = dataclasses.replace(
            read(quick_to_answer(policy, tmp_path / 'policy'), *options),
            run_dir=tmp_path / 'run', steps=1,
        )  # fmt: skip
        run = Run(config, load_agent(config), lambda: False)
        train(run.config, run, lambda **numbers: None)
    lines = map(json.loads, pathlib.Path(config.run_dir, 'metrics.jsonl').read_text().splitlines())
    (told,) = [line for line in lines if 'rewards/judged' in line]
    assert told['judge/asked'] == len(script.asked)
    # An empty answer is worth nothing and nobody is asked about it.
    assert told['rewards/answer'] == pytest.approx(0.4 * len(script.asked) / 4, abs=1e-6)
    assert script.asked
