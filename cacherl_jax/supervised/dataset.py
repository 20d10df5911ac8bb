"""Demonstrations as rows to learn from: episodes in, trajectories with exact masks out.

Supervised means written by the assistant: the content of its messages and the end id behind each,
nothing of the prompt, of tool results or of the template.
"""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from cacherl_jax.chat.template import Chat, call_message, conversation_ids, tool_message
from cacherl_jax.tasks.task import Episode, Turn
from cacherl_jax.tools.tool import Call, specification
from cacherl_jax.trajectory import Trajectory


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


def episode_arrays(chat: Chat, episode: Episode) -> dict[str, np.ndarray]:
    """tokens i32, sampled bool, turn i32: [token], without padding; `sampled` is what to learn."""
    tools = [specification(tool) for tool in episode.task.tools]
    ids, written, turn = conversation_ids(chat, episode_messages(episode), tools)
    return {
        'tokens': np.array(ids, np.int32),
        'sampled': np.array(written, bool),
        'turn': np.array(turn, np.int32),
    }


def demonstration_rows(
    chat: Chat, episodes: Sequence[Episode], context_tokens: int
) -> tuple[Trajectory, np.ndarray, list[int]]:
    """Rows [row, token], their lengths on the host, and which episodes they are.

    An episode that is longer than the context is left out, never cut: half a conversation teaches
    to stop in the middle.  log-probabilities are 0: nobody sampled these tokens.
    """
    arrays = [episode_arrays(chat, episode) for episode in episodes]
    fitting = [i for i, row in enumerate(arrays) if len(row['tokens']) <= context_tokens]
    if not fitting:
        shortest = min((len(row['tokens']) for row in arrays), default=0)
        raise ValueError(
            f'none of {len(episodes)} demonstrations fits: context_tokens is {context_tokens}, the '
            f'shortest has {shortest} tokens; raise context_tokens'
        )
    size = (len(fitting), context_tokens)
    tokens, sampled = np.zeros(size, np.int32), np.zeros(size, bool)
    turn, lengths = np.full(size, -1, np.int32), np.zeros(len(fitting), np.int32)
    for place, i in enumerate(fitting):
        length = lengths[place] = len(arrays[i]['tokens'])
        tokens[place, :length] = arrays[i]['tokens']
        sampled[place, :length] = arrays[i]['sampled']
        turn[place, :length] = arrays[i]['turn']
    rows = Trajectory(
        tokens=jnp.asarray(tokens),
        length=jnp.asarray(lengths),
        sampled=jnp.asarray(sampled),
        logprob=jnp.zeros(size, jnp.float32),
        turn=jnp.asarray(turn),
    )
    return rows, lengths, fitting
