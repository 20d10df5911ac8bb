"""A small classifier of texts: hashed n-grams, logistic regression.  Texts in, probabilities out.

    p(yes | text) = sigmoid(Σ_j weight[index_j] value_j + bias)

Features are made on the host; learning is a jitted loop over plain functions.  A trained classifier
is two arrays, and says yes or no on the host without a device.
"""

import collections
import dataclasses
import math
import os
import re
import zlib
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from cacherl_jax import keys
from cacherl_jax.rewards.arrays_file import expect_shapes, load_arrays, save_arrays

KIND = 'text classifier'


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """What a text is to the classifier."""

    buckets: int = 2**14  # n-grams that fall into one bucket are one
    word_ngram: int = 2  # most words in a feature
    letter_ngram: int = 4  # letters in a feature, over word borders; 0: none
    features: int = 256  # most features of a text; the first ones are kept

    def __post_init__(self):
        for name, least in (('buckets', 2), ('word_ngram', 1), ('features', 1)):
            if getattr(self, name) < least:
                raise ValueError(f'{name} must be at least {least}, got {getattr(self, name)}')
        if self.letter_ngram < 0:
            raise ValueError(f'letter_ngram must be 0 or more, got {self.letter_ngram}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """How it is learned."""

    features: FeatureSettings = FeatureSettings()
    epochs: int = 30
    rows: int = 64  # texts a step
    learning_rate: float = 0.03
    shrinkage: float = 1e-4  # weight of Σ weight², against texts learned by heart

    def __post_init__(self):
        if self.epochs < 1 or self.rows < 1:
            raise ValueError(f'epochs and rows must be at least 1, got {self.epochs}, {self.rows}')
        for name in ('learning_rate', 'shrinkage'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f'{name} must be finite and at least 0, got {value}')


@struct.dataclass
class Features:
    """Texts as sparse rows of length 1; unused places have value 0."""

    index: Any  # i32 [text, feature]  bucket
    value: Any  # f32 [text, feature]


def text_features(texts: Sequence[str], settings: FeatureSettings) -> Features:
    """Counts of n-grams, damped by log(1 + n) and scaled to length 1."""
    index = np.zeros((len(texts), settings.features), np.int32)
    value = np.zeros((len(texts), settings.features), np.float32)
    for row, text in enumerate(texts):
        counts = collections.Counter(_ngrams(text, settings))
        kept = list(counts.items())[: settings.features]
        weights = np.log1p(np.array([count for _, count in kept], np.float32))
        index[row, : len(kept)] = [bucket for bucket, _ in kept]
        value[row, : len(kept)] = weights / max(np.linalg.norm(weights), 1e-12)
    return Features(index=index, value=value)


def _ngrams(text: str, settings: FeatureSettings):
    """The bucket of each n-gram, words first, in the order of the text."""
    words = re.findall(r'\w+', text.casefold())
    for count in range(1, settings.word_ngram + 1):
        for start in range(len(words) - count + 1):
            yield _bucket('w', ' '.join(words[start : start + count]), settings.buckets)
    letters, count = f' {" ".join(words)} ', settings.letter_ngram
    for start in range(len(letters) - count + 1 if count else 0):
        yield _bucket('l', letters[start : start + count], settings.buckets)


def _bucket(kind: str, gram: str, buckets: int) -> int:
    """The same in every process, unlike Python's own hash."""
    return zlib.crc32(f'{kind}:{gram}'.encode(errors='surrogatepass')) % buckets


def init_params(buckets: int) -> dict[str, jax.Array]:
    """All 0: every text has probability one half."""
    return {'weight': jnp.zeros(buckets), 'bias': jnp.zeros(())}


def logits(params: dict[str, jax.Array], features: Features) -> jax.Array:
    """Σ_j weight[index_j] value_j + bias.  f32 [text]."""
    chex.assert_rank(features.index, 2)
    chex.assert_equal_shape([features.index, features.value])
    return jnp.sum(params['weight'][features.index] * features.value, axis=1) + params['bias']


def classifier_loss(params, features: Features, label, share, shrinkage: float) -> jax.Array:
    """Σ_i share_i CE(sigmoid(logit_i), label_i) / Σ_i share_i + shrinkage Σ weight².  f32 []."""
    chex.assert_equal_shape([label, share])
    each = optax.sigmoid_binary_cross_entropy(logits(params, features), label)
    mean = jnp.sum(share * each) / jnp.maximum(jnp.sum(share), 1e-12)
    return mean + shrinkage * jnp.sum(params['weight'] ** 2)


def fit(
    texts: Sequence[str], labels: Sequence[bool], settings: ClassifierSettings, root: jax.Array
) -> dict[str, jax.Array]:
    """Learned params; both labels weigh the same in sum, however rare one is."""
    label = np.asarray(labels, np.float32)
    if len(texts) != len(label) or set(np.unique(label)) != {0.0, 1.0}:
        raise ValueError(
            'a classifier learns from texts with a label each, some yes and some no; '
            f'got {len(texts)} texts, {int(label.sum())} yes out of {len(label)}'
        )
    share = np.where(label == 1, 0.5 / label.mean(), 0.5 / (1 - label.mean())).astype(np.float32)
    features = text_features(texts, settings.features)
    optimizer = optax.adam(settings.learning_rate)
    params = init_params(settings.features.buckets)
    rows = min(settings.rows, len(texts))

    def step(state, chosen):
        params, memory = state
        batch = jax.tree.map(lambda x: x[chosen], (features, label, share))
        gradient = jax.grad(classifier_loss)(params, *batch, settings.shrinkage)
        change, memory = optimizer.update(gradient, memory)
        return (optax.apply_updates(params, change), memory), None

    @jax.jit
    def epoch(state, key, features, label, share):
        order = jax.random.permutation(key, len(label))
        order = order[: len(label) // rows * rows].reshape(-1, rows)
        return jax.lax.scan(step, state, order)[0]

    features, label, share = jax.tree.map(jnp.asarray, (features, label, share))
    state = params, optimizer.init(params)
    for number in range(settings.epochs):
        state = epoch(state, keys.stream(root, 'classifier', number), features, label, share)
    return state[0]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """A learned classifier on the host."""

    weight: np.ndarray  # f32 [bucket]
    bias: float
    features: FeatureSettings
    threshold: float = 0.5  # probability from which the answer is yes

    def __post_init__(self):
        if not 0 < self.threshold < 1:
            raise ValueError(f'threshold must be in (0, 1), got {self.threshold}')

    def probability(self, texts: Sequence[str]) -> np.ndarray:
        """f32 [text]."""
        known = text_features(texts, self.features)
        score = (self.weight[known.index] * known.value).sum(axis=1) + self.bias
        return 0.5 * (1 + np.tanh(score / 2))

    def says_yes(self, text: str) -> bool:
        """Whether the probability reaches the threshold."""
        return bool(self.probability([text])[0] >= self.threshold)


def save_classifier(folder: str | os.PathLike, classifier: Classifier, **about: Any) -> None:
    """`about` is kept beside it, such as what it was measured at."""
    arrays = {'weight': classifier.weight, 'bias': np.float32(classifier.bias).reshape(1)}
    settings = {
        'features': dataclasses.asdict(classifier.features),
        'threshold': classifier.threshold,
    }
    save_arrays(folder, KIND, arrays, settings | {'about': about})


def load_classifier(folder: str | os.PathLike) -> Classifier:
    """As saved; ValueError where the folder holds no such thing."""
    arrays, about = load_arrays(folder, KIND)
    try:
        features = FeatureSettings(**about['features'])
        threshold = float(about['threshold'])
    except (KeyError, TypeError) as error:
        raise ValueError(f'{folder}: the settings of the classifier are broken: {error}') from None
    expect_shapes(folder, arrays, {'weight': (features.buckets,), 'bias': (1,)})
    return Classifier(
        weight=arrays['weight'],
        bias=float(arrays['bias'][0]),
        features=features,
        threshold=threshold,
    )
