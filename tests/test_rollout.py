"""Laws of the rollout: what is written does not depend on how it was written."""

import dataclasses
import functools
import itertools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_policy import VOCAB

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.policy import decode, transformer
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rollout import make_rollout
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tasks.task import Termination
from cacherl_jax.tools.tool import Result, Status

BASE = pathlib.Path(__file__).parent.parent / 'cacherl_jax' / 'base'
SHAPE = Shape(
    layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, hidden=48, vocab=VOCAB, tied=False
)
SIZES = DecodeSettings(
    slots=6,
    context_tokens=420,
    turn_tokens=24,
    episode_tokens=60,
    segment_tokens=7,
    widths=(64, 256, 420),
)


@functools.cache
def chat() -> Chat:
    """The shipped tokenizer; 200 more ids end a turn, so that a random policy gets somewhere."""
    tokenizer = load_tokenizer(BASE)
    end = tokenizer.convert_tokens_to_ids('<|im_end|>')
    return Chat(tokenizer=tokenizer, end_ids=(end, *range(500, 700)))


@functools.cache
def params():
    """Random, and large enough that what was read changes what is likely."""
    made = transformer.init_params(SHAPE, jax.random.key(3))
    return jax.tree.map(lambda leaf: leaf * 15 if leaf.ndim > 1 else leaf, made)


@dataclasses.dataclass
class Clock:
    """Answers whatever is asked with a text that depends on the turn only, as late as told."""

    delay_seconds: float = 0.0

    def answer(self, calls):
        time.sleep(self.delay_seconds)
        return tuple(Result(status=Status.OK, text='{"hour": 7}') for _ in calls)

    def close(self):
        pass


def tasks(count=2):
    """Tasks whose user goes on asking, so that every episode has several turns."""
    again = ('And then?', 'What <|im_start|> else?', 'Go on.')
    return [
        dataclasses.replace(task, follow_ups=again) for task in draw(SUITES[1], 'train', 1, count)
    ]


def play(sizes=SIZES, samples=3, delay_seconds=0.0, groups=None, sampling=SamplingSettings()):
    decoder = make_decoder(SHAPE, sizes, sampling, chat().end_ids)
    settings = RolloutSettings(samples=samples, max_turns=4)
    rollout = make_rollout(chat(), decoder, lambda *_: Clock(delay_seconds), settings, keys.root(5))
    return rollout(params(), tasks() if groups is None else groups, 11)


@functools.cache
def whole():
    return play()


def same_rows(one, other):
    for name in ('tokens', 'length', 'sampled', 'turn'):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_allclose(one.logprob, other.logprob, atol=2e-5)


def test_episodes_have_turns_to_speak_of():
    rows, episodes = whole()
    assert max(len(episode.turns) for episode in episodes) >= 3
    assert int(rows.sampled.sum()) > 50
    assert len({tuple(row.tolist()) for row in np.asarray(rows.tokens)}) == len(episodes)


@pytest.mark.parametrize('segment_tokens', [1, 32, 256])
def test_the_segment_length_changes_no_token(segment_tokens):
    same_rows(play(dataclasses.replace(SIZES, segment_tokens=segment_tokens))[0], whole()[0])


@pytest.mark.parametrize('slots', [1, 4, 16])
def test_the_number_of_slots_changes_no_token(slots):
    same_rows(play(dataclasses.replace(SIZES, slots=slots))[0], whole()[0])


@pytest.mark.parametrize(('slots', 'share'), [(6, 3), (6, 2), (4, 4), (3, 3)])
def test_sharing_prompts_changes_no_token(slots, share):
    """Also where a group is no multiple of a share, or the next group waits for its place."""
    same_rows(play(dataclasses.replace(SIZES, slots=slots, share=share))[0], whole()[0])


def test_a_group_shares_as_far_as_slots_and_devices_divide():
    sizes = DecodeSettings(slots=24)
    assert [sizes.shared_by(samples).share for samples in (1, 8, 6, 5)] == [1, 8, 6, 1]
    assert sizes.shared_by(8, devices=2).share == 4
    assert DecodeSettings(slots=24, share=2).shared_by(8).share == 2
    with pytest.raises(ValueError, match='share must divide slots'):
        DecodeSettings(slots=6, share=4)
    with pytest.raises(ValueError, match='share must divide the 3 slots of a device'):
        DecodeSettings(slots=6, share=2).shared_by(8, devices=2)


def test_samples_with_distributions_of_their_own_draw_as_they_would_among_their_like():
    several = (
        SamplingSettings(temperature=0.0),
        SamplingSettings(temperature=1.5, min_tokens=3),
        SamplingSettings(temperature=0.7, top_p=0.9),
    )
    rows = play(sampling=several)[0]
    for sample, sampling in enumerate(several):
        alone = play(sampling=sampling)[0]
        pick = functools.partial(jax.tree.map, lambda leaf, at=sample: leaf[at::3])
        same_rows(pick(rows), pick(alone))


def test_tool_latency_changes_no_token():
    same_rows(play(delay_seconds=0.02)[0], whole()[0])


def test_an_episode_alone_is_the_episode_in_company():
    alone, _ = play(groups=tasks()[1:])
    same_rows(alone, jax.tree.map(lambda x: x[3:], whole()[0]))


def test_a_tool_told_of_later_is_not_in_the_prompt():
    (task,) = tasks(1)
    name = task.tools[0].name
    rows, _ = play(samples=1, groups=[dataclasses.replace(task, later={name: 1})])
    first = int(np.argmax(np.asarray(rows.sampled[0])))
    prompt = chat().tokenizer.decode(np.asarray(rows.tokens[0][:first]))
    declared = [tool.name for tool in task.tools if f'"name": "{tool.name}"' in prompt]
    assert declared == [tool.name for tool in task.tools[1:]]


def test_sampler_and_trainer_agree_on_every_log_probability():
    rows, _ = whole()
    logprob, _ = score(params(), SHAPE, rows.tokens, rows.sampled)
    np.testing.assert_allclose(logprob, rows.logprob, atol=1e-4)


@pytest.mark.parametrize(
    'sampling',
    [SamplingSettings(temperature=0.7, top_k=40), SamplingSettings(top_p=0.8, min_p=0.01)],
)
def test_the_trainer_scores_the_distribution_sampled_from(sampling):
    rows, _ = play(sampling=sampling)
    logprob, _ = score(params(), SHAPE, rows.tokens, rows.sampled, sampling=sampling)
    np.testing.assert_allclose(logprob, rows.logprob, atol=2e-4)


def test_sampled_means_chosen_by_the_policy():
    """Content and end ids of its turns, nothing else: as the turns' own bounds say."""
    rows, episodes = whole()
    for row, episode in enumerate(episodes):
        expected = np.zeros(SIZES.context_tokens, bool)
        for turn in episode.turns:
            expected[turn.start : turn.stop] = True
            ids = rows.tokens[row, turn.start : turn.stop].tolist()
            assert chat().message_text(ids) == turn.text
        np.testing.assert_array_equal(rows.sampled[row], expected)


def test_what_follows_a_turn_is_what_the_template_says():
    rows, episodes = whole()
    row, episode = max(enumerate(episodes), key=lambda pair: len(pair[1].turns))
    for turn, after in itertools.pairwise(episode.turns):
        messages = [{'role': 'user', 'content': turn.user}] if turn.user else None
        if messages:
            between = rows.tokens[row, turn.stop : after.start].tolist()
            assert between == chat().suffix_ids(messages)


def test_limits_are_kept_and_told():
    sizes = dataclasses.replace(SIZES, turn_tokens=5)
    _, episodes = play(sizes)
    assert all(turn.stop - turn.start <= 5 for e in episodes for turn in e.turns)
    assert Termination.MAX_TOKENS in {episode.termination for episode in episodes}
    _, episodes = play(dataclasses.replace(SIZES, context_tokens=160))
    assert Termination.CONTEXT_FULL in {episode.termination for episode in episodes}


def test_the_first_turn_is_not_ended_before_min_tokens():
    assert any(e.turns[0].stop - e.turns[0].start < 9 for e in whole()[1])
    _, episodes = play(sampling=SamplingSettings(min_tokens=9))
    assert all(e.turns[0].stop - e.turns[0].start >= 9 for e in episodes)
    assert any(turn.stop - turn.start < 9 for e in episodes for turn in e.turns[1:])


def test_greedy_is_the_same_for_every_sample():
    rows, _ = play(sampling=SamplingSettings(temperature=0))
    for group in np.asarray(rows.tokens).reshape(2, 3, -1):
        assert (group == group[0]).all()


def test_programs_do_not_multiply_with_turns(monkeypatch):
    """Programs are counted by traces: one more task, more turns and other results add none."""
    counts = {}

    def counting(name, function):
        def traced(*arguments, **named):
            counts[name] = counts.get(name, 0) + 1
            return function(*arguments, **named)

        return traced

    for name in ('_append', '_segment', '_prefill', 'admit'):
        monkeypatch.setattr(decode, name, counting(name, getattr(decode, name)))
    decoder = make_decoder.__wrapped__(SHAPE, SIZES, SamplingSettings(), chat().end_ids)
    rollout = make_rollout(
        chat(), decoder, lambda *_: Clock(), RolloutSettings(samples=3, max_turns=4), keys.root(5)
    )
    for step in range(3):
        rollout(params(), tasks(3), step)
    before = dict(counts)
    for step in range(3, 6):
        rollout(params(), tasks(3), step)
    assert counts == before
    assert counts['admit'] <= len(SIZES.widths) ** 2
    assert counts['_segment'] <= len(SIZES.widths) and counts['_append'] <= len(SIZES.widths) ** 2


def test_a_forced_position_has_no_score_and_no_gradient():
    rows, _ = whole()
    tokens, sampled = rows.tokens[:2], rows.sampled[:2]
    logprob, entropy = score(params(), SHAPE, tokens, sampled)
    assert not np.any(np.where(sampled, 0.0, logprob)) and not np.any(
        np.where(sampled, 0.0, entropy)
    )

    def total(head, scored):
        return score(params() | {'head': head}, SHAPE, tokens, scored)[0].sum()

    gradient = jax.grad(total)
    assert np.abs(gradient(params()['head'], sampled)).max() > 0
    assert np.abs(gradient(params()['head'], jnp.zeros_like(sampled))).max() == 0
