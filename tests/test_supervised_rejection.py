"""Laws of rejection sampling: what is taken is right, once, and every refusal has its count.

The samples are an expert's episodes, whole or spoiled in one way, so it is known what each is.
"""

import dataclasses
import functools

import numpy as np
import pytest

from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE, demonstrations
from cacherl_jax.supervised.dataset import episode_arrays, padded
from cacherl_jax.supervised.rejection import RejectionSettings, identity, reject
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import ParseError, Tier

LARGE = RejectionSettings(per_task=99)


@functools.cache
def chat() -> Chat:
    tokenizer = load_tokenizer(BASE)
    return Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))


@functools.cache
def episodes():
    tasks = [suite.task('train', level, 5) for suite in SUITES for level in (1, 2)]
    return {episode.task.id: episode for episode in demonstrations(tasks, live_sessions())}


def tasks():
    return [episode.task for episode in episodes().values()]


def right(episode, number=0):
    """The expert's, with a thought so that the ids differ by `number`."""
    turns = [dataclasses.replace(turn, thinking=f'Way {number}.') for turn in episode.turns]
    return dataclasses.replace(episode, turns=tuple(turns))


def last(episode, **fields):
    *turns, end = episode.turns
    return dataclasses.replace(episode, turns=(*turns, dataclasses.replace(end, **fields)))


def wrong(episode):
    return last(episode, content=episode.task.wrong_answers[2])


def unfinished(episode):
    return dataclasses.replace(episode, termination=Termination.MAX_TURNS)


def broken(episode):
    return last(episode, calls=(ParseError('broken JSON', '{'),))


def spoiled(episode):
    return dataclasses.replace(episode, termination=Termination.TOOL_INFRASTRUCTURE)


def guessed(episode):
    first, *turns = episode.turns
    results = [dataclasses.replace(result, tier=Tier.BEST_EFFORT) for result in first.results]
    first = dataclasses.replace(first, results=tuple(results))
    return dataclasses.replace(episode, turns=(first, *turns))


def unscored(episode):
    task = dataclasses.replace(episode.task, score=lambda _: float('nan'))
    return dataclasses.replace(episode, task=task)


REASONS = {
    wrong: 'wrong answer',
    unfinished: 'ended by max_turns',
    broken: 'broken call',
    spoiled: 'infrastructure',
    guessed: 'answers not trusted',
    unscored: 'not scored',
}


def player(*ways, log=None):
    """Plays each task once in every way; `log` gets what was asked for."""

    def play(asked, number):
        if log is not None:
            log.append((number, [task.id for task in asked]))
        found = [way(episodes()[task.id]) for task in asked for way in ways]
        readable = [e if way is not broken else last(e, calls=()) for e, way in
                    zip(found, ways * len(asked), strict=True)]  # fmt: skip
        rows, _ = padded([episode_arrays(chat(), episode) for episode in readable], 1024)
        return rows, found

    return play


def numbered(count):
    return tuple(functools.partial(right, number=number) for number in range(count))


@pytest.mark.parametrize(('way', 'reason'), REASONS.items())
def test_what_is_not_right_is_refused_with_its_reason(way, reason):
    found = reject(player(right, way), tasks(), LARGE)
    assert found.counts['accepted'] == found.counts[f'refused/{reason}'] == len(tasks())
    assert all(episode.task.score(episode) == 1 for episode in found.episodes)


def test_every_sample_is_counted_once():
    counts = reject(player(right, right, *REASONS), tasks(), RejectionSettings(per_task=1)).counts
    refused = {name: n for name, n in counts.items() if name.startswith('refused/')}
    assert counts['sampled'] == len(tasks()) * 8 == counts['accepted'] + sum(refused.values())
    assert refused == {
        f'refused/{reason}': len(tasks()) for reason in ('duplicate', *REASONS.values())
    }
    assert counts['tasks'] == counts['tasks_accepted'] == counts['accepted'] == len(tasks())


def test_the_report_says_what_was_taken_and_why_the_rest_was_not():
    told = reject(player(right, wrong), tasks(), LARGE).report()
    assert told == (
        'rejection sampling: 6 of 12 samples accepted, of 6 of 6 tasks; refused: 6 wrong answer'
    )
    none = reject(player(wrong), tasks()[:1], LARGE)
    assert none.counts['accepted'] == 0 and '0 of 1 samples accepted, of 0 of 1' in none.report()


@pytest.mark.parametrize('most', [1, 3, 7])
def test_no_task_gives_more_than_its_share(most):
    found = reject(player(*numbered(5)), tasks(), RejectionSettings(per_task=most))
    taken = [episode.task.id for episode in found.episodes]
    assert all(taken.count(task.id) == min(most, 5) for task in tasks())
    assert found.counts.get('refused/enough of its task', 0) == len(tasks()) * max(0, 5 - most)


def test_what_is_learned_are_the_sampled_ids():
    found = reject(player(*numbered(2)), tasks(), LARGE)
    for row, episode in zip(found.arrays, found.episodes, strict=True):
        for name, field in episode_arrays(chat(), episode).items():
            np.testing.assert_array_equal(row[name], field)


def test_samples_keep_the_log_probabilities_of_their_sampling():
    def play(asked, number):
        rows, found = player(*numbered(2))(asked, number)
        place = np.arange(rows.tokens.size, dtype=np.float32).reshape(rows.tokens.shape)
        return rows.replace(logprob=-place), found

    found = reject(play, tasks(), LARGE)
    for place, row in enumerate(found.arrays):
        count = len(row['tokens'])
        assert row['logprob'].dtype == np.float32 and count > 3
        np.testing.assert_array_equal(row['logprob'], -(place * 1024.0 + np.arange(count)))


def test_a_sample_equal_to_a_demonstration_is_one_too_many():
    rows = [episode_arrays(chat(), right(episode)) for episode in episodes().values()]
    found = reject(player(*numbered(2)), tasks(), LARGE, demonstrations=rows)
    assert found.counts['refused/duplicate'] == found.counts['accepted'] == len(tasks())
    both = found.combined(rows)
    assert both[: len(rows)] == rows and len({identity(row) for row in both}) == 2 * len(rows)


def test_later_rounds_play_only_what_is_still_wanted():
    log, chosen = [], {tasks()[1].id, tasks()[4].id}
    ways = lambda episode: right(episode) if episode.task.id in chosen else wrong(episode)  # noqa: E731
    settings = RejectionSettings(per_task=1, rounds=3, tasks_at_once=4)
    heard = []
    found = reject(player(ways, log=log), tasks(), settings, tell=heard.append)
    others = [task.id for task in tasks() if task.id not in chosen]
    names = [task.id for task in tasks()]
    assert log == [(0, names[:4]), (0, names[4:]), (1, others), (2, others)]
    assert heard == [1, 2, 2, 2] and found.counts['tasks_accepted'] == 2
    assert found.counts['sampled'] == 6 + 4 + 4


def test_every_judge_must_agree():
    judges = {'short': lambda episode: len(episode.turns) < 5, 'any': lambda episode: True}
    found = reject(player(right), tasks(), LARGE, judges=judges)
    assert all(len(episode.turns) < 5 for episode in found.episodes)
    assert found.counts['refused/judge short'] == len(tasks()) - found.counts['accepted'] > 0


def test_tasks_of_evaluation_are_refused_before_anything_is_played():
    with pytest.raises(ValueError, match=r"only training tasks may be learned, got \['trip/test"):
        reject(player(), [SUITES[1].task('test', 1, 0)], LARGE)


@pytest.mark.parametrize(
    ('settings', 'why'),
    [
        ({'samples': -1}, r'samples must be 0 \(none\) or more, got -1'),
        ({'iterations': 0}, 'iterations must be at least 1, got 0'),
        ({'per_task': 0}, 'per_task must be at least 1, got 0'),
        ({'rounds': 0}, 'rounds must be at least 1, got 0'),
        ({'tasks_at_once': -1}, 'tasks_at_once must be at least 1, got -1'),
        ({'minimum_score': 0}, r'minimum_score must be in \(0, 1\], got 0'),
        ({'worst_tier': 9}, 'worst_tier must be one of'),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        RejectionSettings(**settings)
