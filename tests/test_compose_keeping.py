"""What enters the rollout cache between two steps: what a person let in, once, and if it fits."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from rewards_episodes import ask, find, goal, make_task, play, say
from rollout_cache_rows import record as made_record

from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.compose.keeping import RolloutCache
from cacherl_jax.compose.learning import lessons_of
from cacherl_jax.compose.samples import Samples
from cacherl_jax.compose.step import TERMS
from cacherl_jax.config import PRESETS
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.rewards.hybrid import HybridSettings, WeightSettings, hybrid_reward, weights_at
from cacherl_jax.rollout_cache import record
from cacherl_jax.rollout_cache.buffer import BufferSettings
from cacherl_jax.rollout_cache.record import Source
from cacherl_jax.rollout_cache.review import decide
from cacherl_jax.schedule import Schedule
from cacherl_jax.seat import RolloutSettings
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
    return rows, episodes, rewards, [False, False]


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
    nothing = Samples(episodes=[], arrays=[])
    assert held(cache.add_samples(cache.empty_store(), nothing)) == []


def right(sample=0, turns=1):
    """An episode that the door lets in; with more turns than one it asks again and again."""
    task = make_task(goal('red', 'find'))
    asked = [ask(find(), text='red') for _ in range(turns)]
    return play(*asked, say('It is red.'), task=task, sample=sample, step=-1)


def row_of(number):
    """Three tokens that tell the number, and what a rollout says of them."""
    place = np.arange(3)
    return {
        'tokens': place + 10 * number,
        'sampled': place > 0,
        'turn': place - 1,
        'logprob': -place - np.float32(0.1),
    }


def begun(folder, *samples, shown=0):
    """A cache that began with so many demonstrations and with these pairs of episode and row."""
    cache = cache_of(folder)
    rows = [{k: v for k, v in row_of(i).items() if k != 'logprob'} for i in range(shown)]
    lessons = lessons_of([*rows, row_of(9)], [right() for _ in range(shown)], config())
    store = cache.add_demonstrations(cache.empty_store(), lessons)
    episodes, arrays = ([pair[k] for pair in samples] for k in (0, 1))
    return cache, cache.add_samples(store, Samples(episodes=episodes, arrays=arrays))


def test_samples_enter_beside_the_demonstrations_and_are_paid_like_them(tmp_path):
    cache, store = begun(tmp_path, (right(), row_of(2)), (right(1), row_of(3)), shown=2)
    sources = [Source.DEMONSTRATION] * 2 + [Source.REJECTION] * 2
    rows = [[*row_of(number)['tokens'], 0] for number in range(4)]
    assert held(store) == list(zip(rows, sources, strict=True))
    for paid in (store.entries.episode_return[:4], *store.entries.reward[:4].T):
        assert len(set(paid.tolist())) == 1
    assert cache.door.counts == {'admitted/good': 4}
    _, without = begun(tmp_path, shown=2)
    assert held(without) == held(store)[:2]


def test_a_sample_has_the_log_probabilities_that_its_rollout_gave_and_no_others(tmp_path):
    unknown = {name: x for name, x in row_of(3).items() if name != 'logprob'}
    cache, store = begun(tmp_path, (right(), row_of(2)), (right(1), unknown), shown=1)
    assert store.entries.has_behaviour[:3].tolist() == [False, True, False]
    found = store.entries.trajectory.logprob[1, :3]
    np.testing.assert_array_equal(found, row_of(2)['logprob'].astype(np.float32))
    assert store.entries.version[:3].tolist() == [0, -1, -1]


def test_samples_pass_the_door_like_everything_else(tmp_path):
    wrong = dataclasses.replace(right(), task=make_task(goal('red'), score=lambda e: 0.0))
    again = right(turns=5)
    pairs = [(right(), row_of(0)), (wrong, row_of(2)), (again, row_of(3)), (right(), row_of(4))]
    cache, store = begun(tmp_path, *pairs, (right(), row_of(4)), shown=1)
    assert [source for _, source in held(store)] == [Source.DEMONSTRATION, Source.REJECTION]
    counts = dict(cache.door.counts)
    assert counts.pop('admitted/good') == counts.pop('refused/duplicate') == 2
    assert counts.pop('refused/flag') == 1
    assert sum(counts.values()) == 1 and not any(name.startswith('admitted') for name in counts)


def test_samples_are_kept_with_the_checkpoint(tmp_path):
    cache, store = begun(tmp_path, (right(), row_of(2)), shown=1)
    saved = cache.save()
    kept = record.read(tmp_path / 'rollout_cache')
    assert [one.source for one in kept] == [Source.DEMONSTRATION, Source.REJECTION]
    entries = record.as_entries(kept, CONTEXT, TERMS)
    for name in ('tokens', 'logprob', 'sampled', 'turn'):
        held_rows = getattr(store.entries.trajectory, name)[:2]
        np.testing.assert_array_equal(getattr(entries.trajectory, name), held_rows)
    np.testing.assert_array_equal(entries.reward, store.entries.reward[:2])
    later = cache_of(tmp_path)
    later.restore(saved)
    refused = later.add_samples(store, Samples(episodes=[right()], arrays=[row_of(2)]))
    assert held(refused) == held(store)  # it is known already


def missed(sample):
    """A near miss: the way was right, the answer is wrong."""
    task = make_task(goal('red', 'find'), score=lambda episode: 0.0)
    return play(ask(find(), text='red'), say('It is blue.'), task=task, sample=sample)


@pytest.mark.parametrize('share', [0.0, 0.4])
def test_near_misses_are_kept_for_contrast_up_to_their_share(tmp_path, share):
    admission = dataclasses.replace(config().admission, failures_fraction=share)
    asked = dataclasses.replace(config(), admission=admission)
    cache = RolloutCache(asked, chat(), tmp_path / 'rollout_cache', '')
    episodes = [right(0), right(1), missed(2), missed(3)]
    facts = gather_facts(episodes, FactSettings())
    rewards = hybrid_reward(facts, weights_at(0, WeightSettings()), HybridSettings())
    size = (4, CONTEXT)
    rows = Trajectory(
        tokens=jnp.arange(16).reshape(size), length=jnp.full(4, CONTEXT),
        sampled=jnp.ones(size, bool), logprob=jnp.zeros(size), turn=jnp.zeros(size, int),
    )  # fmt: skip
    told = (rows, episodes, rewards, [True, True, False, False])
    store = cache.admit(cache.empty_store(), *told, 0)
    kept = [source for _, source in held(store)]
    assert kept == [Source.SUCCESS] * 2 + [Source.FAILURE] * (share > 0)  # one of three, not two
    failed = cache.metrics(store, None, 0)['rollout_cache/failure_fraction']
    assert float(failed) == pytest.approx(1 / 3 if share else 0.0)
    assert [one.source for one in cache.pending] == kept


def test_failures_are_refused_where_everything_is_imitated():
    admission = dataclasses.replace(config().admission, failures_fraction=0.1)
    imitated = dataclasses.replace(config().mix, mode='supervised')
    with pytest.raises(ValueError, match='never imitated'):
        dataclasses.replace(config(), admission=admission, mix=imitated)
