"""One small training step on any mesh, in one process or in several; and how two of them differ.

Groups of tasks are played with tools, scored by the reference and learned from, twice.  The policy
is random, and whatever it writes is read as a call, so that tools are asked at every turn.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.tree_util import Partial

from cacherl_jax import keys
from cacherl_jax.chat.template import Chat
from cacherl_jax.grpo.loss import FRESH, Batch
from cacherl_jax.grpo.reference import make_reference
from cacherl_jax.grpo.update import UpdateSettings, make_update
from cacherl_jax.mesh import row_placement, shard_params
from cacherl_jax.policy import transformer
from cacherl_jax.policy.decode import make_decoder
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.slots import DecodeSettings
from cacherl_jax.rollout import make_rollout
from cacherl_jax.run.fetch import fetch
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tasks.suite import draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import tool

SIZES = DecodeSettings(
    slots=8, context_tokens=320, turn_tokens=8, episode_tokens=40, segment_tokens=7,
    widths=(64, 320),
)  # fmt: skip
UPDATE = UpdateSettings(micro_rows=8, widths=(320,))
ROLLOUT = RolloutSettings(samples=3, max_turns=3)
SHARPER = 15.0  # times the usual spread of weights: a policy that is sure of something
MORE_ENDS = range(500, 1500)  # ids that end a message too, so that most messages end by themselves
TOLERANCE = 2e-4

Seen = dict[str, np.ndarray]  # what came of a step, by name


class Asking(Chat):
    """Reads a call into whatever the policy wrote: a number that its tokens say."""

    def message_text(self, ids):
        arguments = f'{{"left": {sum(ids)}, "right": {len(ids)}}}'
        return f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'


def shape_for(tokenizer) -> Shape:
    """Sizes that eight devices can share, with the tokenizer's vocabulary."""
    sizes = {'embed': 32, 'heads': 4, 'kv_heads': 2, 'head_dim': 8, 'hidden': 48}
    return Shape(layers=2, vocab=len(tokenizer), **sizes)


def step(tokenizer, mesh: Mesh) -> Seen:
    """Play, score and learn; `executed` says how often a tool ran in this process."""
    shape = shape_for(tokenizer)
    params = transformer.init_params(shape, jax.random.key(3))
    params = jax.tree.map(lambda leaf: leaf * SHARPER if leaf.ndim > 1 else leaf, params)
    params = shard_params(params, mesh)
    rows, episodes, executed = _play(tokenizer, shape, params, mesh)
    found = {'rows': rows, 'learned': _learn(shape, params, mesh, rows)}
    found = jax.tree.leaves_with_path(fetch(found))
    seen = {jax.tree_util.keystr(path, simple=True, separator='/'): x for path, x in found}
    results = [[len(one.turns), sum(len(turn.results) for turn in one.turns)] for one in episodes]
    return seen | {'results': np.asarray(results), 'executed': np.asarray(executed)}


def _play(tokenizer, shape: Shape, params, mesh: Mesh):
    """Two groups, each turn a call; the rows, the episodes and the number of executions here."""
    executed = []

    def add(left: int, right: int) -> dict:
        """Add two numbers."""
        executed.append((left, right))
        return {'sum': left + right}

    end_id = tokenizer.convert_tokens_to_ids('<|im_end|>')
    chat = Asking(tokenizer=tokenizer, end_ids=(end_id, *MORE_ENDS))
    decoder = make_decoder(shape, SIZES, SamplingSettings(), chat.end_ids, mesh=mesh)
    tasks = [
        dataclasses.replace(task, tools=(tool(add),)) for task in draw(SUITES[1], 'train', 1, 2)
    ]
    open_session = live_sessions().open_session
    rollout = make_rollout(chat, decoder, open_session, ROLLOUT, keys.root(5))
    rows, episodes = rollout(params, tasks, 11)
    return rows, episodes, len(executed)


def _learn(shape: Shape, params, mesh: Mesh, rows) -> dict[str, Any]:
    """Two updates by made-up advantages: losses, numbers, reference and parameters."""

    def scored(params, tokens, length, sampled):
        return score(params, shape, tokens, sampled)

    place, lengths = row_placement(mesh), fetch(rows.length)
    optimizer = optax.sgd(0.1, momentum=0.9)
    update = make_update(Partial(scored), optimizer, UPDATE, place)
    reference = make_reference(Partial(scored), UPDATE, place)(params, rows, lengths)
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


# ---- two steps side by side

PARTS = {  # what a column of the table is about, by how its names begin
    'logprob': 'rows/logprob',
    'reference': 'learned/reference',
    'loss': 'learned/loss',
    'metrics': 'learned/numbers',
    'parameters': 'learned/params',
}


def differences(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The share of tokens that are equal, and the largest absolute difference of each part."""
    found = {'tokens': float(np.mean(one['rows/tokens'] == other['rows/tokens']))}
    for part, begins in PARTS.items():
        names = [name for name in one if name.startswith(begins)]
        found[part] = float(max(np.abs(one[name] - other[name]).max() for name in names))
    return found


def within(found: Mapping[str, float]) -> bool:
    """Whether every token is equal and no difference above the tolerance."""
    return all(
        value == 1.0 if part == 'tokens' else value <= TOLERANCE for part, value in found.items()
    )
