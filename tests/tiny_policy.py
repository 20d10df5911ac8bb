"""A two-layer policy with the shipped tokenizer, and settings under which a run takes seconds."""

import json
import pathlib

import jax
import numpy as np

from cacherl_jax.policy import transformer
from cacherl_jax.policy.hugging_face import config_of
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.weights import save_policy

BASE = pathlib.Path(__file__).parent.parent / 'cacherl_jax' / 'base'
VOCAB = json.loads((BASE / 'config.json').read_text())['vocab_size']
TOKENIZER = ('tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja')
SETTINGS = (
    '--curriculum.suites trip --curriculum.levels 1 --curriculum.tasks 4 --groups 2 --text-rows 1 '
    '--rollout.samples 2 --rollout.max-turns 3 --decode.slots 4 --decode.context-tokens 448 '
    '--decode.turn-tokens 24 --decode.episode-tokens 60 --decode.widths 64 448 '
    '--update.widths 448 --update.micro-rows 4 --supervised.demonstrations 4 --supervised.epochs 1 '
    '--supervised.rows 4 --supervised.general 0 --evaluation.unseen 2 --evaluation.seen 1 '
    '--buffer.minimum 2 --checkpoint-steps 1'
).split()


def make_policy(folder: pathlib.Path) -> pathlib.Path:
    """A Hugging Face folder of a policy with random parameters, within `folder`."""
    source, made = folder / 'source', folder / 'policy'
    source.mkdir()
    for name in (*TOKENIZER, 'generation_config.json'):
        (source / name).write_bytes((BASE / name).read_bytes())
    shape = Shape(layers=2, embed=32, heads=2, kv_heads=1, head_dim=16, hidden=48, vocab=VOCAB)
    (source / 'config.json').write_text(json.dumps(config_of(shape)))
    params = transformer.init_params(shape, jax.random.key(0))
    save_policy(made, shape, jax.tree.map(np.asarray, params), source)
    return made
