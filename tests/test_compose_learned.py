"""What a run leaves of its policy: all of it, and beside it what adapters learned."""

import jax
import numpy as np
from tiny_policy import make_policy

from cacherl_jax.compose.agent import load_agent, save_learned
from cacherl_jax.compose.tuning import Tuning
from cacherl_jax.config import RunConfig
from cacherl_jax.policy.lora import LoraSettings, load_adapter, merge
from cacherl_jax.policy.weights import load_policy

LORA = LoraSettings(rank=2, alpha=3.0, targets=('query', 'down'))


def trained(params, seed):
    """Parameters after a stage that learned an adapter."""
    tuning = Tuning(settings=LORA, params=params)
    adapter = tuning.init(jax.random.key(seed))
    moved = jax.tree.map(
        lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(seed), leaf.shape), adapter
    )
    return tuning.merged(moved)


def test_the_adapter_makes_the_source_into_the_policy(tmp_path):
    agent = load_agent(RunConfig(model=str(make_policy(tmp_path))))
    params = trained(trained(agent.params, 1), 2)  # the supervised start, then RL
    save_learned(agent, LORA, params, tmp_path / 'run')
    saved = load_policy(tmp_path / 'run' / 'policy')[1]
    adapter, settings = load_adapter(tmp_path / 'run' / 'adapter', agent.params)
    assert (settings.rank, settings.scale, settings.targets) == (4, 1.0, LORA.targets)
    together = jax.tree.leaves(merge(agent.params, adapter, settings))
    for ours, theirs in zip(together, jax.tree.leaves(saved), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_without_adapters_there_is_none(tmp_path):
    agent = load_agent(RunConfig(model=str(make_policy(tmp_path))))
    save_learned(agent, LoraSettings(), agent.params, tmp_path / 'run')
    assert [path.name for path in (tmp_path / 'run').iterdir()] == ['policy']
