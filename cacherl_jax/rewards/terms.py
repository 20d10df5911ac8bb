"""What facts are worth, one term a function.  Facts in, rewards by turn or scores by row out; pure.

Sums are capped by what they add up to so far, so that the turns of a capped episode still add up to
its capped sum: a turn beyond the cap is paid nothing.
"""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp

from cacherl_jax.rewards.facts import PROCESS_PARTS, Facts
from cacherl_jax.tools.tool import Tier


def _refuse(settings, bounds: dict[str, tuple[float, float]]) -> None:
    """Raises where a setting is no finite number within its bounds."""
    for name, (low, high) in bounds.items():
        value = getattr(settings, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f'{name} must be in [{low}, {high}], got {value}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class MicroSettings:
    """Reward of each call, and of a turn that is neither call nor answer."""

    executed: float = 0.1  # a call that succeeded, live or answered faithfully
    guessed: float = 0.0  # answered OK by best effort or on a miss
    failed: float = -0.1  # tool error, timeout, unavailable, over budget
    misused: float = -0.2  # unknown tool, bad arguments, parse error
    silent: float = -0.3  # a turn without call and answer
    answer: float = 0.0  # a final answer; its worth is the final term's
    floor: float = -1.0  # least sum of an episode
    cap: float = 0.5  # largest sum of an episode: more calls are not more reward

    def __post_init__(self):
        _refuse(self, dict.fromkeys(('executed', 'guessed', 'answer'), (-1, 1)))
        _refuse(self, dict.fromkeys(('failed', 'misused', 'silent', 'floor'), (-10, 0)))
        _refuse(self, {'cap': (0, 10)})
        if self.guessed > self.executed:
            raise ValueError(
                'a guess may not pay more than success: '
                f'guessed {self.guessed}, executed {self.executed}'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MacroSettings:
    """Reward of sub-goals."""

    all_reached: float = 1.0  # paid for all sub-goals of a task together, in equal shares
    cap: float = 1.0  # largest sum of an episode

    def __post_init__(self):
        _refuse(self, {'all_reached': (0, 10), 'cap': (0, 10)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PenaltySettings:
    """What each call loses that only looks busy; a call may be several of these."""

    repeated: float = -0.1  # identical to an earlier call
    near: float = -0.05  # differs from an earlier call in spelling only
    late: float = -0.05  # after the last sub-goal was reached
    irrelevant: float = -0.05  # to a tool that serves no sub-goal
    floor: float = -0.5  # least sum of an episode

    def __post_init__(self):
        names = ('repeated', 'near', 'late', 'irrelevant', 'floor')
        _refuse(self, dict.fromkeys(names, (-10, 0)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """Shares of the process score; only their proportions matter."""

    format: float = 1.0  # turns that are well-formed
    validity: float = 1.0  # calls that fit their tool
    order: float = 1.0  # declared precedences of sub-goals that were kept
    no_leak: float = 1.0  # no thinking in what the user reads

    def __post_init__(self):
        _refuse(self, dict.fromkeys(PROCESS_PARTS, (0, 100)))
        if not self.format + self.no_leak:
            raise ValueError(
                'format and no_leak may not both be 0: '
                'a task without calls and sub-goals would have no process score'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """Weight of the answer against the process, by worst tier (arxiv.org/abs/2606.14179)."""

    exact: float = 0.6  # live and exact answers
    fuzzy: float = 0.3
    best_effort: float = 0.1  # best effort and misses

    def __post_init__(self):
        _refuse(self, dict.fromkeys(('exact', 'fuzzy', 'best_effort'), (0, 1)))
        if not self.exact >= self.fuzzy >= self.best_effort:
            raise ValueError(
                'trust may not rise from exact over fuzzy to best_effort, '
                f'got {self.exact}, {self.fuzzy}, {self.best_effort}'
            )


def capped(turn: jax.Array, floor: float, cap: float) -> jax.Array:
    """y_t = clip(Σ_{s≤t} x_s) − clip(Σ_{s<t} x_s), so that Σ y = clip(Σ x).  [row, turn]."""
    chex.assert_rank(turn, 2)
    total = jnp.clip(jnp.cumsum(turn, axis=1), floor, cap)
    return jnp.diff(total, axis=1, prepend=0.0)


def micro(facts: Facts, settings: MicroSettings) -> jax.Array:
    """m_t = Σ_outcome n_t[outcome] · settings[outcome], capped.  f32 [row, turn]."""
    chex.assert_rank(facts.executed, 2)
    names = {name: name for name in ('executed', 'guessed', 'failed', 'misused', 'silent')}
    names['answer'] = 'answers'
    chex.assert_equal_shape([getattr(facts, count) for count in names.values()])
    paid = sum(
        getattr(settings, name) * getattr(facts, count).astype(jnp.float32)
        for name, count in names.items()
    )
    return capped(paid, settings.floor, settings.cap)


def macro(facts: Facts, settings: MacroSettings) -> jax.Array:
    """M_t = all_reached · |sub-goals reached in t| / |sub-goals|, capped.  f32 [row, turn]."""
    chex.assert_rank(facts.reached, 3)
    chex.assert_equal_shape_prefix([facts.reached, facts.played], 2)
    share = settings.all_reached / jnp.maximum(facts.subgoals, 1).astype(jnp.float32)
    paid = facts.reached.sum(axis=2) * share[:, None]
    return capped(paid, 0.0, settings.cap)


def penalty(facts: Facts, settings: PenaltySettings) -> jax.Array:
    """p_t = Σ_fault n_t[fault] · settings[fault], at most 0, capped below.  f32 [row, turn]."""
    faults = ('repeated', 'near', 'late', 'irrelevant')
    chex.assert_rank(facts.repeated, 2)
    chex.assert_equal_shape([getattr(facts, name) for name in faults])
    lost = sum(
        getattr(settings, name) * getattr(facts, name).astype(jnp.float32) for name in faults
    )
    return capped(lost, settings.floor, 0.0)


def process_score(facts: Facts, settings: ProcessSettings) -> jax.Array:
    """P = Σ_part s_part x_part / Σ_part s_part over the known parts.  f32 [row], in [0, 1]."""
    chex.assert_equal_shape([facts.process, facts.process_known])
    chex.assert_axis_dimension(facts.process, 1, len(PROCESS_PARTS))
    share = jnp.array([getattr(settings, part) for part in PROCESS_PARTS]) * facts.process_known
    return jnp.sum(share * facts.process, axis=1) / jnp.sum(share, axis=1)


def trust(tier: jax.Array, settings: TrustSettings) -> jax.Array:
    """a by tier: 0.6 live or exact, 0.3 fuzzy, 0.1 best effort or miss.  f32, shape of `tier`."""
    chex.assert_type(tier, int)
    by_tier = {Tier.LIVE: settings.exact, Tier.EXACT: settings.exact, Tier.FUZZY: settings.fuzzy}
    return jnp.array([by_tier.get(tier, settings.best_effort) for tier in Tier])[tier]


def tier_aware(answer: jax.Array, process: jax.Array, weight: jax.Array) -> jax.Array:
    """R = a R_answer + (1 − a) R_process  (arxiv.org/abs/2606.14179), elementwise."""
    return weight * answer + (1 - weight) * process
