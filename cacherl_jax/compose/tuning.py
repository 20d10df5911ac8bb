"""What a stage trains: all parameters, or an adapter beside parameters that rest; and a critic."""

import dataclasses
import functools
from typing import Any

import jax
from jax.tree_util import Partial

from cacherl_jax import keys
from cacherl_jax.policy.logprob import init_critic
from cacherl_jax.policy.lora import LoraSettings, adapted, init_adapter, merge
from cacherl_jax.policy.shape import Params, Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """Parameters to begin from, and how they are trained; `learned` is what an update changes.

    With a critic that is {'policy': what is learned without one, 'value': the critic}.
    """

    settings: LoraSettings
    params: Params
    critic: Shape | None = None  # of the policy that a critic reads; None: there is no critic

    def init(self, root: jax.Array) -> Any:
        """What is trained, before its first update."""
        learned = self.params
        if self.settings.rank:
            learned = init_adapter(self.params, self.settings, keys.stream(root, 'adapter'))
        if self.critic is None:
            return learned
        return {'policy': learned, 'value': init_critic(self.critic)}

    def policy(self, learned: Any) -> Params:
        """What a forward pass takes; nothing is copied."""
        learned = self._of_policy(learned)
        return adapted(self.params, learned, self.settings) if self.settings.rank else learned

    def merged(self, learned: Any) -> Params:
        """Plain parameters, to be saved or to begin the next stage from."""
        learned = self._of_policy(learned)
        return merge(self.params, learned, self.settings) if self.settings.rank else learned

    def score(self, score: Partial) -> Partial:
        """score(learned, ...) from score(parameters, ...); the resting ones are its argument."""
        scored = score
        if self.settings.rank:
            scored = Partial(_with_adapter(score.func, self.settings), self.params)
        if self.critic is None:
            return scored
        return Partial(_with_critic(scored.func), *scored.args)

    def _of_policy(self, learned: Any) -> Any:
        return learned if self.critic is None else learned['policy']


@functools.cache
def _with_adapter(score, settings: LoraSettings):
    """The same function for the same score and settings, so that it compiles once."""

    def scored(params, learned, *row, **named):
        return score(adapted(params, learned, settings), *row, **named)

    return scored


@functools.cache
def _with_critic(score):
    """The same function for the same score; it gives a value beside log-probability and entropy."""

    def scored(*told, **packed):
        *resting, learned, tokens, length, sampled = told
        row = (tokens, length, sampled)
        return score(*resting, learned['policy'], *row, critic=learned['value'], **packed)

    return scored
