"""Groups that agree give way to others; rows go with their episodes, and nothing played is lost."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from rewards_episodes import ask, find, goal, make_task, play, say

from cacherl_jax.compose.refill import outcomes, refilled, undecided, undecided_share
from cacherl_jax.config import PRESETS
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.hybrid import HybridSettings, WeightSettings, hybrid_reward, weights_at
from cacherl_jax.rollout_cache.curriculum import CurriculumSettings, Standing, draw_tasks
from cacherl_jax.tasks.task import Termination
from cacherl_jax.trajectory import Trajectory

SAMPLES, GROUPS, ROWS = 3, 4, 14  # two rows more than episodes
COURSE = CurriculumSettings(suites=('toy',), levels=(1,), tasks=12, candidates=1)


def task(suite, level, number):
    return make_task(goal('red', 'find'), number=number, score=lambda e: float('7' in e.answer))


def asked(refills, tasks=12):
    small = PRESETS['small']
    rollout = dataclasses.replace(small.rollout, samples=SAMPLES)
    course = dataclasses.replace(COURSE, tasks=tasks)
    return dataclasses.replace(
        small, seed=3, groups=GROUPS, refills=refills, curriculum=course, rollout=rollout
    )


def number(task):
    return int(task.id[-5:])


def player(decided, spoiled=()):
    """Plays any task; of those named the attempts differ.  A row's tokens tell task and attempt."""
    rounds = []

    def attempt(task, sample):
        right = sample == 0 and number(task) in decided
        ending = Termination.ANSWERED
        if number(task) in spoiled:
            ending = Termination.TOOL_INFRASTRUCTURE
        said = say('It is 7.' if right else 'It is 8.')
        return play(ask(find(), text='grey'), said, task=task, sample=sample, ending=ending)

    def played(groups):
        rounds.append([number(one) for one in groups])
        episodes = [attempt(one, sample) for one in groups for sample in range(SAMPLES)]
        told = np.zeros((ROWS, 2), np.int32)
        told[: len(episodes)] = [(number(e.task), e.sample) for e in episodes]
        rows = jnp.asarray(told)
        length = jnp.asarray(np.arange(ROWS) < len(episodes), jnp.int32)
        return Trajectory(rows, length, rows > 0, rows * 1.0, rows), episodes

    return played, rounds


def step_of(refills, decided, tasks=12, **how):
    config, (played, rounds) = asked(refills, tasks), player(decided, **how)
    groups = draw_tasks(Standing(), config.seed, 0, GROUPS, config.curriculum, task)
    return refilled(played, groups, 0, Standing(), config, task), rounds


def test_without_refills_a_step_is_what_was_played():
    found, rounds = step_of(0, decided=())
    assert len(rounds) == 1 and not found.aside
    assert [number(one) for one in found.groups] == rounds[0]


@pytest.mark.parametrize('decided', [range(12), range(0, 12, 2), range(6), (), (1, 7)])
def test_rows_stay_with_their_episodes_and_every_attempt_is_somewhere(decided):
    found, rounds = step_of(2, decided)
    expected = [(number(one), sample) for one in found.groups for sample in range(SAMPLES)]
    assert [(number(e.task), e.sample) for e in found.episodes] == expected
    assert found.rows.tokens[: GROUPS * SAMPLES].tolist() == [list(pair) for pair in expected]
    assert found.rows.length.tolist() == [1] * 12 + [0] * 2
    somewhere = [*found.episodes, *(episode for episode, _ in found.aside)]
    played = sorted((one, sample) for each in rounds for one in each for sample in range(SAMPLES))
    assert sorted((number(e.task), e.sample) for e in somewhere) == played
    assert len(set(played)) == len(played)  # no task is asked twice


def test_a_group_gives_way_to_one_that_differs_and_to_no_other():
    decided = range(0, 12, 2)
    (before, _), (found, rounds) = step_of(0, decided), step_of(2, decided)
    for old, new in zip(before.groups, found.groups, strict=True):
        assert new is old or (number(old) % 2 and not number(new) % 2) or old.id == new.id
    kept = sum(number(one) % 2 == 0 for one in before.groups)
    gained = sum(one % 2 == 0 for each in rounds[1:] for one in each)
    assert sum(number(one) % 2 == 0 for one in found.groups) == min(GROUPS, kept + gained)
    assert len(rounds) > 1


def test_a_step_stops_where_no_task_is_left():
    found, rounds = step_of(9, decided=(), tasks=6)
    assert sum(map(len, rounds)) == 6 and len(found.groups) == GROUPS


def test_what_is_put_aside_counts_for_the_curriculum_unless_it_was_spoiled():
    found, _ = step_of(1, decided=range(0, 12, 2), spoiled=(1, 3))
    facts = gather_facts(found.episodes, FactSettings())
    rewards = hybrid_reward(facts, weights_at(0, WeightSettings()), HybridSettings())
    told = outcomes(found.episodes, rewards, found.aside)
    everybody = [*found.episodes, *(episode for episode, _ in found.aside)]
    counted = [e for e in everybody if e.termination is Termination.ANSWERED]
    assert sorted(one.id for one, _, _ in told) == sorted(e.task.id for e in counted)
    assert found.aside


def test_groups_that_agree_are_counted():
    found, _ = step_of(0, decided=range(0, 12, 2))
    facts = gather_facts(found.episodes, FactSettings())
    rewards = hybrid_reward(facts, weights_at(0, WeightSettings()), HybridSettings())
    odd = sum(number(one) % 2 for one in found.groups)
    assert undecided_share(rewards, SAMPLES) == odd / GROUPS


def test_a_group_is_undecided_where_all_that_count_are_paid_the_same():
    paid = np.float32([0.1, 0.1, 0.1, 0, 1, 0, 0.7, 0.7, 9, 5, 6, 7])
    counted = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0], bool)
    assert undecided(paid, counted, 3).tolist() == [True, False, True, True]
