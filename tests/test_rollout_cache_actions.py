"""How alike two episodes are: by what they did, in which order, whatever they wrote."""

import jax.numpy as jnp
import numpy as np
from rollout_cache_rows import episode

from cacherl_jax.rollout_cache.actions import ACTIONS, actions_of, likeness
from cacherl_jax.tasks.task import Turn
from cacherl_jax.tools.tool import Call, ParseError


def played(*names, **arguments):
    return [Turn(text='?', calls=(Call(name, arguments),)) for name in names]


def alike(one, other):
    return float(likeness(*(jnp.asarray(actions_of(turns))[None] for turns in (one, other)))[0, 0])


def test_equal_calls_are_equal_actions_however_they_are_written():
    one = [Turn(text='a', calls=(Call('f', {'x': 1, 'y': [2]}), Call('g', {})))]
    other = [
        Turn(text='b', calls=(call,)) for call in (Call('f', {'y': [2], 'x': 1}), Call('g', {}))
    ]
    assert (actions_of(one) == actions_of(other)).all() and alike(one, other) == 1


def test_another_order_tool_or_argument_is_another_way():
    way = played('f', 'g', 'h')
    assert alike(way, played('h', 'g', 'f')) == 0
    assert alike(way, played('f', 'g', 'k')) == 2 / 4  # both begin with two of three
    assert alike(way, played('f', 'g', 'h', x=1)) == 0


def test_nothing_is_like_nothing_alone():
    assert alike([], []) == 1 and alike([], played('f')) == 0
    assert (actions_of([]) == -1).all() and actions_of(played('f')).min() == -1


def test_what_could_not_be_read_is_part_of_the_way():
    broken = [Turn(text='?', calls=(ParseError('no JSON', '{'),))]
    assert alike(broken, []) == 0 and alike(broken, [*broken, *played('f')]) == 1 / 2
    assert (actions_of(episode().turns) >= -1).all()


def test_a_long_episode_is_told_by_its_first_actions():
    names = [f'f{number}' for number in range(3 * ACTIONS)]
    whole, cut = actions_of(played(*names)), actions_of(played(*names[:ACTIONS]))
    assert (whole == cut).all() and whole.min() >= 0
    again = actions_of(played(*['f'] * 40))
    assert (again >= 0).sum() == 2  # the first time, and after itself


def test_likeness_is_that_of_sets():
    random = np.random.default_rng(0)
    rows = np.full((7, ACTIONS), -1)
    for row in rows:
        some = random.choice(9, random.integers(0, 9), replace=False)
        row[: len(some)] = some
    sets = [set(row[row >= 0].tolist()) for row in rows]
    expected = [[len(a & b) / len(a | b) if a | b else 1.0 for b in sets] for a in sets]
    np.testing.assert_allclose(likeness(*[jnp.asarray(rows)] * 2), expected, rtol=1e-6)
    np.testing.assert_allclose(
        likeness(jnp.asarray(rows[:2]), jnp.asarray(rows)), expected[:2], rtol=1e-6
    )
