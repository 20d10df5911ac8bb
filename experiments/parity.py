"""Are our numbers those of transformers?  Each family: logits, scores, greedy turns, both ways.

    python experiments/parity.py --json parity.json

Small random models made by transformers, float32, on the CPU.  `logits` are those of the loaded
folder against theirs, `far` at the end of a long row, `scores` the log-probabilities that training
uses, `exported` what transformers reads from the folder that we wrote.  `greedy` is the share of
tokens that are equal over turns with tokens forced in between, ours decoded with a cache, theirs
read anew for every token.  Needs torch, which this project does not use otherwise.
"""

import dataclasses
import importlib.util
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from cacherl_jax.bench.play import decoder_of, make_player
from cacherl_jax.bench.rollout import GREEDY
from cacherl_jax.bench.workloads import RolloutWork
from cacherl_jax.mesh import MeshSettings, make_mesh
from cacherl_jax.policy import transformer
from cacherl_jax.policy.hugging_face import config_of
from cacherl_jax.policy.logprob import hidden_states, score
from cacherl_jax.policy.shape import Params, RopeScaling, Shape
from cacherl_jax.policy.weights import load_policy, save_policy
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.terminal import print_table

TOLERANCE = 2e-3
SIZES = Shape(
    layers=4, embed=96, heads=6, kv_heads=2, head_dim=16, hidden=160, vocab=512, head_norm=False
)
STRETCHED = RopeScaling(
    factor=32.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context_tokens=64
)
FAMILIES = {
    'Qwen3': dataclasses.replace(SIZES, head_norm=True, head_dim=24),
    'Qwen2': dataclasses.replace(SIZES, qkv_bias=True, tied=False),
    'Llama-3.x': dataclasses.replace(SIZES, rope_theta=5e5, rope_scaling=STRETCHED, tied=False),
    'SmolLM2': dataclasses.replace(SIZES, heads=9, kv_heads=3, embed=144, rope_theta=1e5),
}
COLUMNS = ('family', 'logits', 'far', 'scores', 'exported', 'greedy', 'within')

Logits = Callable[[np.ndarray], np.ndarray]  # i32 [row, token] -> f32 [row, token, vocab]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParitySettings:
    """How much is compared."""

    families: tuple[str, ...] = tuple(FAMILIES)
    rows: int = 4
    row_tokens: int = 96
    far_tokens: int = 2048  # of the long row
    turns: int = 3
    turn_tokens: int = 24
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        unknown = set(self.families) - set(FAMILIES)
        if unknown:
            raise ValueError(f'families must be of {sorted(FAMILIES)}, got {sorted(unknown)}')
        counts = self.rows, self.row_tokens, self.far_tokens, self.turns, self.turn_tokens
        if min(counts) < 1:
            raise ValueError(f'numbers of rows, tokens and turns must be 1 or more, got {counts}')

    @property
    def work(self) -> RolloutWork:
        """Turns of every row, each with a prompt of its own."""
        return RolloutWork(
            prompts=self.rows,
            group=1,
            prompt_tokens=self.row_tokens // 2,
            turns=self.turns,
            turn_tokens=self.turn_tokens,
            tool_tokens=self.turn_tokens // 2,
        )


def our_logits(shape: Shape, params: Params) -> Logits:
    """Of whole rows, by one forward pass."""

    @jax.jit
    def logits(tokens):
        return transformer.logits_of(params, shape, hidden_states(params, shape, tokens))

    return lambda tokens: fetch(logits(jnp.asarray(tokens, jnp.int32)))


def greedy_by_rereading(logits: Logits, work: RolloutWork, prompts, tools) -> np.ndarray:
    """Rows i32 [row, token]: each token is the likeliest after the whole row so far."""
    rows = np.repeat(prompts, work.group, axis=0)
    for turn in range(work.turns):
        if turn:
            rows = np.concatenate([rows, tools[turn - 1]], axis=1)
        for _ in range(work.turn_tokens):
            best = logits(rows)[:, -1].argmax(-1)
            rows = np.concatenate([rows, best[:, None].astype(np.int32)], axis=1)
    return rows


def greedy_by_decoder(
    shape: Shape, params: Params, work: RolloutWork, prompts, tools
) -> np.ndarray:
    """The same rows by prefill, cache and forced blocks."""
    decoder = decoder_of(shape, work, GREEDY, make_mesh(MeshSettings()))
    return fetch(make_player(decoder, params, work, prompts, tools)(0).tokens)


def plain_scores(logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """log softmax of each token after those before it, f32 [row, token]; 0 at position 0."""
    wide = logits[:, :-1].astype(np.float64)
    top = wide.max(-1, keepdims=True)
    logprob = wide - top - np.log(np.exp(wide - top).sum(-1, keepdims=True))
    chosen = np.take_along_axis(logprob, tokens[:, 1:, None], -1)[..., 0]
    return np.pad(chosen, ((0, 0), (1, 0)))


def compare(
    theirs: Logits, exported: Logits, shape: Shape, params: Params, settings: ParitySettings
) -> dict[str, float]:
    """Largest absolute differences, and the share of greedy tokens that agree."""
    draw, ours = np.random.default_rng(0), our_logits(shape, params)
    tokens = draw.integers(0, shape.vocab, (settings.rows, settings.row_tokens), dtype=np.int32)
    far = draw.integers(0, shape.vocab, (1, settings.far_tokens), dtype=np.int32)
    expected = theirs(tokens)
    found, _ = score(params, shape, jnp.asarray(tokens), jnp.ones(tokens.shape, bool))
    inputs = settings.work.inputs(shape.vocab)
    by_decoder = greedy_by_decoder(shape, params, settings.work, *inputs)
    by_rereading = greedy_by_rereading(theirs, settings.work, *inputs)
    start = settings.work.prompt_tokens
    return {
        'logits': _largest(ours(tokens) - expected),
        'far': _largest(ours(far)[:, -64:] - theirs(far)[:, -64:]),
        'scores': _largest(fetch(found) - plain_scores(expected, tokens)),
        'exported': _largest(exported(tokens) - expected),
        'greedy': float((by_decoder == by_rereading)[:, start:].mean()),
    }


def _largest(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())


def within(told: dict[str, float]) -> bool:
    """Whether every difference is within the tolerance and every token equal."""
    return all(
        value == 1.0 if name == 'greedy' else value <= TOLERANCE for name, value in told.items()
    )


def their_model(shape: Shape, context_tokens: int):
    """A random model of transformers, its weights large enough that all of them matter."""
    import torch
    import transformers

    torch.manual_seed(3)
    fields = config_of(dataclasses.replace(shape, context_tokens=context_tokens))
    config = transformers.AutoConfig.for_model(**fields | {'initializer_range': 0.1})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, weight in model.named_parameters():
        if name.endswith('bias'):
            torch.nn.init.normal_(weight)  # they begin at zero, which would hide them
    return model


def their_logits(model: Any) -> Logits:
    """Of whole rows, without any cache."""
    import torch

    def logits(tokens):
        with torch.inference_mode():
            return model(torch.tensor(tokens).long(), use_cache=False).logits.numpy()

    return logits


def measure(name: str, settings: ParitySettings) -> dict[str, float]:
    """One family: transformers' folder read by us, ours read by transformers."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        source, saved = pathlib.Path(folder) / 'theirs', pathlib.Path(folder) / 'ours'
        model = their_model(FAMILIES[name], max(4096, settings.far_tokens))
        model.save_pretrained(source)
        shape, params, _ = load_policy(source)
        save_policy(saved, shape, fetch(params), source)
        again = transformers.AutoModelForCausalLM.from_pretrained(saved).eval()
        return compare(their_logits(model), their_logits(again), shape, params, settings)


@refusing()
def main() -> None:
    """The command; ends with code 1 where a family is not within the tolerance."""
    with refusing(ValueError):
        settings = tyro.cli(ParitySettings, description=__doc__)
    if not importlib.util.find_spec('torch'):
        raise Refusal(
            'torch is not installed, and transformers computes nothing without it',
            remedy='pip install torch (the CPU build will do), then give the same command again',
        )
    found = {name: measure(name, settings) for name in settings.families}
    rows = [
        [name, *(told[column] for column in COLUMNS[1:-1]), 'yes' if within(told) else 'NO']
        for name, told in found.items()
    ]
    print_table(f'largest differences from transformers, tolerance {TOLERANCE}', COLUMNS, rows)
    if settings.json:
        write_atomically(settings.json, json.dumps(found, indent=2) + '\n')
    if not all(map(within, found.values())):
        raise SystemExit(1)


if __name__ == '__main__':
    main()
