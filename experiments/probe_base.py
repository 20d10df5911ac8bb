"""What a base model knows of each kind of invented conversation: where its next mistake comes from.

    python -m experiments.probe_base                       # the model that ships
    python -m experiments.probe_base --folder path/to/model

Of every kind some conversations are read, each token after the true ones before it.  `tool` is the
first token of a tool's name: a model that chooses tools by chance has ln(tools) nats there.
"""

import dataclasses
import json
import pathlib
import random

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from cacherl_jax.chat.template import Chat, conversation_ids
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.invented.conversation import KINDS, declared
from cacherl_jax.policy import logprob, transformer
from cacherl_jax.policy.weights import load_policy
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.terminal import print_table

CALL = '{"name": "'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Which model, and how many conversations."""

    folder: pathlib.Path = BASE  # a Hugging Face folder
    conversations: int = 32  # of each kind
    context_tokens: int = 640  # longer conversations are drawn anew
    json: pathlib.Path | None = None  # also write the table here


def rows_of(kind, chat: Chat, settings: Settings):
    """tokens i32, written bool: [row, token] of conversations of one kind."""
    size = (settings.conversations, settings.context_tokens)
    tokens, written = np.zeros(size, np.int32), np.zeros(size, bool)
    draws, row = random.Random(f'probe {kind.__name__}'), 0
    while row < settings.conversations:
        tools, messages = declared(draws, *kind(draws))
        ids, sampled, _ = conversation_ids(chat, messages, tools)
        if len(ids) <= settings.context_tokens:
            tokens[row, : len(ids)], written[row, : len(ids)] = ids, sampled
            row += 1
    return tokens, written


def main(settings: Settings) -> None:
    """Print one line for each kind."""
    shape, params, generation = load_policy(settings.folder)
    chat = Chat(tokenizer=load_tokenizer(settings.folder), end_ids=tuple(generation.stop_ids))
    opening = chat.encode(CALL)[-1]

    @jax.jit
    def read(tokens):
        """Log-probability of each next token, and whether it is the likeliest, [row, token - 1]."""
        hidden = logprob.hidden_states(params, shape, tokens)[:, :-1]
        told = jax.nn.log_softmax(transformer.logits_of(params, shape, hidden))
        chosen = jnp.take_along_axis(told, tokens[:, 1:, None], -1)[..., 0]
        return chosen, jnp.argmax(told, -1) == tokens[:, 1:]

    table = []
    for kind, _ in KINDS:
        tokens, written = rows_of(kind, chat, settings)
        chosen, right = map(np.asarray, read(jnp.asarray(tokens)))
        own = written[:, 1:]
        tool = own & (tokens[:, :-1] == opening)
        table.append(
            {
                'kind': kind.__name__,
                'nats': float(-(chosen * own).sum(1).mean()),
                'whole': float(np.mean((right | ~own).all(1))),
                'tool nats': float(-chosen[tool].mean()) if tool.any() else None,
                'tool right': float(right[tool].mean()) if tool.any() else None,
            }
        )
    print_table(str(settings.folder), list(table[0]), [list(line.values()) for line in table])
    if settings.json:
        write_atomically(settings.json, json.dumps(table, indent=2) + '\n')


if __name__ == '__main__':
    main(tyro.cli(Settings, description=__doc__))
