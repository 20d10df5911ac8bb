"""The supervised stage: cross-entropy on demonstrations, in an order made from the seed."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cacherl_jax import keys
from cacherl_jax.grpo.loss import SUPERVISED, Batch
from cacherl_jax.grpo.update import Learner, Update
from cacherl_jax.supervised.formats import FORMATS
from cacherl_jax.supervised.rejection import RejectionSettings
from cacherl_jax.trajectory import Trajectory

FILES = ('.jsonl', '.json')  # endings of files of conversations
# Before the turns of demonstrations: what experts wrote there, nothing, or thoughts by rules.
THINKING = ('none', 'silent', 'rules')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedSettings:
    """What is learned, and how."""

    demonstrations: int = 16  # of each suite and level; 0 only where there are files
    # Before turns of demonstrations: none (words beside calls stay), silent (they go too), rules,
    # or a file made by think.
    thinking: str = 'none'
    files: tuple[pathlib.Path, ...] = ()  # conversations learned beside them, or corrections
    format: Literal['openai', 'sharegpt', 'hermes'] = 'openai'  # of the files
    malformed: Literal['raise', 'skip'] = 'raise'  # what happens to records that are refused
    general: int = 0  # invented conversations learned beside them, so that nothing is forgotten
    rejection: RejectionSettings = RejectionSettings()  # learning what the policy itself got right
    epochs: int = 4  # passes over them
    rows: int = 16  # conversations a step
    pack: bool = False  # several in one row where that is less; see update.widths
    optimizer: Literal['muon', 'adamw'] = 'muon'  # muon learns small models in far fewer steps
    learning_rate: float = 0.01  # at its height; it warms up and falls to a tenth
    weight_decay: float = 0.01

    def __post_init__(self):
        least = {'demonstrations': 0 if self.files else 1, 'general': 0, 'epochs': 1, 'rows': 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f'{name} must be at least {low}, got {getattr(self, name)}')
        if self.thinking not in THINKING and not self.thinking.endswith(FILES):
            raise ValueError(
                f'thinking must be one of {THINKING} or a file that ends in one of {FILES}, '
                f'got {self.thinking!r}'
            )
        for name, allowed in (('format', tuple(FORMATS)), ('malformed', ('raise', 'skip'))):
            if getattr(self, name) not in allowed:
                raise ValueError(f'{name} must be one of {allowed}, got {getattr(self, name)!r}')
        if not 0 < self.learning_rate < 1:
            raise ValueError(f'learning_rate must be in (0, 1), got {self.learning_rate}')

    def steps(self, rows: int) -> int:
        """Steps of all epochs over `rows` conversations; the last of an epoch may be smaller."""
        return self.epochs * -(-rows // self.rows)


def supervised_optimizer(settings: SupervisedSettings, steps: int) -> optax.GradientTransformation:
    """Clipping at norm 1, a warm-up of a tenth of the steps and a cosine after it."""
    low, high = 0.1 * settings.learning_rate, settings.learning_rate
    rate = optax.warmup_cosine_decay_schedule(low, high, max(1, steps // 10), max(2, steps), low)
    if settings.optimizer == 'muon':
        return muon(rate, settings.weight_decay)
    step = optax.adamw(rate, b2=0.98, weight_decay=settings.weight_decay)
    return optax.chain(optax.clip_by_global_norm(1.0), step)


MATRICES = {  # which axes of a leaf go in and which come out; all other leaves are no matrices
    'query': ((0,), (1, 2)),
    'key': ((0,), (1, 2)),
    'value': ((0,), (1, 2)),
    'output': ((0, 1), (2,)),
    'gate': ((0,), (1,)),
    'up': ((0,), (1,)),
    'down': ((0,), (1,)),
}


def muon(rate: Callable, weight_decay: float) -> optax.GradientTransformation:
    """Orthogonalised steps for the matrices of the layers (kellerjordan.github.io/posts/muon),
    Adam at a fifth of the rate for embedding, head and norms."""

    def dimensions(params):
        def of(path, _):
            axes = MATRICES.get(path[-1].key)
            return axes and optax.contrib.MuonDimensionNumbers(*axes)

        return jax.tree_util.tree_map_with_path(of, params)

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            rate,
            adam_learning_rate=lambda step: 0.2 * rate(step),
            muon_weight_dimension_numbers=dimensions,
            weight_decay=weight_decay,
        ),
    )


def supervised_batch(rows: Trajectory) -> Batch:
    """Rows whose `sampled` tokens are learned by cross-entropy."""
    nothing = jnp.zeros(rows.tokens.shape, jnp.float32)
    return Batch(
        tokens=rows.tokens,
        length=rows.length,
        sampled=rows.sampled,
        behaviour_logprob=nothing,
        reference_logprob=nothing,
        advantage=nothing,
        kind=jnp.full(rows.length.shape, SUPERVISED, jnp.int32),
    )


def orders(settings: SupervisedSettings, count: int, root: jax.Array) -> Iterator[np.ndarray]:
    """Which conversations each step learns: every one once an epoch, in an order of that epoch."""
    for epoch in range(settings.epochs):
        key = keys.stream(root, 'supervised', epoch)
        order = np.asarray(jax.random.permutation(key, count))
        for start in range(0, count, settings.rows):
            yield order[start : start + settings.rows]


def learn(
    learner: Learner,
    update: Update,
    rows: Trajectory,
    lengths: np.ndarray,
    settings: SupervisedSettings,
    root: jax.Array,
    tell: Callable[[dict], None] = lambda metrics: None,
) -> Learner:
    """Learn all rows; `tell` gets the metrics of each step."""
    batch = supervised_batch(rows)
    for chosen in orders(settings, len(lengths), root):
        wanted = np.zeros_like(lengths)
        wanted[chosen] = lengths[chosen]
        learner, metrics = update.update(learner, batch, wanted)
        tell(metrics)
    return learner
