"""An ablation: rows that differ from a shared baseline in a field or few.  Settings in and out."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cacherl_jax.config import RunConfig
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.run.watchdog import ActionSettings

Differences = Mapping[str, Any]  # {'update.loss.kl_weight': 0.0}

# A run that degenerates is a result: it is warned of and measured to its end, not rolled back with
# a KL weight that its row does not have.
WATCHED = {
    f'watchdog.actions.{field.name}': 'pause' if field.name == 'not_finite' else 'warn'
    for field in dataclasses.fields(ActionSettings)
}


def short(steps: int) -> dict[str, Any]:
    """Sizes under which a run takes a minute or two on two cores; schedules end with the run."""
    return {
        'steps': steps,
        'decay_steps': steps,
        'groups': 6,
        'rollout.samples': 6,
        'supervised.demonstrations': 32,
        'supervised.general': 16,
        'collection.samples': 0,
        'curriculum.levels': (1, 2),
        'curriculum.tasks': 16,
        'evaluation.unseen': 6,
        'evaluation.seen': 1,
        'weights.micro.steps': steps,
        'weights.macro.steps': steps,
        'mix.share.steps': steps,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ablation:
    """What is asked, and the runs that answer it."""

    question: str
    baseline: str  # name of the row that all others are compared with
    rows: Mapping[str, Differences]  # from the shared settings, by name
    shared: Differences = dataclasses.field(default_factory=dict)  # of all rows, from the preset
    short: Differences = dataclasses.field(default_factory=dict)  # sizes where no preset is named
    target: float | None = None  # success whose price, in episodes and live calls, is told

    def __post_init__(self):
        if self.baseline not in self.rows:
            raise ValueError(f'the baseline {self.baseline!r} is none of {list(self.rows)}')

    def start(self, preset: RunConfig, small: bool) -> RunConfig:
        """The shared settings; `small` where nobody named a preset with sizes of its own."""
        sized = with_fields(preset, self.short) if small else preset
        return with_fields(sized, WATCHED | self.shared)

    def configs(self, shared: RunConfig, names: tuple[str, ...] = ()) -> dict[str, RunConfig]:
        """The settings of every row, or of the baseline and those named.

        Raises Refusal for a name that is no row, a field that does not exist, settings that do not
        go together, and a row that is the same as another.
        """
        unknown = set(names) - self.rows.keys()
        if unknown:
            raise Refusal(f'no row {sorted(unknown)}', allowed=', '.join(self.rows))
        found: dict[str, RunConfig] = {}
        for name in self.rows:
            if names and name not in (*names, self.baseline):
                continue
            config = self._row(name, shared)
            twin = next((other for other, known in found.items() if known == config), None)
            if twin:
                raise Refusal(
                    f'with these settings the rows {twin!r} and {name!r} are the same run',
                    remedy='leave one out with --rows, or do not override what a row changes: '
                    + ', '.join(self.rows[name] or self.rows[twin]),
                )
            found[name] = config
        return found

    def _row(self, name: str, shared: RunConfig) -> RunConfig:
        try:
            return with_fields(shared, self.rows[name])
        except Refusal as refusal:
            remedy = f'leave it out: --rows {" ".join(repr(n) for n in self.rows if n != name)}'
            raise Refusal(f'row {name!r}: {refusal}', remedy=remedy) from None


def with_fields(settings: Any, differences: Differences, within: str = '') -> Any:
    """The settings with fields set by their dotted names, all of them at once.

    Raises Refusal for a name that is no field and for values that do not go together.
    """
    parts: dict[str, dict[str, Any]] = {}
    for name, value in differences.items():
        first, _, rest = name.partition('.')
        parts.setdefault(first, {})[rest] = value
    known = [field.name for field in dataclasses.fields(settings)]
    values = {}
    for name, inner in parts.items():
        if name not in known:
            raise Refusal(f'there is no setting {within}{name}', allowed=', '.join(known))
        if '' in inner:
            values[name] = inner['']
        elif dataclasses.is_dataclass(getattr(settings, name)):
            values[name] = with_fields(getattr(settings, name), inner, f'{within}{name}.')
        else:
            raise Refusal(f'{within}{name} has no setting {next(iter(inner))}')
    try:
        return dataclasses.replace(settings, **values)
    except ValueError as error:
        raise Refusal(str(error)) from error
