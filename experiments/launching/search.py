"""Values that Optuna chooses, trial after trial.  Ranges in, settings out; what they gave, back in.

Every trial that was asked for is written down, so that a search which was killed goes on with the
same trials; what the next one is depends on the seed, its number and the scores told so far.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence

from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal

INSTALL = 'pip install optuna==5.0.0'
DRAWN = 10  # the first trials are drawn without a look at scores
DIGITS = 4  # of a value, as the runs are told it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Range:
    """Where the values of one setting lie."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self):
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise ValueError(f'{self.name}: LOW must be below HIGH, got {self.low} and {self.high}')
        if self.log and self.low <= 0:
            raise ValueError(f'{self.name}: a log range must begin above 0, got {self.low}')
        if self.whole and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f'{self.name}: an int range ends with whole numbers, got {self}')


def read_range(words: Sequence[str]) -> Range:
    """NAME LOW HIGH, then `log`, `int` or both.  ValueError for anything else."""
    try:
        name, low, high, *kinds = words
        ends = float(low), float(high)
    except ValueError:
        raise ValueError(f'search needs NAME LOW HIGH, got {" ".join(words)!r}') from None
    if set(kinds) - {'log', 'int'}:
        raise ValueError(f'search of {name}: after LOW HIGH comes log or int, got {kinds}')
    return Range(name=name, low=ends[0], high=ends[1], log='log' in kinds, whole='int' in kinds)


class Search:
    """Asks Optuna's TPE, and remembers in a file."""

    def __init__(self, ranges: Sequence[Range], seed: int, file: pathlib.Path):
        try:
            import optuna
        except ModuleNotFoundError:
            raise Refusal(f'a search needs Optuna; get it with: {INSTALL}') from None
        self._optuna, self._file, self._seed = optuna, file, seed
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction='maximize')
        self._kinds = {each.name: self._distribution(each) for each in ranges}
        asked = {'ranges': [dataclasses.asdict(each) for each in ranges], 'seed': seed}
        self._told, self._known = asked, self._read(asked)

    def _distribution(self, each: Range):
        kinds = self._optuna.distributions
        if each.whole:
            return kinds.IntDistribution(int(each.low), int(each.high), log=each.log)
        return kinds.FloatDistribution(each.low, each.high, log=each.log)

    def _read(self, asked: Mapping) -> list[dict[str, float]]:
        if not self._file.exists():
            return []
        known = json.loads(self._file.read_text(encoding='utf-8'))
        trials = known.pop('trials')
        if known != asked:
            raise Refusal(
                f'{self._file} is of another search: {known}',
                remedy='give the ranges and the seed of that one, or another --out',
            )
        return trials

    def ask(self) -> dict[str, str]:
        """The settings of the next trial, by name."""
        number = len(self._study.trials)
        if number < len(self._known):
            self._study.enqueue_trial(self._known[number])
        # A sampler of each trial's own: what it draws does not depend on where the search was cut.
        self._study.sampler = self._optuna.samplers.TPESampler(
            seed=1000 * self._seed + number, n_startup_trials=DRAWN
        )
        chosen = self._study.ask(self._kinds).params
        if number == len(self._known):
            self._known.append(chosen)
        return {name: f'{value:.{DIGITS}g}' if isinstance(value, float) else str(value)
                for name, value in chosen.items()}  # fmt: skip

    def write(self) -> None:
        """Write down what has been asked for."""
        told = self._told | {'trials': self._known}
        write_atomically(self._file, json.dumps(told, indent=1) + '\n')

    def tell(self, number: int, score: float | None) -> None:
        """What a trial came to; None where it came to nothing."""
        failed = self._optuna.trial.TrialState.FAIL
        self._study.tell(number, score, state=failed if score is None else None)
