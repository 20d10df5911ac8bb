"""Detectors and learned judges learn a made law, survive the disk and refuse strange files."""

import dataclasses
import json
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rewards_episodes import ask, find, goal, make_task, play, say

from cacherl_jax import keys
from cacherl_jax.policy.shape import Shape
from cacherl_jax.policy.transformer import init_params
from cacherl_jax.rewards import classifier as text
from cacherl_jax.rewards import reward_model as learned
from cacherl_jax.rewards.detectors import (
    classifier_detector,
    keyword_detector,
    score_detector,
    turn_text,
)
from cacherl_jax.rewards.facts import FactSettings, gather_facts
from cacherl_jax.tools.tool import Status
from experiments import train_detector

REWARDS = jax.jit(learned.row_rewards, static_argnames='shape')
SHAPE = Shape(layers=1, embed=16, heads=2, kv_heads=1, head_dim=8, hidden=16, vocab=11)
SMALL = text.FeatureSettings(buckets=512, features=64)
NOUNS = 'report table price weather route museum loan stock'.split()


def sentences(seed, count=160):
    """The made law: yes where something was opened and the word after it is no failure."""
    draw = np.random.default_rng(seed)
    made = [
        f'{draw.choice(["opened", "closed"])} {draw.choice(["well", "badly"])} the '
        f'{draw.choice(NOUNS)} of {draw.integers(1000)}'
        for _ in range(count)
    ]
    return made, [one.startswith('opened well') for one in made]


@pytest.fixture(scope='module')
def classifier():
    settings = text.ClassifierSettings(features=SMALL)
    params = text.fit(*sentences(0), settings, keys.root(0))
    params = jax.tree.map(np.asarray, params)
    return text.Classifier(weight=params['weight'], bias=float(params['bias']), features=SMALL)


def test_a_classifier_learns_a_made_law(classifier):
    made, labels = sentences(1)
    assert np.mean((classifier.probability(made) >= 0.5) == labels) > 0.97


def test_host_and_device_agree(classifier):
    made, _ = sentences(2, 7)
    params = {'weight': jnp.asarray(classifier.weight), 'bias': jnp.asarray(classifier.bias)}
    device = jax.nn.sigmoid(text.logits(params, text.text_features(made, SMALL)))
    np.testing.assert_allclose(classifier.probability(made), device, atol=1e-6)


@given(st.lists(st.text(max_size=40), max_size=4))
def test_features_of_any_text_have_length_one_or_are_none(texts):
    made = text.text_features(texts, SMALL)
    norm = np.linalg.norm(made.value, axis=1)
    assert np.all(np.isclose(norm, 1, atol=1e-5) | (norm == 0))
    assert made.index.shape == (len(texts), 64) and np.all((made.index >= 0) & (made.index < 512))


def test_features_are_the_same_in_every_process():
    grams = (b'w:opened', b'w:well', b'w:opened well', b'l: ope')
    expected = [zlib.crc32(gram) % 512 for gram in grams]
    assert text.text_features(['Opened well!'], SMALL).index[0, :4].tolist() == expected


def test_a_classifier_survives_the_disk_without_pickle(classifier, tmp_path):
    kept = dataclasses.replace(classifier, threshold=0.75)
    text.save_classifier(tmp_path / 'one', kept, accuracy=1.0)
    loaded = text.load_classifier(tmp_path / 'one')
    made, _ = sentences(3, 5)
    assert np.array_equal(loaded.probability(made), kept.probability(made))
    assert loaded.threshold == 0.75
    assert sorted(path.name for path in (tmp_path / 'one').iterdir()) == [
        'about.json', 'arrays.safetensors',
    ]  # fmt: skip


@pytest.mark.parametrize('harm', ['kind', 'features', 'arrays', 'missing', 'other'])
def test_a_strange_folder_is_refused(classifier, tmp_path, harm):
    text.save_classifier(tmp_path, classifier)
    about = json.loads((tmp_path / 'about.json').read_text())
    if harm == 'arrays':
        (tmp_path / 'arrays.safetensors').write_bytes(b'\x80\x04cos\nsystem\n')
    elif harm == 'missing':
        (tmp_path / 'about.json').unlink()
    elif harm == 'other':
        about['features']['buckets'] = 7
    else:
        about[harm] = 'x'
    if harm != 'missing':
        (tmp_path / 'about.json').write_text(json.dumps(about))
    with pytest.raises(ValueError, match=str(tmp_path)):
        text.load_classifier(tmp_path)


@pytest.mark.parametrize('labels', [[], [True, True], [True]])
def test_one_kind_of_label_teaches_nothing_and_is_refused(labels):
    with pytest.raises(ValueError, match='some yes and some no'):
        text.fit(['a', 'b'][: len(labels) or 2], labels, text.ClassifierSettings(), keys.root(0))


def test_the_turn_that_shows_it_is_paid(classifier):
    reached = classifier_detector(classifier)
    subgoal = dataclasses.replace(goal('opened', 'find'), reached=reached)
    told = (
        'closed badly the report of 1',
        'opened well the route of 2',
        'opened well the loan of 3',
    )
    turns = [ask(find(f'q{n}'), text=text) for n, text in enumerate(told)]
    facts = gather_facts([play(*turns, say(), task=make_task(subgoal))], FactSettings())
    assert facts.reached[0, :, 0].tolist()[:4] == [False, True, False, False]


def test_keywords_count_where_they_are_looked_for():
    turns = [ask(find(), text='Revenue: 7'), say('the revenue of 2023')]
    failed = [ask(find(), text='Revenue: 7', status=Status.TOOL_ERROR)]
    assert keyword_detector([r'revenue', r'\b7\b'])(turns)
    assert not keyword_detector(['revenue', '2023'])(turns)
    assert keyword_detector(['revenue', '2023'], need='any')(turns[:1])
    assert keyword_detector(['2023'], place='messages')(turns)
    assert not keyword_detector(['revenue'])(failed)  # a failure teaches nothing
    assert not keyword_detector(['revenue'])([])


@pytest.mark.parametrize('patterns', [(), ('(',)])
def test_patterns_that_cannot_match_are_refused(patterns):
    with pytest.raises(ValueError, match='patterns|regular expression'):
        keyword_detector(patterns)


def test_a_score_counts_from_the_turn_that_reached_the_threshold():
    reached = score_detector(lambda turns: {1: 0.2, 2: 0.9}.get(len(turns), 0.1), 0.5)
    turns = [say('a'), say('b'), say('c')]
    assert [reached(turns[:end]) for end in range(4)] == [False, False, True, True]


def test_the_text_of_a_turn_tells_calls_and_outcomes():
    told = turn_text(ask(find('acme', year=3), text='gone', status=Status.UNAVAILABLE))
    assert told == '\nfind {"query": "acme", "year": 3} unavailable gone'


# ---- a head on the policy's trunk


@pytest.fixture(scope='module')
def trunk():
    return jax.jit(init_params, static_argnums=0)(SHAPE, jax.random.key(0))


@pytest.fixture(scope='module')
def training():
    return learned.make_training(SHAPE, optax.adam(0.05))


def rows(seed, count=16, width=9):
    """The made law: the better row of a pair ends with token 3, the worse one with token 4."""
    draw = np.random.default_rng(seed)
    tokens = draw.integers(0, 11, (2, count, width))
    length = draw.integers(2, width + 1, (2, count))
    for side, last in enumerate((3, 4)):
        tokens[side, np.arange(count), length[side] - 1] = last
    sides = zip(tokens, length, strict=True)
    return [learned.Rows(jnp.asarray(ids), jnp.asarray(count)) for ids, count in sides]


def taught(training, trunk):
    learner = training.init(trunk)
    losses = []
    for seed in range(40):
        learner, metrics = training.step(learner, *rows(seed))
        losses.append(float(metrics['reward_model/loss']))
    assert losses[0] == pytest.approx(np.log(2), abs=1e-6)  # an undecided pair
    return learner, losses[-1]


def unchanged(learner, trunk):
    same = jax.tree.map(lambda a, b: bool((a == b).all()), learner.trunk, trunk)
    return all(jax.tree.leaves(same))


def test_a_reward_model_learns_a_made_preference(training, trunk):
    learner, loss = taught(training, trunk)
    better, worse = (REWARDS(learner.head, trunk, SHAPE, side) for side in rows(99))
    assert loss < 0.2 and np.mean(better > worse) == 1 and unchanged(learner, trunk)
    head = learned.centred(learner.head, better, worse)
    middle = sum(REWARDS(head, trunk, SHAPE, side).mean() for side in rows(99))
    assert abs(float(middle)) < 1e-4


@pytest.mark.slow
def test_the_trunk_learns_too_where_it_is_asked_to(trunk):
    learner, loss = taught(learned.make_training(SHAPE, optax.adam(0.05), whole=True), trunk)
    assert loss < 0.2 and not unchanged(learner, trunk)


def test_padding_and_its_tokens_change_no_reward(trunk):
    head = {'weight': jnp.arange(16.0), 'bias': jnp.float32(0.5)}
    wide, _ = rows(0)
    past = jnp.arange(9) >= wide.length[:, None]
    expected = REWARDS(head, trunk, SHAPE, wide)
    other = wide.replace(tokens=jnp.where(past, 7, wide.tokens))
    np.testing.assert_allclose(REWARDS(head, trunk, SHAPE, other), expected, rtol=1e-5)
    wider = wide.replace(tokens=jnp.pad(wide.tokens, ((0, 0), (0, 50)), constant_values=5))
    found = REWARDS(head, trunk, SHAPE, wider)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_pair_without_a_row_teaches_nothing(training, trunk):
    better, worse = rows(0)
    empty = worse.replace(length=jnp.zeros(16, jnp.int32))
    learner, metrics = training.step(training.init(trunk), better, empty)
    assert not float(metrics['reward_model/gradient_norm'])
    assert not learner.head['weight'].any()
    ones = {'weight': jnp.ones(16), 'bias': jnp.ones(())}
    assert not REWARDS(ones, trunk, SHAPE, empty).any()


@given(st.floats(-200, 200), st.floats(-200, 200))
def test_the_loss_is_minus_the_log_of_the_odds(better, worse):
    found = learned.preference_loss(jnp.array([better]), jnp.array([worse]), jnp.array([True]))
    expected = np.logaddexp(0, np.float64(np.float32(worse)) - np.float64(np.float32(better)))
    assert float(found) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_head_belongs_to_its_trunk(tmp_path):
    head = {'weight': np.arange(16, dtype=np.float32), 'bias': np.float32(2)}
    learned.save_head(tmp_path, head, 'a')
    loaded = learned.load_head(tmp_path, SHAPE, 'a')
    assert np.array_equal(loaded['weight'], head['weight']) and float(loaded['bias']) == 2
    for shape, trunk in ((SHAPE, 'b'), (dataclasses.replace(SHAPE, embed=8), 'a')):
        with pytest.raises(ValueError, match='head for|arrays'):
            learned.load_head(tmp_path, shape, trunk)


def test_the_training_command_learns_a_file_and_says_how_well(tmp_path, monkeypatch, capsys):
    parts = [(False, *sentences(0, 96)), (True, *sentences(1, 40))]
    lines = [
        json.dumps({'text': one, 'label': bool(label), 'held_out': held_out}) + '\n'
        for held_out, made, labels in parts
        for one, label in zip(made, labels, strict=True)
    ]
    (tmp_path / 'turns.jsonl').write_text(''.join(lines))
    command = f'x --data {tmp_path}/turns.jsonl --out {tmp_path}/found --json {tmp_path}/told.json'
    monkeypatch.setattr('sys.argv', command.split())
    train_detector.main()
    told = json.loads((tmp_path / 'told.json').read_text())
    assert told['measured']['held out']['texts'] == 40
    assert told['measured']['held out']['accuracy'] > 0.9 and 'held out' in capsys.readouterr().out
    assert text.load_classifier(tmp_path / 'found').says_yes('opened well the report of 12')


def test_a_broken_line_is_refused_with_its_number(tmp_path, monkeypatch, capsys):
    (tmp_path / 'turns.jsonl').write_text('{"text": "a", "label": 1, "held_out": false}\n')
    monkeypatch.setattr('sys.argv', f'x --data {tmp_path}/turns.jsonl --out {tmp_path}/o'.split())
    with pytest.raises(SystemExit):
        train_detector.main()
    assert 'line 1' in capsys.readouterr().err
