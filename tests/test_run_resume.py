"""A run that is killed and started again ends with the same parameters, bit for bit."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_policy import VOCAB

from cacherl_jax.policy import transformer
from cacherl_jax.policy.hugging_face import config_of
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.weights import save_policy

ROOT = pathlib.Path(__file__).parent.parent
STEPS = 5
SETTINGS = (
    '--curriculum.suites trip --curriculum.levels 1 --curriculum.tasks 4 --groups 2 --text-rows 1 '
    '--rollout.samples 2 --rollout.max-turns 3 --decode.slots 4 --decode.context-tokens 448 '
    '--decode.turn-tokens 24 --decode.episode-tokens 60 --decode.widths 64 448 '
    '--update.widths 448 --update.micro-rows 4 --supervised.demonstrations 4 --supervised.epochs 1 '
    '--supervised.rows 4 --evaluation.unseen 2 --evaluation.seen 1 --buffer.minimum 2 '
    f'--checkpoint-steps 2 --steps {STEPS}'
).split()


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """A two-layer policy with the shipped tokenizer, as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp('model') / 'small'
    shape = Shape(layers=2, embed=32, heads=2, kv_heads=1, head_dim=16, hidden=48, vocab=VOCAB)
    base = ROOT / 'cacherl_jax' / 'base'
    source = folder.with_name('source')
    source.mkdir()
    for name in ('tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'):
        (source / name).write_bytes((base / name).read_bytes())
    (source / 'generation_config.json').write_bytes((base / 'generation_config.json').read_bytes())
    (source / 'config.json').write_text(json.dumps(config_of(shape)))
    params = transformer.init_params(shape, jax.random.key(0))
    save_policy(folder, shape, jax.tree.map(np.asarray, params), source)
    return folder


def start(model, run_dir, cache) -> subprocess.Popen:
    environment = os.environ | {
        'PYTHONPATH': str(ROOT),
        'JAX_COMPILATION_CACHE_DIR': str(cache),
        'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    }
    command = [sys.executable, 'experiments/train.py', '--model', str(model)]
    command += ['--run-dir', str(run_dir), *SETTINGS]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output[-3000:]
    return output


def steps_done(run_dir) -> int:
    lines = run_dir / 'metrics.jsonl'
    written = lines.read_text().splitlines() if lines.exists() else []
    return sum('"rewards/total"' in line for line in written)


def test_killed_and_resumed_is_uninterrupted(model, tmp_path):
    whole, broken, cache = tmp_path / 'whole', tmp_path / 'broken', tmp_path / 'compiled'
    finish(start(model, whole, cache))
    process = start(model, broken, cache)
    kill_after = random.SystemRandom().randint(1, STEPS - 1)
    while steps_done(broken) < kill_after and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (broken / 'result.json').exists()
    finish(start(model, broken, cache))
    one, other = (load_file(folder / 'policy' / 'model.safetensors') for folder in (whole, broken))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one), f'killed at {kill_after}'
    results = [json.loads((folder / 'result.json').read_text()) for folder in (whole, broken)]
    assert results[0]['suites'] == results[1]['suites']
    assert results[0]['rl'] == results[1]['rl']
    assert results[0]['rl']['live_tool_calls'] == 0
    assert steps_done(broken) == STEPS
