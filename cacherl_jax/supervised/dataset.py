"""Demonstrations as rows to learn from: episodes in, trajectories with exact masks out.

Supervised means written by the assistant: the content of its messages and the end id behind each,
nothing of the prompt, of tool results or of the template.
"""

import random
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from cacherl_jax.chat.template import Chat, call_message, conversation_ids, tool_message
from cacherl_jax.invented.conversation import conversation
from cacherl_jax.tasks.task import Episode, Turn
from cacherl_jax.tools.tool import Call, specification
from cacherl_jax.trajectory import Trajectory

Arrays = dict[str, np.ndarray]


def turn_messages(turn: Turn) -> list[Mapping]:
    """An assistant message, the results of its calls, and what the user said next."""
    calls = [(call.name, call.arguments) for call in turn.calls if isinstance(call, Call)]
    if len(calls) < len(turn.calls):
        raise ValueError(f'a turn with a call that could not be read is no example: {turn.text!r}')
    results = [
        tool_message(call.name, result.text)
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    said = [{'role': 'user', 'content': turn.user}] if turn.user else []
    return [call_message(turn.content, calls, turn.thinking), *results, *said]


def episode_messages(episode: Episode) -> list[Mapping]:
    """The whole conversation of an episode, as chat templates read it."""
    spoken = [message for turn in episode.turns for message in turn_messages(turn)]
    return [*episode.task.messages, *spoken]


def conversation_arrays(chat: Chat, messages: Sequence[Mapping], tools=()) -> Arrays:
    """tokens i32, sampled bool, turn i32: [token], without padding; `sampled` is what to learn."""
    ids, written, turn = conversation_ids(chat, messages, tools)
    return {
        'tokens': np.array(ids, np.int32),
        'sampled': np.array(written, bool),
        'turn': np.array(turn, np.int32),
    }


def episode_arrays(chat: Chat, episode: Episode) -> Arrays:
    """The arrays of an episode's conversation."""
    tools = [specification(tool) for tool in episode.task.told()]
    return conversation_arrays(chat, episode_messages(episode), tools)


def demonstration_arrays(
    chat: Chat, episodes: Sequence[Episode], context_tokens: int
) -> tuple[list[Arrays], list[int]]:
    """Arrays of the episodes that fit the context, and which these are.

    One that is longer is left out, never cut: half a conversation teaches to stop in the middle.
    """
    arrays = [episode_arrays(chat, episode) for episode in episodes]
    fitting = [i for i, row in enumerate(arrays) if len(row['tokens']) <= context_tokens]
    if not fitting:
        shortest = min((len(row['tokens']) for row in arrays), default=0)
        raise ValueError(
            f'none of {len(episodes)} demonstrations fits: context_tokens is {context_tokens}, the '
            f'shortest has {shortest} tokens; raise context_tokens'
        )
    return [arrays[i] for i in fitting], fitting


def general_rows(chat: Chat, count: int, context_tokens: int, seed: int | str) -> list[Arrays]:
    """Invented conversations, which are about no task, to learn beside the demonstrations.

    Runs have numbers for seeds; what is to be held out from all of them has a word for one.
    """
    draws, found = random.Random(f'general {seed}'), []
    while len(found) < count:
        tools, messages = conversation(draws, dense=0.5)
        row = conversation_arrays(chat, messages, tools)
        found += [row] if len(row['tokens']) <= context_tokens else []
    return found


def padded(arrays: Sequence[Arrays], context_tokens: int) -> tuple[Trajectory, np.ndarray]:
    """Rows [row, token] and their lengths on the host.

    Log-probabilities are 0: nobody sampled these tokens.
    """
    size = (len(arrays), context_tokens)
    tokens, sampled = np.zeros(size, np.int32), np.zeros(size, bool)
    turn, lengths = np.full(size, -1, np.int32), np.zeros(len(arrays), np.int32)
    for place, row in enumerate(arrays):
        length = lengths[place] = len(row['tokens'])
        tokens[place, :length] = row['tokens']
        sampled[place, :length] = row['sampled']
        turn[place, :length] = row['turn']
    rows = Trajectory(
        tokens=jnp.asarray(tokens),
        length=jnp.asarray(lengths),
        sampled=jnp.asarray(sampled),
        logprob=jnp.zeros(size, jnp.float32),
        turn=jnp.asarray(turn),
    )
    return rows, lengths


def demonstration_rows(
    chat: Chat, episodes: Sequence[Episode], context_tokens: int
) -> tuple[Trajectory, np.ndarray, list[int]]:
    """Rows of the episodes that fit, their lengths, and which episodes they are."""
    arrays, fitting = demonstration_arrays(chat, episodes, context_tokens)
    return *padded(arrays, context_tokens), fitting
