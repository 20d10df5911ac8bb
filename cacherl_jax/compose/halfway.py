"""The policy of a run that has not ended, as its newest checkpoint holds it."""

import pathlib

import jax

from cacherl_jax import keys
from cacherl_jax.compose.agent import Agent
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.config import RunConfig
from cacherl_jax.policy.shape import Params
from cacherl_jax.run.checkpoint import restore_part


def halfway_params(folder: pathlib.Path, config: RunConfig, agent: Agent) -> Params:
    """Plain parameters; `agent` is the model that the run began from, before its supervised start.

    Raises FileNotFoundError where there is no checkpoint, Refusal where it is of another model.
    """
    checkpoints = folder / 'checkpoints'
    start = restore_part(checkpoints, 'reference', agent.params)
    critic = agent.shape if config.advantage.estimator == 'gae' else None
    tuning = Tuning(settings=config.lora, params=start, critic=critic)
    template = jax.eval_shape(tuning.init, keys.root(config.seed))
    return tuning.merged(restore_part(checkpoints, 'learner/params', template))
