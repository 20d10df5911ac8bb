"""The scorer of final answers that a run's settings ask for, with the models that it needs."""

import functools
import pathlib

import jax

from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import Agent, model_source, refused
from cacherl_jax.config import RunConfig
from cacherl_jax.policy.weights import load_policy
from cacherl_jax.rewards.final import FinalScorer, RowScores
from cacherl_jax.rewards.reward_model import Rows, load_head, row_rewards, trunk_of
from cacherl_jax.run.fetch import fetch
from cacherl_jax.trajectory import Trajectory


def final_scorer(agent: Agent, config: RunConfig) -> FinalScorer:
    """Refuses a reward model that reads other tokens than the policy writes."""
    settings, reward_model = config.final, None
    with refused():
        if settings.reward_model:
            reward_model = row_scorer(agent, settings.head)
        votes = config.run_dir / 'votes.sqlite'
        return FinalScorer(settings, config.facts.effects, votes, reward_model)


def row_scorer(agent: Agent, folder: str) -> RowScores:
    """sigmoid of the reward of each row, by the head in a folder and the trunk that it names."""
    name = trunk_of(folder)
    source = model_source(name)
    shape, trunk, _ = load_policy(source)
    if load_tokenizer(source).get_vocab() != agent.chat.tokenizer.get_vocab():
        raise ValueError(
            f'the reward model in {folder} stands on {name}, which has another vocabulary than '
            f'{agent.source}; train one on a model with the same tokenizer'
        )
    score = jax.jit(functools.partial(row_rewards, shape=shape))
    head = load_head(pathlib.Path(folder), shape, name)

    def scores(rows: Trajectory):
        found = score(head, trunk, rows=Rows(tokens=rows.tokens, length=rows.length))
        return fetch(jax.nn.sigmoid(found)).tolist()

    return scores
