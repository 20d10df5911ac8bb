"""Laws of low-rank adapters: off changes nothing, on equals merged, PEFT reads what we write."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cacherl_jax.policy.hugging_face import config_of
from cacherl_jax.policy.logprob import score
from cacherl_jax.policy.lora import (
    LoraSettings,
    adapted,
    adapter_between,
    init_adapter,
    load_adapter,
    merge,
    save_adapter,
    unmerge,
)
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params
from cacherl_jax.policy.weights import save_policy

SHAPE = Shape(
    layers=2, embed=16, heads=4, kv_heads=2, head_dim=8, hidden=24, vocab=40, context_tokens=64
)
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 40, (2, 12)), jnp.int32)
SAMPLED = jnp.ones(TOKENS.shape, bool).at[:, 0].set(False)
SOME = LoraSettings(rank=3, alpha=6.0, targets=('query', 'output', 'down'))
ALL = LoraSettings(rank=2, alpha=8.0)


def params():
    return init_params(SHAPE, jax.random.key(1))


def stirred(settings, seed=3):
    """An adapter that changes something."""
    adapter = init_adapter(params(), settings, jax.random.key(2))
    leaves, tree = jax.tree.flatten(adapter)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moved = [0.3 * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, moved)


def logprob(weights):
    return score(weights, SHAPE, TOKENS, SAMPLED)[0]


@pytest.mark.parametrize('settings', [SOME, ALL])
def test_a_new_adapter_changes_nothing(settings):
    adapter = init_adapter(params(), settings, jax.random.key(2))
    both = adapted(params(), adapter, settings)
    np.testing.assert_array_equal(logprob(both), logprob(params()))


@pytest.mark.parametrize('settings', [SOME, ALL])
def test_on_equals_merged_and_unmerged_equals_off(settings):
    adapter = stirred(settings)
    on = logprob(adapted(params(), adapter, settings))
    together = merge(params(), adapter, settings)
    np.testing.assert_allclose(on, logprob(together), atol=2e-5)
    assert np.abs(on - logprob(params())).max() > 0.01
    back = unmerge(together, adapter, settings)
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(params()), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize('rank', [6, 30])  # as much as both have, and more than a matrix can
def test_two_adapters_one_after_the_other_are_one(rank):
    after = merge(merge(params(), stirred(SOME), SOME), stirred(SOME, seed=4), SOME)
    together = LoraSettings(rank=rank, alpha=5.0, targets=SOME.targets)
    again = merge(params(), adapter_between(params(), after, together), together)
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_only_the_adapter_learns_and_it_counts_alpha_over_rank():
    adapter = stirred(SOME)

    def total(adapter, settings):
        return logprob(adapted(params(), adapter, settings)).sum()

    gradient = jax.grad(total)(adapter, SOME)
    assert jax.tree.structure(gradient) == jax.tree.structure(adapter)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))
    twice = LoraSettings(rank=3, alpha=12.0, targets=SOME.targets)
    halved = {
        'layers': tuple(
            {name: pair | {'lora_b': pair['lora_b'] / 2} for name, pair in layer.items()}
            for layer in adapter['layers']
        )
    }
    np.testing.assert_allclose(total(halved, twice), total(adapter, SOME), rtol=1e-5)


@pytest.mark.parametrize('settings', [SOME, ALL])
def test_what_is_saved_is_loaded_exactly(tmp_path, settings):
    adapter = stirred(settings)
    save_adapter(tmp_path, adapter, settings)
    loaded, read = load_adapter(tmp_path, params())
    assert read == settings
    jax.tree.map(np.testing.assert_array_equal, loaded, adapter)


def test_an_adapter_of_another_model_is_refused_by_the_matrix_that_does_not_fit(tmp_path):
    save_adapter(tmp_path, stirred(SOME), SOME)
    other = Shape(layers=2, embed=16, heads=4, kv_heads=2, head_dim=8, hidden=32, vocab=40)
    with pytest.raises(ValueError, match=r'0\.mlp\.down_proj.*\(3, 32\).*got.*\(3, 24\)'):
        load_adapter(tmp_path, init_params(other, jax.random.key(0)))
    shallow = Shape(layers=1, embed=16, heads=4, kv_heads=2, head_dim=8, hidden=24, vocab=40)
    with pytest.raises(ValueError, match=r'no matrix of this model.*layers\.1\.'):
        load_adapter(tmp_path, init_params(shallow, jax.random.key(0)))


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'rank': -1}, 'rank must be 0'),
        ({'rank': 2, 'alpha': 0.0}, 'alpha must be above 0'),
        ({'rank': 2, 'targets': ('query', 'head')}, "targets must be some of .*'head'"),
        ({'rank': 2, 'targets': ()}, 'targets must be some of'),
    ],
)
def test_nonsense_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        LoraSettings(**settings)


@pytest.mark.real
def test_peft_loads_the_adapter_and_gives_the_same_logits(tmp_path):
    """Needs torch and peft, which are no dependencies: pip install torch==2.13.0 peft==0.21.2."""
    torch, peft = pytest.importorskip('torch'), pytest.importorskip('peft')
    transformers = pytest.importorskip('transformers')
    adapter = stirred(ALL)
    (tmp_path / 'base').mkdir()
    (tmp_path / 'base' / 'config.json').write_text(json.dumps(config_of(SHAPE)))
    save_policy(tmp_path / 'base', SHAPE, jax.device_get(params()), tmp_path / 'base')
    save_adapter(tmp_path / 'adapter', adapter, ALL, base=str(tmp_path / 'base'))
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'base')
    model = peft.PeftModel.from_pretrained(base, tmp_path / 'adapter')
    with torch.no_grad():
        logits = model(torch.tensor(np.asarray(TOKENS))).logits[:, :-1].log_softmax(-1)
    theirs = np.take_along_axis(logits.numpy(), np.asarray(TOKENS)[:, 1:, None], -1)[..., 0]
    ours = logprob(adapted(params(), adapter, ALL))[:, 1:]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
