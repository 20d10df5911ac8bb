"""Whole runs of a small random policy with what is off by default, in pieces and at once."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from tiny_policy import SETTINGS, make_policy

from cacherl_jax.compose.agent import load_agent
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.run import Run
from cacherl_jax.run.degeneration import (
    CUT,
    DOOR,
    ENTROPY,
    FAILED,
    FINITE,
    MISUSED,
    PAID,
    REPEATED,
    SPOILED,
    SUCCESS,
    TOKENS,
)
from experiments.train import train

pytestmark = pytest.mark.slow

STEPS = 3
CHOSEN = (
    '--advantage.estimator gae --update.loss.sampler-truncation 2 --refills 1 '
    '--admission.failures-fraction 0.3 --update.epochs 2 --learning-rate 0.01'
).split()
NONE = '--mix.share.start 0 --mix.share.end 0'.split()
WATCHED = {SUCCESS, ENTROPY, TOKENS, *FINITE, *REPEATED, *MISUSED, *FAILED, *SPOILED, *PAID, *CUT}
WATCHED |= {'policy/kl', 'update/refused', 'update/zero_advantage_rows'}


@pytest.fixture(scope='module')
def begin(tmp_path_factory):
    """begin(name, steps, *options) trains so far, from a start that all of them share."""
    folder = tmp_path_factory.mktemp('runs')
    policy = make_policy(folder)
    agent = load_agent(read_config('', ['--model', str(policy), *SETTINGS]))

    def made(name, steps, *options):
        config = read_config('', ['--model', str(policy), *SETTINGS, *options])
        places = {'run_dir': folder / name, 'starts': folder / 'starts'}
        run = Run(dataclasses.replace(config, steps=steps, **places), agent, lambda: False)
        return run, train(run.config, run, lambda **numbers: None)

    return made


def numbers_of(run):
    lines = map(json.loads, (run.folder / 'metrics.jsonl').read_text().splitlines())
    steps = [line for line in lines if 'rewards/judged' in line]
    return [{k: v for k, v in line.items() if not k.startswith('perf/')} for line in steps]


def assert_same(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_critic_and_all_else_that_may_be_chosen_survive_a_run_in_pieces(begin):
    whole, learned = begin('whole', STEPS, *CHOSEN)
    begin('pieces', 1, *CHOSEN)
    pieces, again = begin('pieces', STEPS, *CHOSEN)
    assert_same(learned.params, again.params)
    told = numbers_of(whole)
    assert told == numbers_of(pieces)
    assert learned.params['value']['weight'].any()  # the critic has learned
    assert all(line['loss/value'] > 0 for line in told)
    played = [line['episodes/played'] for line in told]
    rows = whole.config.rows
    assert played[-1] == STEPS * rows + sum(line['episodes/aside'] for line in told)
    assert jax.tree.structure(whole.tuning.merged(learned.params)) == jax.tree.structure(
        whole.agent.params
    )


def test_a_share_of_0_is_plain_grpo_bit_for_bit_whatever_the_cache_holds(begin):
    closed = ['--admission.minimum-return', '99']
    (full, learned), (empty, plain) = (
        begin(name, STEPS, *NONE, *more) for name, more in (('full', []), ('empty', closed))
    )
    assert_same(learned.params, plain.params)
    held, nothing = numbers_of(full), numbers_of(empty)
    assert held[0]['rollout_cache/size'] > 0 == nothing[0]['rollout_cache/size']
    for one, other in zip(held, nothing, strict=True):
        assert {k: v for k, v in one.items() if not k.startswith('rollout_cache/')} == {
            k: v for k, v in other.items() if not k.startswith('rollout_cache/')
        }


def test_the_watchdog_reads_numbers_that_a_run_writes(begin):
    run, _ = begin('full', STEPS, *NONE)
    for line in numbers_of(run):
        assert line.keys() >= WATCHED and any(name.startswith(DOOR) for name in line)


def test_groups_that_share_their_prompt_in_the_update_learn_the_same(begin):
    """To rounding: the same sums, made in another order, so not the same bits."""
    once = '--update.minibatches', '1', '--learning-rate', '0.01'
    (plain, one), (shared, other) = (
        begin(name, 1, *once, *more)
        for name, more in (('each', []), ('shared', ['--update.shared-widths', '256', '448']))
    )
    (told,), (also_told,) = numbers_of(plain), numbers_of(shared)
    assert told.keys() == also_told.keys()
    for name, number in told.items():
        np.testing.assert_allclose(also_told[name], number, rtol=1e-3, atol=1e-4, err_msg=name)
    both = list(zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True))
    for x, y in both:
        np.testing.assert_allclose(x, y, atol=1e-4)
    assert not all(np.array_equal(x, y) for x, y in both)
