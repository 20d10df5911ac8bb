"""The rewards think of the shipped experts what the suites think of them."""

import numpy as np
import pytest
from rewards_episodes import live

from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.hybrid import HybridSettings, Weights, hybrid_reward
from cacherl_jax.tasks.analysis import ANALYSIS
from cacherl_jax.tasks.research import RESEARCH
from cacherl_jax.tasks.suite import demonstrate
from cacherl_jax.tasks.trip import TRIP


@pytest.mark.parametrize('suite', [RESEARCH, TRIP, ANALYSIS], ids=lambda suite: suite.name)
@pytest.mark.parametrize('level', [1, 2, 3])
def test_an_expert_of_a_shipped_suite_is_never_penalised(suite, level):
    tasks = [suite.task('train', level, number) for number in range(16)]
    facts = gather_facts([demonstrate(task, live(task)) for task in tasks], FactSettings())
    found = hybrid_reward(facts, Weights(micro=0.5, macro=0.5, final=0.5), HybridSettings())
    assert not found.raw['penalty'].any()
    np.testing.assert_allclose(found.raw['macro'], 1.0, atol=1e-6)
    np.testing.assert_allclose(found.raw['answer'], 1.0)
    np.testing.assert_allclose(found.raw['process'], 1.0, atol=1e-6)
