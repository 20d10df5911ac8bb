"""Tools that take their time: what is written does not depend on when they answer."""

import time

import jax
import numpy as np
import pytest
from test_rollout import SHAPE, SIZES, chat, params, same_rows, tasks

from cacherl_jax import keys
from cacherl_jax.bench.devices import Asking
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.rollout import make_rollout
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tools.tool import Result, Status

PATIENCE_SECONDS = 0.3


class Adder:
    """Answers with what was asked; `wait` is done first, and says whether the tool was in time."""

    def __init__(self, wait=lambda calls: True):
        self.wait = wait

    def answer(self, calls):
        in_time = self.wait(calls)
        status = Status.OK if in_time else Status.TIMEOUT
        return tuple(Result(status=status, text=str(call.arguments['left'])) for call in calls)

    def close(self):
        pass


def play(overlap, session=lambda decoder: Adder(), samples=3):
    """Two groups, each turn a call; `session(decoder)` opens what answers them."""
    decoder = make_decoder(SHAPE, SIZES, SamplingSettings(), chat().end_ids)
    decoder, written = counted(decoder)
    asking = Asking(tokenizer=chat().tokenizer, end_ids=chat().end_ids)
    settings = RolloutSettings(samples=samples, max_turns=4, overlap=overlap, max_timeouts=9)
    rollout = make_rollout(asking, decoder, lambda *_: session(written), settings, keys.root(5))
    return rollout(params(), tasks(), 11)


def counted(decoder):
    """The decoder, and a list that grows with each of its segments."""
    written = []

    def segment(*arguments):
        made = decoder.segment(*arguments)
        written.append(jax.block_until_ready(made[1]).status)
        return made

    return decoder._replace(segment=segment), written


def late(seconds):
    """Tools that take up to so long, each call another time."""
    return lambda _: Adder(lambda calls: time.sleep(seconds * (len(str(calls)) % 3)) or True)


@pytest.fixture(scope='module')
def prompt_answers():
    return play(overlap=False)


@pytest.mark.parametrize('overlap', [False, True])
def test_slow_tools_change_no_token(prompt_answers, overlap):
    rows, episodes = play(overlap, late(0.03))
    same_rows(rows, prompt_answers[0])
    assert sum(bool(turn.results) for one in episodes for turn in one.turns) > 8
    assert [one.turns for one in episodes] == [one.turns for one in prompt_answers[1]]


def test_overlapping_changes_no_token(prompt_answers):
    rows, episodes = play(overlap=True)
    same_rows(rows, prompt_answers[0])
    assert [one.termination for one in episodes] == [one.termination for one in prompt_answers[1]]


def in_time(overlap):
    """How many turns were answered by a tool that waits until the device has written on."""

    def waiting(written):
        def wait(calls):
            before, until = len(written), time.monotonic() + PATIENCE_SECONDS
            while len(written) == before and time.monotonic() < until:
                time.sleep(0.001)
            return len(written) > before

        return Adder(wait)

    _, episodes = play(overlap, waiting)
    results = [result for one in episodes for turn in one.turns for result in turn.results]
    return np.sum([result.status is Status.OK for result in results])


def test_one_half_writes_while_the_tools_of_the_other_run():
    assert in_time(overlap=False) == 0 < in_time(overlap=True)
