"""What a batch of rewards looks like, as flat scalars.  Rewards and Facts in, `area/name` out.

Means are over counted rows, shares of calls over the results of counted rows; of nothing they are
0, and `rewards/counted` and `rewards/judged` tell a 0 from an absence.
"""

import chex
import jax
import jax.numpy as jnp

from cacherl_jax.rewards.facts import TERMINATIONS, Facts
from cacherl_jax.rewards.hybrid import Rewards
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import Tier

CALL_FAULTS = ('failed', 'misused', 'guessed', 'repeated', 'near', 'late', 'irrelevant')


@jax.jit
def reward_metrics(rewards: Rewards, facts: Facts) -> dict[str, jax.Array]:
    """f32 scalars: `rewards/*`, `failure/*`, `tool_cache/tier_*`."""
    chex.assert_equal_shape([rewards.total, rewards.counted, facts.turns])
    counted = rewards.counted
    found = {'rewards/total': mean(rewards.total, counted)}
    for name, value in rewards.raw.items():
        found[f'rewards/{name}'] = mean(value, rewards.known[name])
    for name, value in rewards.terms.items():
        found[f'rewards/weighted_{name}'] = mean(value, rewards.known[name])
    reached = facts.reached.sum(axis=(1, 2)) / jnp.maximum(facts.subgoals, 1)
    found['rewards/subgoals'] = mean(reached, counted & (facts.subgoals > 0))
    found['rewards/counted'] = mean(counted, jnp.ones_like(counted))
    found['rewards/judged'] = mean(facts.judged, counted)
    found['rewards/best_effort_premium'] = best_effort_premium(rewards, facts)
    return found | failure_shares(facts) | tier_shares(facts)


@jax.jit
def spreads(rewards: Rewards, facts: Facts) -> dict[str, jax.Array]:
    """f32 [row], NaN where a row is not counted: what a mean would hide."""
    chex.assert_equal_shape([rewards.total, rewards.counted, facts.turns])
    found = {'rewards/total': rewards.total, 'rewards/final': rewards.terms['final']}
    found |= {'episodes/turns': facts.turns}
    return {name: jnp.where(rewards.counted, value, jnp.nan) for name, value in found.items()}


def best_effort_premium(rewards: Rewards, facts: Facts) -> jax.Array:
    """E[F − R_answer | worst tier ≥ best effort] − E[F − R_answer | worst tier ≤ exact].

    What the final term pays beyond the answer for having missed the cache: above 0 a policy gains
    by drifting off it.  0 where one of the two is empty.
    """
    chex.assert_equal_shape([facts.tier_worst, facts.answer_score])
    known = rewards.known['final'] & facts.judged
    missed = known & (facts.tier_worst >= Tier.BEST_EFFORT)
    faithful = known & (facts.tier_worst <= Tier.EXACT)
    beyond = rewards.raw['final'] - facts.answer_score
    both = missed.any() & faithful.any()
    return jnp.where(both, mean(beyond, missed) - mean(beyond, faithful), 0.0)


def failure_shares(facts: Facts) -> dict[str, jax.Array]:
    """Shares: of rows by ending, of silent turns, of results with each fault, of meta answers."""
    chex.assert_rank([facts.termination, facts.silent], [1, 2])
    counted = facts.counted
    every = jnp.ones_like(counted)
    found = {
        f'failure/{ending.value}': mean(facts.termination == number, every)
        for number, ending in enumerate(TERMINATIONS)
        if ending is not Termination.ANSWERED
    }
    calls = jnp.maximum(jnp.sum(facts.tier_calls, where=counted[:, None]), 1)
    for fault in CALL_FAULTS:
        found[f'failure/{fault}'] = jnp.sum(getattr(facts, fault), where=counted[:, None]) / calls
    found['failure/silent'] = mean(facts.silent, facts.played & counted[:, None])
    found['failure/meta'] = mean(facts.meta, counted)
    return found


def tier_shares(facts: Facts) -> dict[str, jax.Array]:
    """Share of the results of counted rows by the tier that answered."""
    chex.assert_axis_dimension(facts.tier_calls, 1, len(Tier))
    by_tier = jnp.sum(facts.tier_calls, where=facts.counted[:, None], axis=0)
    share = by_tier / jnp.maximum(by_tier.sum(), 1)
    return {f'tool_cache/tier_{tier.name.lower()}': share[tier] for tier in Tier}


def mean(x: jax.Array, keep: jax.Array) -> jax.Array:
    """Σ x / Σ 1 over the kept; 0 where nothing is kept.  f32 []."""
    chex.assert_equal_shape([x, keep])
    return jnp.sum(x, where=keep, dtype=jnp.float32) / jnp.maximum(jnp.sum(keep), 1)
