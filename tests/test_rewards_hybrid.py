"""The reward of episodes and turns: against a plain loop, and at the sizes and tiers that hurt."""

import dataclasses
import math
import statistics

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewards_episodes import TOOLS, ask, episodes, find, goal, make_task, play, say

from cacherl_jax.grpo.advantage import AdvantageSettings, group_advantage
from cacherl_jax.rewards import terms
from cacherl_jax.rewards.facts import (
    FactSettings,
    TerminationEffects,
    gather_facts,
    stratified_group,
)
from cacherl_jax.rewards.hybrid import (
    HybridSettings,
    Weights,
    WeightSettings,
    hybrid_reward,
    weighted,
    weights_at,
)
from cacherl_jax.rewards.metrics import reward_metrics, spreads
from cacherl_jax.rewards.repeats import call_key
from cacherl_jax.schedule import Schedule
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import Status, Tier

SIZES = FactSettings(turns=7, subgoals=3, effects=TerminationEffects(parse_failures='zero'))
WEIGHTS = Weights(micro=0.5, macro=0.25, final=0.75)
LATER = Weights(micro=0.0, macro=0.1, final=1.0)
TRUST = {Tier.LIVE: 0.6, Tier.EXACT: 0.6, Tier.FUZZY: 0.3, Tier.BEST_EFFORT: 0.1, Tier.MISS: 0.1}
MODES = ('off', 'worst', 'per_turn')
NO_PENALTY = terms.PenaltySettings(repeated=0, near=0, late=0, irrelevant=0)


def reward(*played, mode='off', weights=WEIGHTS, sizes=SIZES, **more):
    """Rewards of the episodes, as numpy; bystanders fill the batch to one size, compiled once."""
    bystanders = [play(say(), task=make_task(number=99))] * (8 - len(played))
    facts = gather_facts([*played, *bystanders], sizes)
    found = hybrid_reward(facts, weights, HybridSettings(tier_aware=mode, **more))
    return jax.tree.map(lambda x: np.asarray(x)[: len(played)], found)


def reward_alone(episode):
    return hybrid_reward(gather_facts([episode], SIZES), WEIGHTS, HybridSettings())


# ---- the slow route: one episode at a time, from the specification, without the package's facts


def slow_micro(turn):
    paid = {Status.OK: 0.1, Status.TOOL_ERROR: -0.1, Status.TIMEOUT: -0.1}
    paid |= {Status.UNAVAILABLE: -0.1, Status.OVER_BUDGET: -0.1}
    if not turn.calls and not (turn.ended and turn.content.strip()):
        return -0.3
    far = (Tier.BEST_EFFORT, Tier.MISS)
    return sum(
        0.0 if result.status is Status.OK and result.tier in far else paid.get(result.status, -0.2)
        for result in turn.results
    )


def slow_macro(episode):
    """What each turn earns for sub-goals, without caps."""
    turns, goals, earned = episode.turns, list(episode.task.subgoals), []
    for number in range(len(turns)):
        new = [one for one in goals if one.reached(turns[: number + 1])]
        goals = [one for one in goals if one not in new]
        earned.append(len(new) / len(episode.task.subgoals) if new else 0.0)
    return earned


def slow_trust(episode, number):
    """Trust in what had been seen when the turn was taken."""
    seen = [result.tier for turn in episode.turns[:number] for result in turn.results]
    return TRUST[max(seen, default=Tier.LIVE)]


def slow_final(episode, process, mode):
    """The final term; None where the judge abstains."""
    if episode.termination is Termination.PARSE_FAILURES or episode.answer.startswith('Let me'):
        return 0.0
    score, turns = episode.task.score(episode), len(episode.turns)
    if score is None or mode == 'off':
        return score
    every = [slow_trust(episode, number) for number in range(turns)]
    mean = statistics.fmean(every) if every else 0.0
    weight = slow_trust(episode, turns) if mode == 'worst' else mean
    return weight * score + (1 - weight) * process


def slow_totals(played, processes, mode):
    """Totals of the counted episodes; abstentions take the mean of their judged siblings."""
    finals = {}
    for row, episode in enumerate(played):
        if episode.termination is not Termination.TOOL_INFRASTRUCTURE:
            finals[row] = slow_final(episode, processes[row], mode)
    for row, final in finals.items():
        episode, group = played[row], played[row].task.id
        others = [x for i, x in finals.items() if played[i].task.id == group and x is not None]
        final = (statistics.fmean(others) if others else 0.0) if final is None else final
        micro = min(max(sum(map(slow_micro, episode.turns)), -1.0), 0.5)
        total = 0.5 * micro + 0.25 * sum(slow_macro(episode)) + 0.75 * final
        yield row, 0.0 if episode.termination is Termination.PARSE_FAILURES else total


@settings(max_examples=40, deadline=None)
@given(st.lists(episodes, min_size=7, max_size=7), st.sampled_from(MODES))
def test_arrays_pay_what_a_plain_loop_pays(played, mode):
    found = reward(*played, mode=mode, penalty=NO_PENALTY)
    for row, total in slow_totals(played, found.raw['process'].tolist(), mode):
        assert float(found.total[row]) == pytest.approx(total, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(episodes, min_size=7, max_size=7), st.sampled_from(MODES))
def test_the_parts_add_up_and_all_is_finite(played, mode):
    found = reward(*played, mode=mode)
    chex.assert_tree_all_finite(found)
    chex.assert_trees_all_close(found.total, found.final + found.turn.sum(1), atol=1e-6)
    chex.assert_trees_all_close(found.total, sum(found.terms.values()), atol=1e-6)
    parts = [found.turn_terms[name] for name in ('micro', 'macro', 'penalty')]
    chex.assert_trees_all_close(found.turn, sum(parts), atol=1e-6)
    low, high = -0.5 * 1.0 - 0.5, 0.5 * 0.5 + 0.25 + 0.75
    assert ((found.total >= low - 1e-6) & (found.total <= high + 1e-6)).all()


@settings(max_examples=8, deadline=None)
@given(st.lists(episodes, min_size=7, max_size=7), st.sampled_from(MODES))
def test_jitted_and_not_agree(played, mode):
    facts, how = gather_facts(played, SIZES), HybridSettings(tier_aware=mode)
    with jax.disable_jit():
        slow = hybrid_reward(facts, WEIGHTS, how)
    chex.assert_trees_all_close(hybrid_reward(facts, WEIGHTS, how), slow, atol=1e-6)


def test_rows_paid_alone_and_together_are_paid_alike():
    played = list(varied())
    together = reward(*played)
    alone = [reward_alone(one) for one in played]
    chex.assert_trees_all_close(together.total, jnp.concatenate([one.total for one in alone]))
    chex.assert_trees_all_close(together.turn, jnp.concatenate([one.turn for one in alone]))


def test_ten_more_turns_and_sub_goals_of_padding_change_nothing():
    played = [play(ask(find(), find('b')), say()), play(), play(say(' '))]
    wide = dataclasses.replace(SIZES, turns=17, subgoals=13)
    one, other = reward(*played, mode='per_turn'), reward(*played, mode='per_turn', sizes=wide)
    chex.assert_trees_all_close(one.total, other.total, atol=1e-7)
    assert not other.turn[:, 7:].any() and not other.final_by_turn[:, 7:].any()


def test_many_batches_and_steps_compile_once():
    once = chex.assert_max_traces(hybrid_reward.__wrapped__, n=1)
    once = jax.jit(once, static_argnames='settings')
    weights = WeightSettings()
    for step, length in enumerate((0, 1, 3, 7)):
        played = [play(*[ask(find(str(step)))] * length)] * 3
        once(gather_facts(played, SIZES), weights_at(step, weights), settings=HybridSettings())


@pytest.mark.parametrize('mode', MODES)
def test_no_row_and_no_turn_are_finite(mode):
    none = hybrid_reward(gather_facts([], SIZES), WEIGHTS, HybridSettings(tier_aware=mode))
    assert none.total.shape == (0,)
    empty = reward(play(ending=Termination.CONTEXT_FULL), play(say()), mode=mode)
    chex.assert_tree_all_finite(empty)
    assert not empty.turn[0].any()


# ---- tiers


def off_cache(score, tier, process=1.0):
    """An episode of one call; process is 1, or 0 where nothing of it is well-formed."""
    task = make_task(goal('red', 'find'), score=lambda episode: score)
    if process:
        return play(ask(find(), text='red', tier=tier), say(), task=task)
    fault = dataclasses.replace(
        ask(find(), tier=tier, status=Status.BAD_ARGUMENTS), content='<think>', ended=False
    )
    return play(fault, task=task, ending=Termination.MAX_TURNS)


@pytest.mark.parametrize(
    'score, process, expected',
    [(0, 1, (0.4, 0.7, 0.9)), (1, 0, (0.6, 0.3, 0.1)), (1, 1, (1.0, 1.0, 1.0))],
)
def test_trust_in_the_answer_falls_with_the_tier(score, process, expected):
    tiers = (Tier.EXACT, Tier.FUZZY, Tier.BEST_EFFORT)
    found = reward(*(off_cache(score, tier, process) for tier in tiers), mode='worst')
    np.testing.assert_allclose(found.raw['process'], process, atol=1e-6)
    np.testing.assert_allclose(found.raw['final'], expected, atol=1e-6)


def test_a_turn_is_judged_by_what_had_been_seen_when_it_was_taken():
    turns = [ask(find(str(t)), tier=tier) for t, tier in enumerate([1, 2, 3, 1])]
    played = play(*turns, say(), task=make_task(score=lambda episode: 0.0))
    found = reward(played, mode='per_turn', weights=Weights(micro=0.0, macro=0.0, final=1.0))
    expected = [0.4, 0.4, 0.7, 0.9, 0.9]
    np.testing.assert_allclose(found.final_by_turn[0, :5], expected, atol=1e-6)
    assert float(found.raw['final'][0]) == pytest.approx(statistics.fmean(expected))


def test_a_miss_is_trusted_like_best_effort_and_live_like_exact():
    played = [off_cache(0.0, tier) for tier in Tier]
    final = reward(*played, mode='worst').raw['final'].tolist()
    assert final[0] == final[1] < final[2] < final[3] == final[4]


def test_equal_answers_are_paid_equally_to_the_last_bit():
    task = make_task(score=lambda episode: 0.35)
    played = [play(*[ask(find(str(t))) for t in range(n)], task=task) for n in (0, 1, 3, 6)]
    assert len(set(reward(*played).final.tolist())) == 1
    assert len(set(reward(*played[1:], mode='worst').final.tolist())) == 1


# ---- abstention, endings, clamps


def test_an_abstention_is_the_mean_of_its_siblings_and_says_so():
    scores = (1.0, None, 0.5, None)
    tasks = [make_task(score=lambda episode, score=score: score) for score in scores]
    stranger = play(say(), task=make_task(number=1, score=lambda episode: None))
    found = reward(*(play(say(), task=task) for task in tasks), stranger)
    np.testing.assert_allclose(found.raw['final'], [1.0, 0.75, 0.5, 0.75, 0.0])
    assert found.known['final'].tolist() == [True, False, True, False, False]
    assert found.known['micro'].all() and found.counted.all()


def test_infrastructure_changes_no_sibling():
    tasks = [make_task(score=lambda episode, score=score: score) for score in (1.0, 0.0, None)]
    fine = [play(say(), task=task) for task in tasks]
    spoiled = play(ask(find()), ending=Termination.TOOL_INFRASTRUCTURE)
    with_it, without = reward(*fine, spoiled), reward(*fine)
    chex.assert_trees_all_close(with_it.total[:3], without.total)
    assert with_it.counted.tolist() == [True, True, True, False]
    assert not any(known[3] for known in with_it.known.values())


def test_a_zeroed_ending_pays_nothing_for_any_turn():
    found = reward(play(ask(find()), ask(find('b')), ending=Termination.PARSE_FAILURES))
    assert not found.total.any() and not found.turn.any() and not found.final_by_turn.any()
    assert found.counted.all() and found.known['final'].all() and found.raw['micro'].all()


@pytest.mark.parametrize('mode', MODES)
def test_talk_about_what_to_do_is_no_answer_whatever_the_process(mode):
    played = play(ask(find(), tier=Tier.MISS), say('The user wants a number, so I should search.'))
    assert float(reward(played, mode=mode).final[0]) == 0.0


def test_the_reward_of_an_empty_episode_stays_in_its_row():
    full = play(ask(find()), say())
    assert float(reward(play(), full).total[1]) == float(reward(full).total[0])
    assert float(reward(full, play()).total[0]) == float(reward(full).total[0])


# ---- hacking


def test_more_calls_than_the_cap_earn_nothing():
    many = play(*[ask(*[find(f'{t} {n}') for n in range(9)]) for t in range(7)])
    found = reward(many)
    assert float(found.raw['micro'][0]) == 0.5
    assert not found.turn_terms['micro'][0, 1:].any()


def test_a_call_made_again_and_again_is_a_loss():
    single, busy = play(ask(find()), say()), play(*[ask(find())] * 6, say())
    found = reward(single, busy)
    assert found.total[1] < found.total[0]


@pytest.mark.parametrize('mode', MODES)
def test_a_right_answer_beats_busy_failure_under_every_weight_of_the_schedule(mode):
    right = play(ask(find()), say())
    busy = play(
        *[ask(*[find(f'{t}{n}') for n in range(4)]) for t in range(6)],
        task=make_task(score=lambda episode: 0.0),
        ending=Termination.MAX_TURNS,
    )
    for step in (0, 250, 500):
        found = reward(right, busy, mode=mode, weights=weights_at(step, WeightSettings()))
        assert found.total[0] > found.total[1]


# ---- settings and metrics


@pytest.mark.parametrize(
    'wrong, name',
    [
        (lambda: HybridSettings(tier_aware='sometimes'), 'tier_aware'),
        (lambda: terms.MicroSettings(misused=0.2), 'misused'),
        (lambda: terms.MicroSettings(guessed=0.2), 'guess'),
        (lambda: terms.MicroSettings(executed=math.nan), 'executed'),
        (lambda: terms.MacroSettings(cap=-1), 'cap'),
        (lambda: terms.PenaltySettings(late=0.1), 'late'),
        (lambda: terms.ProcessSettings(format=0, no_leak=0), 'format'),
        (lambda: terms.TrustSettings(fuzzy=0.9), 'fuzzy'),
        (lambda: WeightSettings(micro=Schedule(start=-1)), 'micro'),
    ],
)
def test_nonsense_is_refused_by_name(wrong, name):
    with pytest.raises(ValueError, match=name):
        wrong()


SETTINGS = [
    ('micro', field.name, value)
    for field, value in zip(
        dataclasses.fields(terms.MicroSettings),
        (0.2, 0.05, -0.4, -0.4, -0.4, 0.05, -0.1, 0.1),
        strict=True,
    )
]
SETTINGS += [('macro', 'all_reached', 0.5), ('macro', 'cap', 0.5)]
SETTINGS += [('penalty', name, -0.3) for name in ('repeated', 'near', 'late', 'irrelevant')]
SETTINGS += [('penalty', 'floor', -0.01)]
SETTINGS += [('process', name, 7.0) for name in ('format', 'validity', 'order', 'no_leak')]
SETTINGS += [('trust', 'exact', 0.7), ('trust', 'fuzzy', 0.2), ('trust', 'best_effort', 0.0)]


def varied():
    """Episodes in which everything happens once."""
    task = make_task(
        goal('red', 'find'), goal('blue', 'find', after={'red'}), score=lambda episode: 0.25
    )
    chat = dataclasses.replace(find(), name=TOOLS[1].name)
    yield play(
        ask(find(), text='blue'), ask(find('b'), text='red'), ask(find('c')), say(), task=task
    )
    yield play(ask(find(), text='red'), ask(find('b'), text='red blue'), say(), task=task)
    yield play(ask(find('report')), ask(find('report')), ask(find('reports')), task=task)
    yield play(ask(chat, status=Status.TOOL_ERROR, tier=Tier.FUZZY), say(), task=task)
    yield play(ask(find(), tier=Tier.BEST_EFFORT), say('<think>'), task=task)
    yield play(ask(find(), status=Status.BAD_ARGUMENTS), say(' '), task=task)
    yield play(*[ask(find(), find(), status=Status.BAD_ARGUMENTS)] * 4, task=task)
    yield play(*[ask(*[find(str(n)) for n in range(9)])], task=task)


@pytest.mark.parametrize('part, name, value', SETTINGS)
def test_every_number_changes_something(part, name, value):
    plain = HybridSettings(tier_aware='worst')
    changed = dataclasses.replace(getattr(plain, part), **{name: value})
    facts, unjitted = gather_facts(tuple(varied()), SIZES), hybrid_reward.__wrapped__
    one = unjitted(facts, WEIGHTS, plain)
    other = unjitted(facts, WEIGHTS, dataclasses.replace(plain, **{part: changed}))
    assert not np.allclose(one.total, other.total, atol=1e-6)


def test_stored_terms_are_paid_by_the_weights_of_today_as_new_ones_are():
    then, today = (reward(*varied(), weights=weights) for weights in (WEIGHTS, LATER))
    again = weighted(then.raw, LATER)
    chex.assert_trees_all_close(sum(again.values()), today.total, atol=1e-6)
    assert not np.allclose(then.total, today.total)


def test_a_baseline_stratified_by_tier_gives_drift_off_the_cache_no_advantage():
    tiers = [Tier.EXACT, Tier.LIVE, Tier.FUZZY, Tier.FUZZY, Tier.BEST_EFFORT, Tier.MISS]
    facts = gather_facts([off_cache(0.0, tier) for tier in tiers], SIZES)
    total = hybrid_reward(facts, LATER, HybridSettings(tier_aware='worst')).total
    every = np.ones(len(tiers), bool)
    plain, strata = (
        group_advantage(total, group, every, every, AdvantageSettings())
        for group in (facts.group, stratified_group(facts))
    )
    assert plain[-1] > 1 and not strata.any()


def test_weights_follow_their_schedules():
    early, late = (weights_at(step, WeightSettings()) for step in (0, 10**6))
    assert early.micro > late.micro and early.macro > late.macro and early.final < late.final


def test_metrics_are_flat_finite_scalars_that_leave_spoiled_rows_out():
    fine = [play(ask(find()), say()), play(say(' '), ending=Termination.MAX_TURNS)]
    spoiled = play(*[ask(find(), tier=Tier.MISS)] * 3, ending=Termination.TOOL_INFRASTRUCTURE)
    rows = gather_facts([*fine, spoiled], SIZES)
    found = reward_metrics(hybrid_reward(rows, WEIGHTS, HybridSettings()), rows)
    assert all(value.shape == () and value.dtype == jnp.float32 for value in found.values())
    assert float(found['failure/tool_infrastructure']) == pytest.approx(1 / 3)
    assert float(found['tool_cache/tier_exact']) == 1.0
    assert float(found['failure/silent']) == pytest.approx(1 / 3)


def test_the_spread_of_a_batch_has_the_mean_that_is_told_and_no_spoiled_row():
    fine = [play(ask(find()), say()), play(say(' '), ending=Termination.MAX_TURNS)]
    rows = gather_facts([*fine, play(ask(find()), ending=Termination.TOOL_INFRASTRUCTURE)], SIZES)
    rewards = hybrid_reward(rows, WEIGHTS, HybridSettings())
    found = spreads(rewards, rows)
    assert {name: np.isfinite(each).tolist() for name, each in found.items()} == dict.fromkeys(
        found, [True, True, False]
    )
    told = reward_metrics(rewards, rows)['rewards/total']
    assert float(jnp.nanmean(found['rewards/total'])) == pytest.approx(float(told), abs=1e-6)
    assert float(jnp.nanmean(found['episodes/turns'])) == 1.5


@given(st.permutations(['a', 'b', 'c']))
def test_argument_order_is_nothing_to_a_call(names):
    ordered = find(**dict.fromkeys(['a', 'b', 'c'], 1))
    assert call_key(ordered) == call_key(find(**dict.fromkeys(names, 1)))
