"""One training step as a program: rollout, reference, two updates.  test_distributed.py starts it.

several_processes_step.py OUT PORT COUNT INDEX DATA FSDP: the process of that index, of so many, on
a mesh of so many devices; what it saw goes to OUT.npz.
"""

import dataclasses
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tiny_policy import BASE, VOCAB

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.grpo.loss import FRESH, Batch
from cacherl_jax.grpo.reference import make_reference
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.mesh import MeshSettings, make_mesh, row_placement, shard_params, shard_rows
from cacherl_jax.policy import transformer
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.processes import from_first
from cacherl_jax.rollout import RolloutSettings, make_rollout
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.metrics import make_metrics
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import ExecuteSettings, live_sessions
from cacherl_jax.tools.tool import tool

SHAPE = Shape(layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, hidden=48, vocab=VOCAB)
SIZES = DecodeSettings(
    slots=4, context_tokens=320, turn_tokens=8, episode_tokens=40, segment_tokens=7,
    widths=(64, 320),
)  # fmt: skip
SETTINGS = UpdateSettings(micro_rows=4, widths=(320,))
asked = []  # the arguments of every execution in this process


class Asking(Chat):
    """Reads a call into whatever the policy wrote: a number that its tokens say."""

    def message_text(self, ids):
        arguments = f'{{"left": {sum(ids)}, "right": {len(ids)}}}'
        return f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'


def add(left: int, right: int) -> dict:
    """Add two numbers."""
    asked.append((left, right))
    return {'sum': left + right}


def play(params, mesh):
    """Two groups of three, each turn a call; and how often a tool ran here."""
    tokenizer = load_tokenizer(BASE)
    chat = Asking(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))
    chat = dataclasses.replace(chat, end_ids=(*chat.end_ids, *range(500, 1500)))
    decoder = make_decoder(SHAPE, SIZES, SamplingSettings(), chat.end_ids)
    spread = decoder._replace(init=lambda: shard_rows(decoder.init(), mesh))
    groups = [
        dataclasses.replace(task, tools=(tool(add),)) for task in draw(SUITES[1], 'train', 1, 2)
    ]
    live = live_sessions(ExecuteSettings())
    settings = RolloutSettings(samples=3, max_turns=3)
    return make_rollout(chat, spread, live.open_session, settings, keys.root(5))(params, groups, 11)


def scored(params, tokens, length, sampled):
    return score(params, SHAPE, tokens, sampled)


def learn(params, mesh, rows, lengths):
    """Two updates by made-up advantages; the learner's parameters, numbers, and the reference."""
    place = row_placement(mesh)
    update = make_update(scored, optax.sgd(0.1, momentum=0.9), SETTINGS, place)
    reference = make_reference(scored, SETTINGS, place)(params, rows, lengths)
    draws = np.random.default_rng(0).normal(size=rows.tokens.shape)
    batch = Batch(
        tokens=rows.tokens,
        length=rows.length,
        sampled=rows.sampled,
        behaviour_logprob=rows.logprob,
        reference_logprob=reference,
        advantage=jnp.asarray(draws, jnp.float32),
        kind=jnp.full(rows.length.shape, FRESH, jnp.int32),
    )
    learner, losses = update.init(params), []
    for _ in range(2):
        learner, numbers = update.update(learner, batch, lengths)
        losses.append(numbers['loss/total'])
    return {'loss': losses, 'numbers': numbers, 'reference': reference, 'params': learner.params}


def step(data: int, fsdp: int, folder: pathlib.Path) -> dict:
    """All that the processes are compared by."""
    mesh = make_mesh(MeshSettings(data=data, fsdp=fsdp))
    params = transformer.init_params(SHAPE, jax.random.key(3))
    params = jax.tree.map(lambda leaf: leaf * 15 if leaf.ndim > 1 else leaf, params)
    params = shard_params(params, mesh)
    rows, episodes = play(params, mesh)
    lengths = fetch(rows.length)
    found = fetch({'rows': rows, 'learned': learn(params, mesh, rows, lengths)})
    metrics = make_metrics(folder)
    metrics.write(0, found['learned']['numbers'] | {'length': rows.length.mean()})
    metrics.close()
    write_atomically(folder / 'writer.txt', str(jax.process_index()))
    found['results'] = np.asarray([[len(e.turns), len(e.turns[0].results)] for e in episodes])
    return {
        jax.tree_util.keystr(path, simple=True, separator='/'): x
        for path, x in jax.tree.leaves_with_path(found)
    }


def told() -> dict:
    """Messages of every length arrive whole; a failure of the first process is heard by all."""
    first = jax.process_index() == 0
    whole = [from_first(lambda n=n: bytes(n % 251 for n in range(n))) for n in (0, 1, 16376, 99999)]
    right = all(text == bytes(n % 251 for n in range(len(text))) for text in whole)
    failed = ''
    try:
        from_first(lambda: int('x').to_bytes())
    except (ValueError, RuntimeError) as error:
        failed = type(error).__name__
    expected = 'ValueError' if first else 'RuntimeError'
    return {'told': np.asarray([len(text) for text in whole] + [right, failed == expected])}


def main():
    out, (port, count, index, data, fsdp) = sys.argv[1], map(int, sys.argv[2:])
    if count > 1:
        jax.config.update('jax_cpu_collectives_implementation', 'gloo')
        jax.distributed.initialize(f'localhost:{port}', count, index)
    folder = pathlib.Path(out).parent / f'{count}-processes'
    found = step(data, fsdp, folder) | told()
    np.savez(pathlib.Path(out), executed=len(asked), **found)


if __name__ == '__main__':
    main()
