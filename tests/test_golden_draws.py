"""One recorded draw that a whole group shares turns the update around; draws of one's own cure it.

Tool A always pays 0.9, tool B pays 1 with probability 0.8, else 0.  A policy of one logit picks
either half the time, so the true gradient of what it is paid is 0.25 (0.8 - 0.9) = -0.025.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cacherl_jax.grpo.advantage import AdvantageSettings, group_advantage
from cacherl_jax.grpo.loss import FRESH, Batch, LossSettings
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tools.tool import Call, Result, Status, Tool

A, B = 0, 1
PAID = {1.0: 0.8, 0.0: 0.2}  # what tool B pays, and how often
NOTHING = {'type': 'object', 'properties': {}}
TOOL_B = Tool(name='b', description='Pays.', parameters=NOTHING, function=lambda: None)
# samples: draws of one's own, one draw for all, and either without the deviation
EXPECTED = {
    2: (+0.150000, +0.150000, -0.012500),
    4: (+0.187129, +0.242404, -0.018750),
    8: (+0.111526, +0.278348, -0.021875),
    16: (+0.005998, +0.290118, -0.023438),
    32: (-0.059543, +0.295196, -0.024219),
    64: (-0.078867, +0.297628, -0.024609),
}


def score(params, tokens, length, sampled):
    """Log-probability of the pick, f32 [row, token]; nobody asks for the entropy."""
    sign = jnp.where(tokens == B, 1.0, -1.0)
    logprob = jax.nn.log_sigmoid(sign * params['logit'])
    return logprob, jnp.zeros_like(logprob)


LOSS = LossSettings(kl_weight=0.0)
CUT = UpdateSettings(micro_rows=4096, widths=(2,), loss=LOSS)
UPDATE = make_update(score, optax.sgd(1.0), CUT)


@functools.partial(jax.jit, static_argnames='std')
def advantages(paid, std):
    """Each group by itself, f32 [group, sample]."""
    settings, samples = AdvantageSettings(std=std), paid.shape[1]
    same, yes = jnp.zeros(samples, jnp.int32), jnp.ones(samples, bool)
    return jax.vmap(lambda reward: group_advantage(reward, same, yes, yes, settings))(paid)


def expected_push(chance, picked, paid, std):
    """How far the logit moves in the mean over groups that come up with these chances.

    chance [group]; picked, paid [group, sample].  The groups are rows of one update, each with its
    advantage times its chance; rows of no chance fill it up to a size that is compiled once.
    """
    groups, samples = picked.shape
    advantage = np.asarray(advantages(jnp.asarray(paid, jnp.float32), std))
    rows = -(-groups * samples // 4096) * 4096
    token, weighed = np.zeros((2, rows))
    token[: groups * samples] = picked.reshape(-1)
    weighed[: groups * samples] = (advantage * chance[:, None] * rows / samples).reshape(-1)

    def chosen(value):
        """At the second place; the first is the prompt."""
        return jnp.stack([jnp.zeros(rows), jnp.broadcast_to(value, rows)], axis=1)

    batch = Batch(
        tokens=chosen(token).astype(jnp.int32),
        length=jnp.full(rows, 2, jnp.int32),
        sampled=chosen(1) > 0,
        behaviour_logprob=chosen(math.log(0.5)),
        reference_logprob=chosen(0),
        advantage=chosen(weighed),
        kind=jnp.full(rows, FRESH, jnp.int32),
    )
    learner = UPDATE.init({'logit': jnp.float32(0)})
    learner, _ = UPDATE.update(learner, batch, np.full(rows, 2))
    return float(learner.params['logit'])


def ways(*counts):
    return math.factorial(sum(counts)) / math.prod(map(math.factorial, counts))


def groups_with_own_draws(samples):
    """(chance, picks, payments) of every group, up to the order of its samples."""
    for low in range(samples + 1):
        for high in range(samples + 1 - low):
            safe = samples - low - high
            chance = ways(safe, high, low) * 0.5**samples * PAID[1.0] ** high * PAID[0.0] ** low
            yield chance, [A] * safe + [B] * (high + low), [0.9] * safe + [1.0] * high + [0.0] * low


def groups_with_one_draw(samples):
    for (paid, often), risky in itertools.product(PAID.items(), range(samples + 1)):
        safe = samples - risky
        chance = often * ways(safe, risky) * 0.5**samples
        yield chance, [A] * safe + [B] * risky, [0.9] * safe + [paid] * risky


def push(groups, std):
    chance, picked, paid = map(np.asarray, zip(*groups, strict=True))
    assert chance.sum() == pytest.approx(1)
    return expected_push(chance, picked, paid, std)


@pytest.mark.parametrize('samples', EXPECTED)
def test_the_expected_update_is_the_one_that_was_enumerated(samples):
    own, shared, plain = EXPECTED[samples]
    for groups, with_std in ((groups_with_own_draws, own), (groups_with_one_draw, shared)):
        assert push(groups(samples), True) == pytest.approx(with_std, abs=2e-6)
        assert push(groups(samples), False) == pytest.approx(plain, abs=2e-6)


def answers(recorded, samples):
    """What each sample of a group is paid by tool B out of a cache with these draws."""
    settings = ToolCacheSettings(mode='replay', stochastic=('b',), draws=len(recorded))
    if len(recorded) == 1:
        settings = ToolCacheSettings(mode='replay')
    cache = make_tool_cache(':memory:', settings)
    results = [Result(status=Status.OK, text=str(paid)) for paid in recorded]
    cache.record_results('gold', [TOOL_B], [(Call('b', {}), result) for result in results])
    opened = (cache.open_session('task', [TOOL_B], dict, sample) for sample in range(samples))
    told = [float(session.answer([Call('b', {})])[0].text) for session in opened]
    cache.close()
    return told


def groups_from_the_cache(samples, draws):
    """Every group and every content of the cache, the payments asked of the cache itself."""
    for recorded in itertools.product(PAID, repeat=draws):
        told = answers(recorded, samples)
        often = math.prod(PAID[paid] for paid in recorded) * 0.5**samples
        for picks in itertools.product((A, B), repeat=samples):
            paid = [told[n] if pick == B else 0.9 for n, pick in enumerate(picks)]
            yield often, list(picks), paid


@pytest.mark.parametrize('samples', [2, 4])
def test_a_cache_with_a_draw_for_each_sample_teaches_what_live_calls_teach(samples):
    own, shared, plain = EXPECTED[samples]
    cured, spoiled = groups_from_the_cache(samples, samples), groups_from_the_cache(samples, 1)
    assert push(cured, True) == pytest.approx(own, abs=2e-6)
    assert push(spoiled, True) == pytest.approx(shared, abs=2e-6)
    assert push(groups_from_the_cache(samples, 1), False) == pytest.approx(plain, abs=2e-6)


@pytest.mark.parametrize('recorded', [(1.0, 1.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 1.0)])
def test_draws_that_came_out_the_same_are_draws_all_the_same(recorded):
    assert sorted(answers(recorded, 3)) == sorted(recorded)
