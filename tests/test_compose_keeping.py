"""What enters the rollout cache between two steps: what a person let in, once, and if it fits."""

import dataclasses
import functools

import jax.numpy as jnp
import pytest
from rewards_episodes import ask, find, goal, make_task, play, say
from rollout_cache_rows import record as made_record

from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.compose.keeping import RolloutCache
from cacherl_jax.compose.learning import lessons_of
from cacherl_jax.compose.step import TERMS
from cacherl_jax.config import PRESETS
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.hybrid import HybridSettings, WeightSettings, hybrid_reward, weights_at
from cacherl_jax.rollout import RolloutSettings
from cacherl_jax.rollout_cache import record
from cacherl_jax.rollout_cache.buffer import BufferSettings
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.rollout_cache.review import decide
from cacherl_jax.schedule import Schedule
from cacherl_jax.trajectory import Trajectory

CONTEXT = 4
REWARDS = dict.fromkeys(TERMS, 0.25)
WAITING = [made_record(seed=seed, rewards=REWARDS) for seed in range(3)]
CORRECTED = [
    made_record(seed=seed, logprob=False, rewards=REWARDS, source=Source.CORRECTION)
    for seed in (5, 6)
]


@functools.cache
def config():
    small = PRESETS['small']
    return dataclasses.replace(
        small,
        groups=1,
        rollout=RolloutSettings(samples=2),
        decode=DecodeSettings(
            slots=2,
            context_tokens=CONTEXT,
            turn_tokens=2,
            episode_tokens=2,
            segment_tokens=2,
            widths=(CONTEXT,),
        ),
        update=UpdateSettings(widths=(CONTEXT,)),
        mix=dataclasses.replace(small.mix, share=Schedule(start=0.0)),
        buffer=BufferSettings(capacity=16, minimum=1),
    )


@functools.cache
def chat() -> Chat:
    return Chat(tokenizer=load_tokenizer(BASE), end_ids=(0,))


def cache_of(run) -> RolloutCache:
    return RolloutCache(config(), chat(), run / 'rollout_cache', '')


@functools.cache
def fresh():
    """Two fresh episodes of one task that taught nothing, as the step hands them over."""
    task = make_task(goal('red', 'find'))
    turns = [ask(find(), text='grey'), say('No idea.')]
    episodes = [play(*turns, task=task, sample=sample) for sample in range(2)]
    facts = gather_facts(episodes, FactSettings())
    rewards = hybrid_reward(facts, weights_at(0, WeightSettings()), HybridSettings())
    nothing = jnp.zeros((2, CONTEXT), jnp.int32)
    rows = Trajectory(
        tokens=nothing, length=jnp.full(2, CONTEXT), sampled=nothing > 0,
        logprob=jnp.zeros((2, CONTEXT)), turn=nothing,
    )  # fmt: skip
    return rows, [task], episodes, rewards, [False, False]


def admit(cache, store, step=0):
    return cache.admit(store, *fresh(), step)


def held(store):
    """First tokens and sources of the rows in the store, in the order of their coming."""
    filled = store.filled.tolist()
    rows = zip(store.entries.trajectory.tokens.tolist(), store.entries.source.tolist(), strict=True)
    return [(row, source) for (row, source), full in zip(rows, filled, strict=True) if full]


def expected(records):
    return [(one.tokens.tolist(), int(one.source)) for one in records]


@pytest.fixture
def run(tmp_path):
    """A run that was saved with three records in quarantine."""
    record.append(tmp_path / 'quarantine', WAITING)
    cache = cache_of(tmp_path)
    cache.restore({'segments': 0, 'door': {'seen': [r.identity for r in WAITING], 'counts': {}}})
    return tmp_path, cache


def test_what_a_person_approved_enters_at_the_next_step_and_what_was_rejected_never(run):
    folder, cache = run
    good, bad, waits = (one.identity for one in WAITING)
    decide(folder, [good], [bad])
    store = admit(cache, cache.empty_store(), 3)
    assert held(store) == expected(WAITING[:1]) and list(cache.door.waiting) == [waits]
    assert store.entries.added[0] == 3
    assert held(admit(cache, store, 4)) == expected(WAITING[:1])


def test_a_correction_enters_once_as_an_example(run):
    folder, cache = run
    store = admit(cache, cache.empty_store())
    assert held(store) == []
    record.append(folder / 'corrections', CORRECTED[:1])
    store = admit(cache, store, 1)
    assert held(store) == expected(CORRECTED[:1]) and not store.entries.has_behaviour[0]
    record.append(folder / 'corrections', CORRECTED[1:])
    store = admit(cache, store, 2)
    assert held(store) == expected(CORRECTED) == held(admit(cache, store, 3))


def test_what_entered_is_kept_with_the_checkpoint_and_enters_again_where_that_is_older(run):
    folder, cache = run
    before = cache.save()
    decide(folder, [WAITING[0].identity])
    record.append(folder / 'corrections', CORRECTED)
    wanted = [WAITING[0], *CORRECTED]
    assert held(admit(cache, cache.empty_store())) == expected(wanted)
    again = cache_of(folder)
    again.restore(before)
    assert held(admit(again, again.empty_store())) == expected(wanted)
    saved = again.save()
    kept = record.read(folder / 'rollout_cache')
    assert [one.identity for one in kept] == [one.identity for one in wanted]
    later = cache_of(folder)
    later.restore(saved)
    assert held(admit(later, later.empty_store())) == []


def test_a_correction_longer_than_the_context_is_left_out_and_counted(run, capfd):
    folder, cache = run
    long = dataclasses.replace(
        CORRECTED[0],
        **{name: jnp.resize(getattr(CORRECTED[0], name), 5) for name in ('tokens', 'turn')},
        sampled=jnp.ones(5, bool),
    )
    record.append(folder / 'corrections', [long, CORRECTED[1]])
    store = admit(cache, cache.empty_store())
    assert held(store) == expected(CORRECTED[1:]) == held(admit(cache, store))
    assert cache.door.metrics()['rollout_cache/refused/too_long'] == 1
    said = capfd.readouterr().err
    assert said.count('left out: it has 5 tokens, decode.context_tokens is 4') == 1


def test_a_run_without_demonstrations_begins_with_an_empty_cache(tmp_path):
    row = {'tokens': jnp.arange(3), 'sampled': jnp.arange(3) > 1, 'turn': jnp.zeros(3, int)}
    cache, lessons = cache_of(tmp_path), lessons_of([row], [], config())
    assert held(cache.add_demonstrations(cache.empty_store(), lessons)) == []
