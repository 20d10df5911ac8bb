"""Degenerations that are made, not told: a policy of a few habits, paid by the real rewards.

Each alarm sounds in the world that drives the policy there, and none in five that are well.
"""

import json
import sys

import numpy as np
import pytest
from rewards_episodes import ask, find, goal, make_task, play, say
from rollout_cache_rows import record

from cacherl_jax.grpo.advantage import AdvantageSettings, group_advantage
from cacherl_jax.rewards.alarms import AlarmSettings
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.honesty import HonestySettings, admission_judges, hacking_flags
from cacherl_jax.rewards.hybrid import HybridSettings, Weights, hybrid_reward
from cacherl_jax.rewards.metrics import reward_metrics
from cacherl_jax.rewards.terms import MicroSettings, PenaltySettings, TrustSettings
from cacherl_jax.rollout_cache.admission import AdmissionSettings, Door
from cacherl_jax.run.degeneration import CHECKS, DegenerationSettings, degenerations
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import Status, Tier
from experiments import watch

SIGNS = DegenerationSettings(recent=4, rewards=AlarmSettings(window=12))
HABITS = ('works', 'guesses', 'repeats', 'misuses', 'wanders', 'drifts')
FOOLED = 1.75  # what a cached row is worth with all calls, all sub-goals and a checker misled
TASK = make_task(goal('red', 'find'), score=lambda episode: float('right' in episode.answer))
FACTS = FactSettings(turns=12)
TOKENS = 10.0  # of a turn


def episode(habit, broken=False):
    """One attempt; only who works gives the right answer."""
    state = {'status': Status.TOOL_ERROR, 'text': 'no'} if broken else {'text': 'red'}
    asked = {
        'works': [ask(find(), **state)],
        'guesses': [],
        'repeats': [ask(find(), **state)] * 5,
        'misuses': [ask(find(), status=Status.BAD_ARGUMENTS, text='what?')] * 2,
        'wanders': [ask(find(str(place)), text='grey') for place in range(9)],
        'drifts': [ask(find('off'), text='red', tier=Tier.BEST_EFFORT)],
    }[habit]
    if habit == 'wanders':
        return play(*asked, task=TASK, ending=Termination.MAX_TURNS)
    right = habit == 'works' and not broken
    return play(*asked, say('right' if right else 'wrong'), task=TASK)


def mean_entropy(chance):
    return -float(np.sum(chance * np.log(chance + 1e-12)))


def live_through(
    seed,
    habits=('works', 'guesses', 'repeats'),
    prior=None,
    steps=24,
    hybrid=HybridSettings(),
    weights=(0.5, 0.5, 1.0),
    rate=1.0,
    flatten=0.0,
    broken_from=None,
    elites=(),
    elites_from=0,
    door=None,
):
    """Metrics of a policy-gradient run; `elites` are episodes of a cache, mixed in as they are.

    `flatten` is the strength of a bonus for entropy; a `door` looks at every episode.
    """
    draws, taste = np.random.default_rng(seed), np.array(prior or [0] * len(habits), float)
    history, before, weights = [], softmax(taste), Weights(*weights)
    for step in range(steps):
        chance = softmax(taste)
        chosen = draws.choice(len(habits), 16, p=chance)
        broken = broken_from is not None and step >= broken_from
        played = [episode(habits[habit], broken) for habit in chosen]
        facts = gather_facts(played, FACTS)
        rewards = hybrid_reward(facts, weights, hybrid)
        cached = elites if step >= elites_from else ()
        paid = np.concatenate([rewards.total, [FOOLED] * len(cached)])
        rows = np.concatenate([chosen, [habits.index(habit) for habit in cached]]).astype(int)
        every, group = np.ones(len(rows), bool), np.zeros(len(rows), int)
        told = (paid.astype(np.float32), group, every, every)
        advantage = np.asarray(group_advantage(*told, AdvantageSettings()))
        push = np.mean(advantage[:, None] * (np.eye(len(habits))[rows] - chance), axis=0)
        taste = (1 - flatten) * (taste + rate * push)
        turns = sum(len(e.turns) for e in played)
        apart = chance @ np.log((chance + 1e-12) / before)
        history.append(
            {name: float(x) for name, x in reward_metrics(rewards, facts).items()}
            | {
                'step': step,
                'rewards/solved': np.mean([e.task.score(e) for e in played]),
                'policy/entropy': mean_entropy(chance),
                'policy/kl': 16 * apart / (TOKENS * turns),  # a habit is chosen once an episode
                'policy/tokens': TOKENS * turns,
                'update/zero_advantage_rows': np.mean(advantage == 0),
            }
            | (seen_by(door, played, step) if door else {})
        )
    return history


def softmax(x):
    chance = np.exp(x - x.max())
    return chance / chance.sum()


def seen_by(door, played, step):
    for place, each in enumerate(played):
        door.consider(record(each, 1000 * step + place, episode_return=FOOLED), each)
    return door.metrics()


def ever(history, signs=SIGNS):
    """Every alarm that sounded at some step."""
    return {
        found.name
        for end in range(1, len(history) + 1)
        for found in degenerations(history[:end], signs)
    }


@pytest.mark.parametrize('seed', range(5))
def test_a_run_that_learns_sounds_nothing(seed):
    history = live_through(seed)
    assert history[-1]['rewards/solved'] > history[0]['rewards/solved']
    assert not ever(history)


@pytest.mark.parametrize('seed', range(5))
def test_a_reward_that_pays_misses_sounds_nothing_while_right_answers_win(seed):
    some = {'habits': ('works', 'drifts'), 'hybrid': TRUSTING, 'weights': FINAL}
    history = live_through(seed, **some)
    assert any(step['rewards/best_effort_premium'] > 0.1 for step in history)
    assert history[-1]['rewards/solved'] > history[0]['rewards/solved']
    assert not ever(history)


BUSY = HybridSettings(
    micro=MicroSettings(executed=1.0, cap=10.0),
    penalty=PenaltySettings(repeated=0.0, near=0.0, late=0.0, irrelevant=0.0),
)
TRUSTING = HybridSettings(tier_aware='worst', trust=TrustSettings())
FINAL = (0.0, 0.0, 1.0)


def door():
    known = HonestySettings()
    judges, flags = admission_judges(known, FACTS), hacking_flags(known, FACTS)
    return Door(AdmissionSettings(), judges, flags)


TWO = ('works', 'guesses')
WORLDS = {
    'repetition': [
        {'hybrid': BUSY, 'prior': (2, 0, -1)},  # a reward that pays for repeated calls
        {'elites': ['repeats'] * 16, 'prior': (2, 0, -1)},  # a cache full of hacked trajectories
    ],
    'broken_tool': [{'broken_from': 12}],
    'gaming': [{'elites': ['repeats'] * 48, 'prior': (2, 0, 0), 'door': door}],
    'invalid_calls': [
        {'habits': ('works', 'misuses'), 'prior': (2, 0), 'elites': ['misuses'] * 99}
    ],
    'cut_by_length': [{'habits': ('works', 'wanders'), 'prior': (2, 0), 'hybrid': BUSY}],
    'success_collapse': [
        {'habits': TWO, 'elites': ['guesses'] * 99, 'elites_from': 12, 'rate': 30.0}
    ],
    'length_collapse': [{'prior': (-3, 0, 3), 'elites': ['guesses'] * 16}],
    # Without a KL, a rate far too high, and examples that the reference would never give.
    'kl_explosion': [{'prior': (5, -5, 0), 'rate': 20.0, 'elites': ['guesses'] * 99}],
    'entropy_collapse': [{'habits': ('guesses', 'misuses'), 'prior': (0, 0), 'rate': 20.0}],
    'entropy_explosion': [{'prior': (5, -5, -5), 'rate': 0.0, 'flatten': 0.3}],
    'zero_variance': [{'weights': (0.0, 0.0, 0.0)}],  # a reward that pays nobody
    'micro_without_success': [{'habits': ('guesses', 'wanders'), 'prior': (1, -1)}],
    'paid_for_missing_the_cache': [
        {'habits': ('wanders', 'drifts'), 'prior': (2, 0), 'hybrid': TRUSTING, 'weights': FINAL}
    ],
}


@pytest.mark.parametrize(
    ('name', 'world'), [(name, world) for name, worlds in WORLDS.items() for world in worlds]
)
@pytest.mark.parametrize('seed', range(2))
def test_an_alarm_sounds_where_its_degeneration_is_made(name, world, seed):
    world = world | ({'door': world['door']()} if 'door' in world else {})
    assert name in ever(live_through(seed, **world))


def test_every_alarm_has_a_world_but_numbers_that_break():
    """A broken number cannot be lived through: test_run_watchdog.py and the update make it."""
    paid = {'micro_without_success', 'paid_for_missing_the_cache'}
    assert set(WORLDS) == (set(CHECKS) | paid) - {'not_finite'}


def test_the_command_tells_what_would_have_sounded(tmp_path, monkeypatch, capfd):
    for name, world in (('well', {}), ('ill', {'broken_from': 12})):
        (tmp_path / name).mkdir()
        lines = map(json.dumps, live_through(0, **world))
        (tmp_path / name / 'metrics.jsonl').write_text('\n'.join(lines) + '\n')
    folders = [str(tmp_path / name) for name in ('well', 'ill')]
    out = tmp_path / 'alarms.json'
    monkeypatch.setattr(sys, 'argv', ['watch', *folders, '--json', str(out)])
    watch.main()
    assert '1 of 2 runs sound no alarm' in capfd.readouterr().out
    well, ill = json.loads(out.read_text())['runs']
    assert well['alarms'] == {} and well['steps'] == ill['steps'] == 24
    told = ill['alarms']['broken_tool']
    assert 12 < told['first_step'] < 24 and told['steps'] >= 1 and 'failed' in told['message']


def test_a_folder_without_metrics_is_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, 'argv', ['watch', str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        watch.main()
    assert ended.value.code == 2 and 'holds no metrics' in capfd.readouterr().err
