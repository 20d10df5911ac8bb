"""Small rows, tasks and episodes that the tests of the rollout cache share."""

import jax.numpy as jnp
import numpy as np

from cacherl_jax.rollout_cache.actions import ACTIONS
from cacherl_jax.rollout_cache.buffer import Entries
from cacherl_jax.rollout_cache.record import Source, record_episode
from cacherl_jax.tasks.task import Episode, Task, Termination, Turn
from cacherl_jax.tools.tool import Call, ParseError, Result, Status, Tier
from cacherl_jax.trajectory import Trajectory

TOKENS = 6


def entries(returns, **fields):
    """Rows that are told apart by their first token, which is their place."""
    rows = len(returns)
    place = jnp.arange(rows, dtype=jnp.int32)
    whole = jnp.zeros((rows, TOKENS), jnp.int32)
    trajectory = Trajectory(
        whole.at[:, 0].set(place), place + 1, whole > 0, whole.astype(jnp.float32), whole
    )
    known = {
        'task': place,
        'level': place % 3 + 1,
        'episode_return': jnp.asarray(returns, jnp.float32),
        'reward': jnp.stack([jnp.asarray(returns, jnp.float32), jnp.ones(rows)], axis=1),
        'version': place * 0,
        'source': place * 0,
        'has_behaviour': jnp.ones(rows, bool),
        'actions': jnp.full((rows, ACTIONS), -1, jnp.int32),
        'familiar': jnp.zeros(rows),
        'reuse': place * 0,
        'added': place * 0,
    }
    known |= {name: jnp.asarray(value, known[name].dtype) for name, value in fields.items()}
    return Entries(trajectory=trajectory, **known)


def task(number=0, suite='sums', split='train', level=1):
    return Task(
        id=f'{suite}/{split}/{level}/{number:05d}',
        suite=suite,
        split=split,
        level=level,
        entity='e',
        messages=({'role': 'user', 'content': 'add'},),
        tools=(),
        expert=lambda: iter(()),
        score=lambda episode: 1.0,
        solved=lambda episode: episode.answer == '3',
    )


def episode(tier=Tier.LIVE, termination=Termination.ANSWERED, answer='3', **place):
    called = Turn(
        text='<call>',
        calls=(Call('add', {'x': [1, 2.5, None], 'é': '√'}), ParseError('no JSON', '{"x"')),
        results=(
            Result(status=Status.OK, text='3', tier=tier, similarity=0.5, source='k'),
            Result(status=Status.PARSE_ERROR, text='no JSON'),
        ),
        stop=2,
    )
    last = Turn(text=answer, content=answer, start=3, stop=4)
    return Episode(
        task=task(**place), sample=1, step=7, turns=(called, last), termination=termination
    )


def record(played=None, seed=0, logprob=True, **known):
    """A record of an episode with random ids."""
    random = np.random.default_rng(seed)
    count = 4
    arrays = {
        'tokens': random.integers(0, 99, count),
        'sampled': np.array([False, True, False, True]),
        'logprob': random.normal(size=count) if logprob else None,
        'turn': np.array([-1, 0, 0, 1]),
    }
    known = {
        'rewards': {'micro': 0.1, 'final': 1.0},
        'episode_return': 1.0,
        'version': 7,
        'source': Source.SUCCESS,
        'template_hash': 'a',
        'tools_hash': 'b',
        'tool_cache_hash': 'c',
    } | known
    return record_episode(played or episode(), arrays, **known)
