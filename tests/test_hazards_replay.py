"""Faults that replay buffers really had, looked for where a run would meet them.

Text kept in place of ids and stripped, masks lost on the way, a minimum that is never reached,
rewards of two schedules compared.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from rollout_cache_rows import episode, task

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.compose.command import read_config
from cacherl_jax.compose.keeping import RolloutCache
from cacherl_jax.compose.step import TERMS, term_weights
from cacherl_jax.config import PRESETS
from cacherl_jax.rewards.hybrid import weights_at
from cacherl_jax.rollout_cache.buffer import BufferSettings
from cacherl_jax.rollout_cache.record import Source, append, as_entries, read, record_episode
from cacherl_jax.schedule import Schedule

PADDING, END = 0, 2  # ids of the shipped tokenizer
NASTY = ['tail \n\n', '\u2028', ' \t', 'a\x85b\r\n', '<|im_end|>', '\\n"', '']
KNOWN = {'template_hash': '', 'tools_hash': '', 'tool_cache_hash': '', 'version': 0}


def played(tokens, text='', raw=(0.0, 0.0, 0.0, 0.0), number=0):
    """A record of an episode that said `text` in these ids; every second id was sampled."""
    count = len(tokens)
    arrays = {
        'tokens': np.asarray(tokens),
        'sampled': np.arange(count) % 2 == 1,
        'logprob': -np.arange(1.0, count + 1),
        'turn': np.arange(count) // 2 - 1,
    }
    turns = (dataclasses.replace(episode().turns[0], text=text, content=text),)
    made = dataclasses.replace(episode(), task=task(number), turns=turns)
    paid = dict(zip(TERMS, raw, strict=True))
    return record_episode(
        made, arrays, rewards=paid, episode_return=9.0, source=Source.SUCCESS, **KNOWN
    )


@pytest.mark.parametrize(
    'tokens',
    [[PADDING] * 5, [7, END, END, PADDING, PADDING], [END], [7, 8, 9, 10, 11, 12, PADDING]],
)
def test_what_is_replayed_is_what_was_played_id_for_id(tokens, tmp_path):
    records = [played(tokens, text) for text in NASTY]
    append(tmp_path, records)
    for made, found, text in zip(records, read(tmp_path), NASTY, strict=True):
        row = as_entries([found], 9, TERMS).trajectory
        length = int(row.length[0])
        assert length == len(tokens) and found.turns == made.turns
        assert found.turns[0].text == text
        for name in ('tokens', 'sampled', 'logprob', 'turn'):
            kept = np.asarray(getattr(row, name)[0, :length])
            np.testing.assert_array_equal(kept, getattr(made, name), err_msg=name)
        assert not row.sampled[0, length:].any()


def small():
    """A configuration whose rollout cache may hand out half of each step's rows."""
    preset = PRESETS['small']
    share = dataclasses.replace(preset.mix, share=Schedule(start=0.5))
    buffer = BufferSettings(capacity=16, minimum=1)
    return dataclasses.replace(preset, groups=1, mix=share, buffer=buffer)


def test_a_step_draws_by_the_rewards_of_today_and_not_by_those_of_the_making(tmp_path):
    config = small()
    chat = Chat(tokenizer=load_tokenizer(BASE), end_ids=(END,))
    cache = RolloutCache(config, chat, tmp_path / 'rollout_cache', '')
    raw = [(1.0, 0.0, -0.5, 0.0), (0.0, 1.0, 0.0, 1.0), (0.5, 0.5, 0.0, 0.5)]
    records = [played([number] * 4, raw=each, number=number) for number, each in enumerate(raw)]
    rows = as_entries(records, config.decode.context_tokens, TERMS)
    store = cache.buffer.add(cache.empty_store(), rows, jnp.ones(3, bool), 0)
    found = []
    for step in (0, 30):
        weights = weights_at(step, config.weights)
        store, draw = cache.draw(store, [task(n) for n in range(3)], weights, keys.root(0), step)
        expected = np.asarray(raw) @ np.asarray(term_weights(weights))
        drawn = draw.entries.trajectory.tokens[draw.drawn, 0]
        np.testing.assert_allclose(store.entries.episode_return[:3], expected, rtol=1e-6)
        np.testing.assert_allclose(
            draw.entries.episode_return[draw.drawn], expected[np.asarray(drawn)], rtol=1e-6
        )
        found.append(expected)
    assert np.abs(found[0] - found[1]).max() > 0.1 and draw.drawn.any()


def test_a_cache_that_could_never_be_drawn_from_is_refused_at_the_start(capsys):
    with pytest.raises(SystemExit):
        read_config('', ['--buffer.capacity', '64', '--buffer.minimum', '65'])
    assert 'minimum must be in 1..capacity (64), got 65' in ' '.join(
        capsys.readouterr().err.split()
    )
    read_config('', ['--buffer.capacity', '64', '--buffer.minimum', '64'])
