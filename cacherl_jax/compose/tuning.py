"""What a stage trains: all parameters, or an adapter beside parameters that rest."""

import dataclasses
import functools
from typing import Any

import jax
from jax.tree_util import Partial

from cacherl_jax import keys
from cacherl_jax.policy.lora import LoraSettings, adapted, init_adapter, merge
from cacherl_jax.policy.shape import Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """Parameters to begin from, and how they are trained; `learned` is what an update changes."""

    settings: LoraSettings
    params: Params

    def init(self, root: jax.Array) -> Any:
        """What is trained, before its first update."""
        if not self.settings.rank:
            return self.params
        return init_adapter(self.params, self.settings, keys.stream(root, 'adapter'))

    def policy(self, learned: Any) -> Params:
        """What a forward pass takes; nothing is copied."""
        return adapted(self.params, learned, self.settings) if self.settings.rank else learned

    def merged(self, learned: Any) -> Params:
        """Plain parameters, to be saved or to begin the next stage from."""
        return merge(self.params, learned, self.settings) if self.settings.rank else learned

    def score(self, score: Partial) -> Partial:
        """score(learned, ...) from score(parameters, ...); the resting ones are its argument."""
        if not self.settings.rank:
            return score
        return Partial(_with_adapter(score.func, self.settings), self.params)


@functools.cache
def _with_adapter(score, settings: LoraSettings):
    """The same function for the same score and settings, so that it compiles once."""

    def scored(params, learned, *row, **packed):
        return score(adapted(params, learned, settings), *row, **packed)

    return scored
