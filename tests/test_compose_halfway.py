"""A run that has not ended is measured as it stands: as its newest checkpoint would be saved."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_policy import make_policy

from cacherl_jax import keys
from cacherl_jax.compose.agent import load_agent
from cacherl_jax.compose.halfway import halfway_params
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.config import PRESETS
from cacherl_jax.grpo.advantage import AdvantageSettings
from cacherl_jax.grpo.update import Learner
from cacherl_jax.policy.lora import LoraSettings
from cacherl_jax.run.checkpoint import make_checkpoints


@pytest.mark.parametrize('rank', [0, 3])
@pytest.mark.parametrize('estimator', ['group', 'gae'])
def test_the_newest_checkpoint_s_policy_is_the_one_that_would_be_saved(tmp_path, rank, estimator):
    lora, advantage = LoraSettings(rank=rank), AdvantageSettings(estimator=estimator)
    model = str(make_policy(tmp_path))
    config = dataclasses.replace(PRESETS['small'], model=model, lora=lora, advantage=advantage)
    agent = load_agent(config)
    start = jax.tree.map(lambda leaf: leaf + 1, agent.params)
    critic = agent.shape if estimator == 'gae' else None
    tuning = Tuning(settings=lora, params=start, critic=critic)
    save = make_checkpoints(tmp_path / 'run' / 'checkpoints', {}).save
    for step in (1, 2):
        learned = jax.tree.map(lambda leaf: leaf + step, tuning.init(keys.root(0)))  # noqa: B023
        learner = Learner(params=learned, optimizer_state=(jnp.ones(3),), step=jnp.int32(step))
        save(step, {'learner': learner, 'reference': start, 'store': jnp.zeros(4)}, {})
    found = halfway_params(tmp_path / 'run', config, agent)
    jax.tree.map(np.testing.assert_array_equal, found, tuning.merged(learned))


def test_a_folder_without_a_checkpoint_holds_no_policy(tmp_path):
    config = dataclasses.replace(PRESETS['small'], model=str(make_policy(tmp_path)))
    with pytest.raises(FileNotFoundError, match='holds no checkpoint'):
        halfway_params(tmp_path / 'run', config, load_agent(config))
