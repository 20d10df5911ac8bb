"""Signs that a policy degenerates.  A history of metrics in, what was seen out; no action; pure.

A history is the metrics of consecutive steps as floats, oldest first; None or NaN stands for a
number that was not finite.  `recent` steps are compared with the first ones (or the best ones), so
that a weak start is no degeneration and a single bad step is none either.  A metric that a run does
not have silences the checks that need it.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from cacherl_jax.rewards.alarms import AlarmSettings, alarms

Metrics = Mapping[str, float | None]
SUCCESS, ENTROPY, TOKENS = 'rewards/solved', 'policy/entropy', 'policy/tokens'
FINITE = ('loss/total', 'update/gradient_norm', 'rewards/total', 'policy/entropy')
REPEATED, MISUSED = ('failure/repeated', 'failure/near'), ('failure/misused',)
FAILED, SPOILED = ('failure/failed',), ('failure/tool_infrastructure',)
DOOR = tuple(f'rollout_cache/{said}/' for said in ('admitted', 'refused', 'quarantined'))
# What the alarms about rewards read.
PAID = ('rewards/judged', 'rewards/micro', 'rewards/answer', 'rewards/total')
PAID += ('rewards/best_effort_premium', 'tool_cache/tier_best_effort', 'tool_cache/tier_miss')
CUT = ('failure/max_turns', 'failure/max_tokens', 'failure/context_full')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DegenerationSettings:
    """When a change is a degeneration."""

    recent: int = 5  # latest steps whose mean counts; as many first ones are the measure
    repetition: float = 0.3  # share of calls that were made before
    invalid: float = 0.5  # share of calls to no tool or with arguments that do not fit
    failed: float = 0.5  # share of calls whose tool failed
    spoiled: float = 0.3  # share of episodes spoiled by infrastructure
    rise: float = 0.15  # least rise of each share since the first steps
    cut: float = 0.5  # share of episodes that end by a limit
    gaming: float = 0.3  # share of episodes that the cache's door refused by a flag
    kl: float = 0.5  # nats a token from the reference
    success_drop: float = 0.2  # below the best steps, and at least half of what they had
    success_rise: float = 0.02  # up to this, success stands still
    enough_success: float = 0.95  # above, a policy may be sure of itself and groups may agree
    entropy_fraction: float = 0.1  # of the first steps' entropy: a collapse
    entropy_multiple: float = 5.0  # of the first steps' entropy, and at least `entropy_nats`
    entropy_nats: float = 0.5
    length_fraction: float = 0.3  # of the first steps' sampled tokens: a collapse
    rewards: AlarmSettings = AlarmSettings()

    def __post_init__(self):
        if self.recent < 1:
            raise ValueError(f'recent must be at least 1, got {self.recent}')
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
                raise ValueError(f'{field.name} must be finite and at least 0, got {value}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Degeneration:
    """What was seen, in numbers a person can check, and where to look."""

    name: str  # of the check, or of an alarm about rewards
    message: str
    look_at: str


def degenerations(
    history: Sequence[Metrics], settings: DegenerationSettings
) -> tuple[Degeneration, ...]:
    """The alarms that sound after the last step of the history."""
    found = []
    for name, (check, look_at) in CHECKS.items():
        message = check(history, settings) if history else None
        if message:
            found.append(Degeneration(name=name, message=message, look_at=look_at))
    told = [record for record in history if _known(record, PAID)]
    for alarm in alarms(told, settings.rewards):
        look_at = 'rewards/* by term, and the episodes that are paid most'
        found.append(Degeneration(name=alarm.name, message=alarm.message, look_at=look_at))
    return tuple(found)


# ---- series of metrics


def _series(history: Sequence[Metrics], names: Sequence[str]) -> list[float]:
    """The sum of the metrics in each step that has all of them as finite numbers."""
    known = [record for record in history if _known(record, names)]
    return [sum(record[name] for name in names) for record in known]


def _means(values: Sequence[float], recent: int) -> tuple[float, float] | None:
    """Mean of the first and of the latest steps; None while they overlap."""
    if len(values) < 2 * recent:
        return None
    return sum(values[:recent]) / recent, sum(values[-recent:]) / recent


def _known(record: Metrics, names: Sequence[str]) -> bool:
    """Whether the step has all of the metrics, as finite numbers."""
    values = [record.get(name) for name in names]
    return all(value is not None and math.isfinite(value) for value in values)


def _improved(history: Sequence[Metrics], settings: DegenerationSettings) -> bool:
    """Success has risen, or is high enough that a policy may be sure of itself."""
    means = _means(_series(history, (SUCCESS,)), settings.recent)
    if means is None:
        return False
    first, latest = means
    return latest - first > settings.success_rise or latest >= settings.enough_success


# ---- checks: a message, or None


def _not_finite(history, settings):
    latest = history[-1]
    broken = [name for name in FINITE if name in latest and not _known(latest, (name,))]
    broken += ['update/refused'] if latest.get('update/refused') else []
    return f'{", ".join(broken)} broke in the last step' if broken else None


def _share(names: Sequence[str], bound: str, what: str) -> Callable:
    """A share of bad things that has risen above its bound."""

    def check(history, settings):
        means = _means(_series(history, names), settings.recent)
        if means is None:
            return None
        first, latest = means
        if latest < getattr(settings, bound) or latest - first < settings.rise:
            return None
        return f'{what}: {latest:.0%}, up from {first:.0%} at first'

    return check


def _broken_tool(history, settings):
    return _failed(history, settings) or _spoiled(history, settings)


_failed = _share(FAILED, 'failed', 'calls whose tool failed')
_spoiled = _share(SPOILED, 'spoiled', 'episodes spoiled by infrastructure')


def _cut_by_length(history, settings):
    latest = _series(history[-settings.recent :], CUT)
    share = sum(latest) / max(len(latest), 1)
    if len(latest) < settings.recent or share <= settings.cut:
        return None
    return f'{share:.0%} of the episodes ended by a limit of turns or tokens'


def _kl_explosion(history, settings):
    latest = _series(history[-settings.recent :], ('policy/kl',))
    kl = sum(latest) / max(len(latest), 1)
    if len(latest) < settings.recent or kl <= settings.kl:
        return None
    return f'the policy is {kl:.2f} nats a token from the reference, allowed are {settings.kl}'


def _success_collapse(history, settings):
    values, recent = _series(history, (SUCCESS,)), settings.recent
    if len(values) < 2 * recent:
        return None
    means = [sum(values[i : i + recent]) / recent for i in range(len(values) - recent + 1)]
    best, latest = max(means), means[-1]
    if best - latest < max(settings.success_drop, best / 2):
        return None
    return f'success fell to {latest:.0%} from {best:.0%} at its best'


def _entropy_collapse(history, settings):
    means = _means(_series(history, (ENTROPY,)), settings.recent)
    if means is None or _improved(history, settings):
        return None
    first, latest = means
    if latest >= settings.entropy_fraction * first:
        return None
    return f'entropy fell from {first:.3f} to {latest:.3f} nats a token and success did not rise'


def _entropy_explosion(history, settings):
    means = _means(_series(history, (ENTROPY,)), settings.recent)
    if means is None:
        return None
    first, latest = means
    if latest < max(settings.entropy_nats, settings.entropy_multiple * first):
        return None
    return f'entropy rose from {first:.3f} to {latest:.3f} nats a token'


def _length_collapse(history, settings):
    means = _means(_series(history, (TOKENS,)), settings.recent)
    if means is None or _improved(history, settings):
        return None
    first, latest = means
    if latest >= settings.length_fraction * first:
        return None
    return f'sampled tokens fell from {first:.0f} to {latest:.0f} a step and success did not rise'


def _zero_variance(history, settings):
    latest = _series(history[-settings.recent :], ('update/zero_advantage_rows',))
    success = _series(history[-settings.recent :], (SUCCESS,))
    solved = success and sum(success) / len(success) >= settings.enough_success
    if len(latest) < settings.recent or min(latest) < 1 or solved:
        return None
    return f'no row of the last {settings.recent} steps had anything to teach'


def _gaming(history, settings):
    """The door's counts run on from the beginning, so their growth is what was recent."""
    if len(history) <= settings.recent:
        return None
    now, before = history[-1], history[-settings.recent - 1]
    names = [name for name in now if name.startswith(DOOR)]
    grown = {name: (now[name] or 0) - (before.get(name) or 0) for name in names}
    share = grown.get('rollout_cache/refused/flag', 0) / max(sum(grown.values()), 1)
    if share < settings.gaming:
        return None
    return f'{share:.0%} of the latest episodes bear a mark of having gamed the reward'


CHECKS: dict[str, tuple[Callable[[Sequence[Metrics], DegenerationSettings], str | None], str]] = {
    'not_finite': (_not_finite, 'learning_rate and the rows of that step'),
    'kl_explosion': (_kl_explosion, 'learning_rate, update.loss.kl_weight and policy/kl'),
    'success_collapse': (_success_collapse, 'rewards/* against rewards/solved, and learning_rate'),
    'entropy_collapse': (_entropy_collapse, 'update.loss.entropy_weight and the spread of rewards'),
    'entropy_explosion': (_entropy_explosion, 'learning_rate and update.loss.kl_weight'),
    'length_collapse': (_length_collapse, 'what the shortest episodes are paid'),
    'repetition': (
        _share(REPEATED, 'repetition', 'calls that were made before'),
        'hybrid.micro.executed against hybrid.penalty.repeated, and what the rollout cache holds',
    ),
    'invalid_calls': (
        _share(MISUSED, 'invalid', 'calls to no tool or with arguments that do not fit'),
        'hybrid.micro.misused and the calls in the latest episodes',
    ),
    'broken_tool': (_broken_tool, 'failure/* by kind, and the tools themselves'),
    'zero_variance': (_zero_variance, 'the level of the tasks, and sampling.temperature'),
    'gaming': (_gaming, 'the refusals of the rollout cache by reason'),
    'cut_by_length': (_cut_by_length, 'decode.turn_tokens, decode.episode_tokens, max_turns'),
}
