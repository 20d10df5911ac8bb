"""Two signs that the policy is paid for the wrong thing.  A history of metrics in, alarms out.

A history is the `reward_metrics` of consecutive steps as floats, oldest first.  Steps in which
nothing was judged say nothing about success and are passed over.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

Metrics = Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """When a change is a rise.  A rise compares the later half of a window with the earlier one."""

    window: int = 20  # latest steps looked at; trends need that many
    micro_rise: float = 0.03  # unweighted micro reward an episode
    success_rise: float = 0.01  # answer score; up to this it counts as standing still
    best_effort_rise: float = 0.05  # share of results from best effort or a miss
    total_rise: float = 0.02  # total reward an episode
    premium: float = 0.1  # pay beyond the answer for missing the cache, within steps

    def __post_init__(self):
        if self.window < 2:
            raise ValueError(f'window must be at least 2, got {self.window}')
        for name in ('micro_rise', 'success_rise', 'best_effort_rise', 'total_rise', 'premium'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f'{name} must be finite and at least 0, got {value}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
    """What was seen, in numbers a person can check."""

    name: str  # micro_without_success or paid_for_missing_the_cache
    message: str


def alarms(history: Sequence[Metrics], settings: AlarmSettings) -> tuple[Alarm, ...]:
    """The alarms that sound after the last step of the history."""
    told = [record for record in history if record['rewards/judged'] > 0]
    recent = told[-settings.window :]
    trend = recent if len(recent) == settings.window else []
    found = _micro_without_success(trend, settings), _off_the_cache(trend, settings)
    return tuple(alarm for alarm in found if alarm is not None)


def _micro_without_success(trend: Sequence[Metrics], settings: AlarmSettings) -> Alarm | None:
    micro, success = rise(trend, 'rewards/micro'), rise(trend, 'rewards/answer')
    if micro <= settings.micro_rise or success > settings.success_rise:
        return None
    message = f'micro reward rose by {micro:.3f} while the answer score changed by {success:+.3f}'
    return Alarm(name='micro_without_success', message=message)


def _off_the_cache(trend: Sequence[Metrics], settings: AlarmSettings) -> Alarm | None:
    """More and more is answered off the cache, and that is paid: in all, or within one step.

    What settings pay for a miss is no sign by itself; a policy that goes after it is.
    """
    share = rise(trend, 'tool_cache/tier_best_effort', 'tool_cache/tier_miss')
    if share <= settings.best_effort_rise:
        return None
    late = trend[-(len(trend) // 2) :]
    paid = sum(record['rewards/best_effort_premium'] for record in late) / len(late)
    total = rise(trend, 'rewards/total')
    if total > settings.total_rise:
        what = f'the reward with them by {total:.3f}'
    elif paid > settings.premium:
        what = f'episodes with one are paid {paid:.3f} more beyond their answers'
    else:
        return None
    message = f'answers off the cache rose by {share:.3f} and {what}'
    return Alarm(name='paid_for_missing_the_cache', message=message)


def rise(trend: Sequence[Metrics], *names: str) -> float:
    """Mean of the later half minus mean of the earlier half of the sum of metrics; 0 of nothing."""
    values = [sum(record[name] for name in names) for record in trend]
    half = len(values) // 2
    if not half:
        return 0.0
    return sum(values[-half:]) / half - sum(values[:half]) / half
