"""How well a policy reads text it was not trained on.  Text and parameters in, a number out."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from cacherl_jax.chat.template import Chat
from cacherl_jax.grpo.reference import make_scoring
from cacherl_jax.grpo.update import UpdateSettings
from cacherl_jax.run.fetch import fetch
from cacherl_jax.supervised.dataset import Arrays, general_rows, padded
from cacherl_jax.trajectory import Trajectory


def held_out_conversations(chat: Chat, count: int, context_tokens: int) -> list[Arrays]:
    """Invented conversations that no run learns from, the same ones for every run."""
    return general_rows(chat, count, context_tokens, 'held out')


def pieces_of_text(chat: Chat, text: str, context_tokens: int) -> list[Arrays]:
    """A text cut into rows of the context's length; a last piece of one token is left out."""
    ids = chat.encode(text)
    cut = [ids[start : start + context_tokens] for start in range(0, len(ids), context_tokens)]
    return [
        {
            'tokens': np.array(piece, np.int32),
            'sampled': np.ones(len(piece), bool),
            'turn': np.full(len(piece), -1, np.int32),
        }
        for piece in cut
        if len(piece) > 1
    ]


def perplexity(
    score: Partial, params: Any, arrays: Sequence[Arrays], settings: UpdateSettings
) -> float:
    """exp of the mean of -log p over all tokens but the first of each row."""
    rows, lengths = padded(arrays, max(len(one['tokens']) for one in arrays))
    place = jnp.arange(rows.tokens.shape[1])
    read = (place > 0) & (place < rows.length[:, None])
    asked = Trajectory(rows.tokens, rows.length, read, rows.logprob, rows.turn)
    (logprob,) = make_scoring(score, settings)(params, asked, lengths)
    logprob, read = fetch((logprob, read))
    return float(np.exp(-logprob[read].astype(np.float64).mean()))
