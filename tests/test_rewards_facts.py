"""Facts: what a reader would count by hand, decided by outcomes and never by words."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewards_episodes import ask, episodes, find, goal, make_task, play, say

from cacherl_jax.rewards.facts import (
    PROCESS_PARTS,
    TERMINATIONS,
    Facts,
    FactSettings,
    TerminationEffects,
    gather_facts,
)
from cacherl_jax.rewards.repeats import near_identical
from cacherl_jax.tasks.task import Termination, Turn
from cacherl_jax.tools.tool import Call, ParseError, Result, Status, Tier

SIZES = FactSettings(turns=7, subgoals=3)
OUTCOMES = ('executed', 'guessed', 'failed', 'misused')
DRAFT = ParseError(reason='cut', text='{"name": "find"')


def gather(*played, **more):
    return gather_facts(played, dataclasses.replace(SIZES, **more))


def counts(facts, name):
    """Sums by turn of the first row, up to the turns played."""
    return getattr(facts, name)[0, : facts.turns[0]].tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(episodes, max_size=3))
def test_every_result_is_counted_once_and_padding_holds_nothing(played):
    facts = gather(*played)
    results = [[len(turn.results) for turn in one.turns] for one in played]
    total = sum(getattr(facts, name) for name in OUTCOMES)
    for row, expected in enumerate(results):
        assert total[row, : len(expected)].tolist() == expected
        assert facts.tier_calls[row].sum() == sum(expected)
    for name in (*OUTCOMES, 'silent', 'answers', 'repeated', 'near', 'late', 'irrelevant', 'tier'):
        assert not getattr(facts, name)[~facts.played].any()
    assert ((facts.process >= 0) & (facts.process <= 1)).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(episodes, max_size=3))
def test_a_sub_goal_is_paid_at_most_once(played):
    facts = gather(*played)
    assert facts.reached.sum(axis=1).max(initial=0) <= 1
    assert (facts.reached.sum(axis=(1, 2)) <= facts.subgoals).all()


@pytest.mark.parametrize('rows', [0, 1, 7])
def test_shapes_are_those_of_the_settings(rows):
    facts = gather(*[play(say())] * rows)
    assert facts.reached.shape == (rows, 7, 3) and facts.process.shape == (rows, 4)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(facts))
    assert len(jax.tree.leaves(facts)) == len(dataclasses.fields(Facts))


STATUSES = {Status.OK: 'executed', Status.UNKNOWN_TOOL: 'misused', Status.BAD_ARGUMENTS: 'misused'}


@pytest.mark.parametrize('status', Status)
@pytest.mark.parametrize('text', ['error 500: failed', 'success'])
def test_the_outcome_of_a_call_is_its_status_whatever_it_says(status, text):
    call = DRAFT if status is Status.PARSE_ERROR else find()
    facts = gather(play(ask(call, text=text, status=status)))
    default = 'misused' if status is Status.PARSE_ERROR else 'failed'
    assert [name for name in OUTCOMES if getattr(facts, name).any()] == [
        STATUSES.get(status, default)
    ]


@pytest.mark.parametrize('tier', Tier)
def test_a_guess_is_no_success(tier):
    facts = gather(play(ask(find(), tier=tier)))
    guess = tier >= Tier.BEST_EFFORT
    assert (facts.executed.sum(), facts.guessed.sum()) == (not guess, guess)


def test_the_final_answer_has_its_turn_and_an_episode_without_one_has_none():
    facts = gather(play(ask(find()), say()), play(say(), ending=Termination.MAX_TURNS), play())
    assert facts.answer_turn.tolist() == [1, -1, -1]


def test_a_failed_parse_is_neither_an_answer_nor_silence():
    facts = gather(play(ask(DRAFT, status=Status.PARSE_ERROR), ending=Termination.PARSE_FAILURES))
    assert not facts.answers.any() and not facts.silent.any() and not facts.answered.any()


@pytest.mark.parametrize('turn', [say(' '), say('It is', ended=False), Turn(text='<think>hm')])
def test_a_turn_that_neither_calls_nor_answers_is_silent(turn):
    facts = gather(play(turn, ending=Termination.MAX_TOKENS))
    assert counts(facts, 'silent') == [True] and counts(facts, 'answers') == [False]


def test_tiers_are_what_had_been_seen_before_and_in_the_turn():
    facts = gather(play(*[ask(find(str(t)), tier=tier) for t, tier in enumerate([1, 3, 2])], say()))
    assert counts(facts, 'tier') == [1, 3, 2, 0]
    assert counts(facts, 'tier_before') == [0, 1, 3, 3]
    assert facts.tier_worst.tolist() == [3]


# ---- sub-goals


def test_a_sub_goal_is_credited_to_the_turn_that_reached_it():
    task = make_task(goal('red'), goal('blue'))
    facts = gather(
        play(ask(find()), ask(find('b'), text='red'), ask(find('c'), text='red blue'), task=task)
    )
    assert np.argwhere(facts.reached[0]).tolist() == [[1, 0], [2, 1]]


def test_a_declared_order_is_asked_for_and_another_is_not():
    for after, paid, order in (((), [True, True], None), (('red',), [True, False], 0.0)):
        task = make_task(goal('red'), goal('blue', after=after))
        facts = gather(play(ask(find(), text='blue'), ask(find('b'), text='red'), task=task))
        assert facts.reached[0, :, :2].any(axis=0).tolist() == paid
        at = PROCESS_PARTS.index('order')
        assert (facts.process[0, at] if facts.process_known[0, at] else None) == order


def test_calls_after_the_last_sub_goal_are_late_and_those_of_the_same_turn_are_not():
    task = make_task(goal('red'))
    turns = [ask(find(), find('b'), text='red'), ask(find('c'), find('d')), say()]
    assert counts(gather(play(*turns, task=task)), 'late') == [0, 2, 0]
    assert counts(gather(play(*turns)), 'late') == [0, 0, 0]


def test_a_call_that_serves_no_sub_goal_is_irrelevant_and_an_unknown_tool_is_misuse_only():
    task = make_task(goal('red', 'find'))
    chat = [ask(Call('chat', {})), ask(find()), ask(Call('no', {}), status=Status.UNKNOWN_TOOL)]
    assert counts(gather(play(*chat, task=task)), 'irrelevant') == [1, 0, 0]
    assert not gather(play(*chat, task=make_task(goal('red')))).irrelevant.any()


def test_wrong_declarations_and_misfits_are_refused():
    with pytest.raises(ValueError, match='after'):
        gather(play(say(), task=make_task(goal('red', after=('green',)))))
    with pytest.raises(ValueError, match='different names'):
        gather(play(say(), task=make_task(goal('red'), goal('red'))))
    with pytest.raises(ValueError, match='8 turns'):
        gather(play(*[say()] * 8))
    with pytest.raises(ValueError, match='1 calls, 0 results'):
        gather(play(dataclasses.replace(ask(find()), results=()), say()))


def test_calls_that_a_limit_kept_from_running_are_no_results():
    cut = dataclasses.replace(ask(find()), results=())
    facts = gather(play(cut, ending=Termination.CONTEXT_FULL))
    assert not sum(getattr(facts, name) for name in OUTCOMES).any() and not facts.silent.any()


# ---- repeats


def test_the_same_call_again_is_a_repeat_whatever_the_order_of_arguments():
    again = [ask(find('x', n=1)), ask(Call('find', {'n': 1, 'query': 'x'})), ask(find('x', n=2))]
    assert counts(gather(play(*again)), 'repeated') == [0, 1, 0]


@pytest.mark.parametrize('status', [Status.TIMEOUT, Status.UNAVAILABLE, Status.OVER_BUDGET])
def test_a_second_try_after_a_failure_that_passes_is_no_repeat(status):
    facts = gather(play(ask(find(), status=status), ask(find()), ask(find())))
    assert counts(facts, 'repeated') == [0, 0, 1]


def test_a_question_about_a_changed_state_is_no_repeat():
    count, load = Call('count', {}), Call('load', {'table': 'a'})
    facts = gather(play(ask(count), ask(load), ask(count), ask(count), ask(load, text='fine')))
    assert counts(facts, 'repeated') == [0, 0, 0, 1, 1]
    steps = gather(play(*[ask(load, text=f'page {n}') for n in range(3)]))
    assert not steps.repeated.any()


NEAR = [
    ('Acme report', 'acme reports', True),
    ('the report of Acme', 'report Acme.', True),
    ('turn on the light', 'turn off the light', False),
    ('order 1001', 'order 1002', False),
    ('order A-10001', 'order A-10002', False),
    ('Paris, Texas', 'Paris, France', False),
    ('from Paris to Rome', 'from Rome to Paris', False),
    ('acceptable risks', 'unacceptable risks', False),
    ('do call me', 'do not call me', False),
    ('2024-01-02', '2024-02-01', False),
    ('', '', True),
]


@pytest.mark.parametrize('one, other, same', NEAR)
def test_only_spelling_may_differ_in_calls_that_are_near(one, other, same):
    facts = gather(play(ask(find(one, n=1)), ask(find(other, n=1)), ask(find(one, n=2))))
    assert (facts.near + facts.repeated)[0, 1] == same
    assert not (facts.near + facts.repeated)[0, 2]


@given(st.text(max_size=16), st.text(max_size=16))
def test_likeness_is_mutual(one, other):
    assert near_identical(one, one, 0.9)
    assert near_identical(one, other, 0.9) == near_identical(other, one, 0.9)


@pytest.mark.parametrize('one, other', [(1, True), (1, 1.0), ('1', 1), ([1], [1, 1]), (None, 0)])
def test_values_of_other_types_are_other_values(one, other):
    assert not near_identical({'n': one}, {'n': other}, 0.9)


# ---- endings, judges, process


@pytest.mark.parametrize('ending', Termination)
@pytest.mark.parametrize('effect', ['keep', 'zero', 'leave_out'])
def test_each_ending_has_its_effect_and_only_kept_rows_are_judged(ending, effect):
    asked = []
    task = make_task(score=lambda episode: asked.append(1) or 0.5)
    effects = TerminationEffects(**{ending.value: effect})
    facts = gather(play(say(), task=task, ending=ending), effects=effects)
    assert TERMINATIONS[facts.termination[0]] is ending
    assert (facts.kept[0], facts.counted[0]) == (effect != 'zero', effect != 'leave_out')
    assert len(asked) == facts.judged.sum() == (effect == 'keep')


def test_a_time_out_that_an_action_caused_is_kept_and_infrastructure_is_not():
    slow = ask(find(), status=Status.TIMEOUT)
    facts = gather(play(slow), play(slow, ending=Termination.TOOL_INFRASTRUCTURE))
    assert facts.counted.tolist() == [True, False] and facts.failed[:, 0].tolist() == [1, 1]


def test_an_abstention_is_no_zero():
    facts = gather(*[play(say(), task=make_task(score=lambda e, s=s: s)) for s in (None, 0.0)])
    assert facts.judged.tolist() == [False, True] and not facts.answer_score.any()


@pytest.mark.parametrize('score', [1.5, -0.1, float('nan'), '1'])
def test_a_judge_out_of_range_is_our_mistake(score):
    with pytest.raises(ValueError, match='toy/train'):
        gather(play(say(), task=make_task(score=lambda episode: score)))


def test_a_checker_that_raises_is_not_silenced():
    with pytest.raises(ZeroDivisionError):
        gather(play(say(), task=make_task(score=lambda episode: 1 / 0)))


def test_groups_are_known_by_task_and_step_wherever_their_rows_stand():
    one, other = make_task(number=1), make_task(number=2)
    played = [play(task=one), play(task=other), play(task=one), play(task=one, step=1)]
    assert gather(*played).group.tolist() == [0, 1, 0, 2]


META = [
    ('The user wants the revenue, so I search.', True),
    ('Okay, let me check the report.', True),
    ('I need to call find first.', True),
    ('The revenue was 4.2 billion USD. Let me know if you need more.', False),
    ('I have booked the museum.', False),
    ('Users asked 7 questions.', False),
]


@pytest.mark.parametrize('answer, meta', META)
def test_talk_about_what_to_do_is_told_from_an_answer(answer, meta):
    assert gather(play(say(answer))).meta.tolist() == [meta]


def part(name, *turns, task=None):
    facts, at = gather(play(*turns, task=task)), PROCESS_PARTS.index(name)
    return facts.process[0, at] if facts.process_known[0, at] else None


def test_the_process_is_four_shares():
    assert part('format', ask(find()), say(' ')) == 0.5
    assert part('no_leak', ask(find()), say('<think> 7')) == 0
    bad = Result(status=Status.BAD_ARGUMENTS, text='no')
    mixed = dataclasses.replace(ask(find(), find('b')), results=(*ask(find()).results, bad))
    assert part('validity', mixed) == 0.5
    assert (
        part('validity', say()) is None
        and part('validity', say(), task=make_task(goal('red'))) == 0
    )
    task = make_task(goal('red'), goal('blue', after=('red',)))
    assert part('order', ask(find(), text='red'), ask(find('b'), text='red blue'), task=task) == 1


@pytest.mark.parametrize(
    'wrong, name',
    [
        ({'turns': 0}, 'turns'),
        ({'subgoals': 0}, 'subgoals'),
        ({'alike_words': 0.0}, 'alike_words'),
        ({'meta_patterns': ('(',)}, 'meta_patterns'),
    ],
)
def test_nonsense_is_refused_by_name(wrong, name):
    with pytest.raises(ValueError, match=name):
        FactSettings(**wrong)
    with pytest.raises(ValueError, match='max_turns'):
        TerminationEffects(max_turns='forget')
