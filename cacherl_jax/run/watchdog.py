"""What a run does when it degenerates.  Metrics and a memory in, a decision out; pure but evidence.

Warn: a line.  Pause: evidence is saved and the run ends, to go on when the same command is given.
Roll back: that, and the run goes on from its last good checkpoint with a stronger KL.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cacherl_jax.run.degeneration import (
    Degeneration,
    DegenerationSettings,
    Metrics,
    degenerations,
)
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.results import plain

Action = Literal['off', 'warn', 'pause', 'roll_back']
STRENGTH = Action.__args__


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionSettings:
    """What each alarm does: nothing, a line, a pause with evidence, or a roll-back as well."""

    not_finite: Action = 'roll_back'
    kl_explosion: Action = 'roll_back'
    success_collapse: Action = 'roll_back'
    entropy_collapse: Action = 'roll_back'
    entropy_explosion: Action = 'roll_back'
    length_collapse: Action = 'roll_back'
    repetition: Action = 'pause'
    invalid_calls: Action = 'roll_back'
    broken_tool: Action = 'pause'
    zero_variance: Action = 'pause'
    gaming: Action = 'warn'
    cut_by_length: Action = 'warn'
    micro_without_success: Action = 'warn'
    paid_for_missing_the_cache: Action = 'warn'

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) not in STRENGTH:
                raise ValueError(
                    f'{field.name} must be one of {STRENGTH}, got {getattr(self, field.name)!r}'
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchdogSettings:
    """What counts as a degeneration, and what follows."""

    signs: DegenerationSettings = DegenerationSettings()
    actions: ActionSettings = ActionSettings()
    quiet_steps: int = 20  # steps before the same alarm warns again
    kl_factor: float = 3.0  # by which each roll-back makes the KL weight stronger
    least_kl_weight: float = 0.01  # what a smaller weight counts as, at the first roll-back
    most_rollbacks: int = 2  # after so many a run pauses instead

    def __post_init__(self):
        if self.quiet_steps < 1 or self.most_rollbacks < 0:
            raise ValueError(
                'quiet_steps must be at least 1 and most_rollbacks at least 0, '
                f'got {self.quiet_steps} and {self.most_rollbacks}'
            )
        if not (1 < self.kl_factor < math.inf and 0 < self.least_kl_weight < math.inf):
            raise ValueError(
                'kl_factor must be above 1 and least_kl_weight above 0, '
                f'got {self.kl_factor} and {self.least_kl_weight}'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """What the watchdog remembers from step to step."""

    said: Mapping[str, int] = dataclasses.field(default_factory=dict)  # step of the last warning
    rollbacks: int = 0

    def state(self) -> dict[str, Any]:
        """As JSON holds it; `Watch(**state)` is the same again."""
        return {'said': dict(self.said), 'rollbacks': self.rollbacks}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """The strongest action among the alarms that sound now."""

    action: Action
    alarms: tuple[Degeneration, ...] = ()

    @property
    def text(self) -> str:
        """For a person: what was seen and where to look, one line each."""
        return '\n'.join(f'{a.name}: {a.message}; look at {a.look_at}' for a in self.alarms)


def watch_step(
    watch: Watch, step: int, history: Sequence[Metrics], settings: WatchdogSettings
) -> tuple[Watch, Decision]:
    """What to do after `step`, whose metrics are the last of the history.

    A warning is repeated only after `quiet_steps`; stronger actions are never held back.  A
    roll-back beyond the last that is allowed is a pause: the cause is not chance.
    """
    sounding = []
    for alarm in degenerations(history, settings.signs):
        action = getattr(settings.actions, alarm.name)
        quiet = step - watch.said.get(alarm.name, -settings.quiet_steps) < settings.quiet_steps
        if action in ('pause', 'roll_back') or (action == 'warn' and not quiet):
            sounding.append((STRENGTH.index(action), alarm))
    if not sounding:
        return watch, Decision(action='off')
    action = STRENGTH[max(strength for strength, _ in sounding)]
    rollbacks = watch.rollbacks
    if action == 'roll_back':
        action = 'roll_back' if rollbacks < settings.most_rollbacks else 'pause'
        rollbacks += action == 'roll_back'
    said = dict(watch.said) | {alarm.name: step for _, alarm in sounding}
    found = tuple(alarm for _, alarm in sounding)
    return Watch(said=said, rollbacks=rollbacks), Decision(action=action, alarms=found)


def stronger_kl(weight: float, rollbacks: int, settings: WatchdogSettings) -> float:
    """max(weight, least) · factor^rollbacks, and the weight as it is before the first one."""
    if not rollbacks:
        return weight
    return max(weight, settings.least_kl_weight) * settings.kl_factor**rollbacks


def save_evidence(
    folder: pathlib.Path,
    step: int,
    decision: Decision,
    history: Sequence[Metrics],
    settings: WatchdogSettings,
    episodes: Sequence[Mapping[str, Any]] = (),
) -> pathlib.Path:
    """`watchdog/step-NNNNNNNN.json` in the run's folder: alarms, metrics, settings, episodes."""
    finite = [
        {name: x if x is not None and math.isfinite(x) else None for name, x in record.items()}
        for record in history
    ]
    told = {
        'step': step,
        'action': decision.action,
        'alarms': [dataclasses.asdict(alarm) for alarm in decision.alarms],
        'settings': plain(settings),
        'history': finite,
        'episodes': list(episodes),
    }
    path = folder / 'watchdog' / f'step-{step:08d}.json'
    write_atomically(path, json.dumps(told, indent=1, allow_nan=False) + '\n')
    return path
