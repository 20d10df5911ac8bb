"""Train a small classifier that sees in a turn's text whether a sub-goal was reached there.

    python -m experiments.train_detector --suite research --subgoal 'figure extracted' --out found
    python -m experiments.train_detector --data turns.jsonl --out found --json found.json

A suite's examples are the turns of its experts, labelled by the suite's own predicate: learned on
training tasks, measured on entities that no training task has.  A file's are its lines
{"text": ..., "label": true or false, "held_out": true or false}.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Sequence

import numpy as np
import tyro

from cacherl_jax import keys
from cacherl_jax.compose.agent import demonstrations
from cacherl_jax.rewards.classifier import Classifier, ClassifierSettings, fit, save_classifier
from cacherl_jax.rewards.detectors import turn_text
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table
from cacherl_jax.tasks.suite import LEVELS
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions

NAMES = {suite.name: suite for suite in SUITES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectorSettings:
    """What is learned, from what, and where it goes."""

    out: pathlib.Path  # folder of the classifier
    data: pathlib.Path | None = None  # JSON Lines of labelled texts
    suite: str = ''  # or a shipped suite,
    subgoal: str = ''  # and one of its sub-goals
    tasks: int = 64  # of each level, to learn from; as many are held out
    threshold: float = 0.5  # probability that is a yes
    learning: ClassifierSettings = ClassifierSettings()
    seed: int = 0
    json: pathlib.Path | None = None  # where the numbers go

    def __post_init__(self):
        if (self.data is None) == (not self.suite):
            raise ValueError('give either data or a suite with a subgoal')
        if self.suite and self.suite not in NAMES:
            raise ValueError(f'suite must be one of {sorted(NAMES)}, got {self.suite!r}')
        if self.tasks < 1:
            raise ValueError(f'tasks must be at least 1, got {self.tasks}')


@dataclasses.dataclass(frozen=True)
class Example:
    """A labelled text."""

    text: str
    label: bool
    held_out: bool


def expert_turns(suite: str, subgoal: str, split: str, count: int) -> list[Example]:
    """The text of every turn that experts played; yes where the sub-goal was first reached."""
    tasks = [NAMES[suite].task(split, level, n) for level in LEVELS for n in range(count)]
    names = sorted({goal.name for task in tasks for goal in task.subgoals})
    if subgoal not in names:
        raise Refusal(f'{suite} has no sub-goal {subgoal!r}', allowed=', '.join(names))
    found = []
    for episode in demonstrations(tasks, live_sessions()):
        goals, turns = {goal.name: goal for goal in episode.task.subgoals}, episode.turns
        if subgoal not in goals:
            continue
        reached = [bool(goals[subgoal].reached(turns[:end])) for end in range(len(turns) + 1)]
        for end, turn in enumerate(turns, 1):
            now = reached[end] and not reached[end - 1]
            found.append(Example(turn_text(turn), now, split != 'train'))
    return found


def read_examples(path: pathlib.Path) -> list[Example]:
    """The lines of a file; a line that is no example is refused with its number."""
    found = []
    with path.open(encoding='utf-8') as file:
        for number, line in enumerate(file, 1):
            try:
                fields = json.loads(line)
                example = Example(fields['text'], fields['label'], fields['held_out'])
            except (ValueError, KeyError, TypeError) as error:
                raise Refusal(f'{path}, line {number}: {error!r}') from error
            kinds = (type(example.text), type(example.label), type(example.held_out))
            if kinds != (str, bool, bool):
                raise Refusal(f'{path}, line {number}: text, true or false, true or false, please')
            found.append(example)
    return found


def measured(classifier: Classifier, examples: Sequence[Example]) -> dict[str, float | None]:
    """Accuracy, precision and recall; None where nothing was to be found."""
    yes = classifier.probability([one.text for one in examples]) >= classifier.threshold
    counts = collections.Counter(zip([one.label for one in examples], yes.tolist(), strict=True))
    hit, missed, wrong = counts[True, True], counts[True, False], counts[False, True]
    return {
        'texts': len(examples),
        'yes': hit + missed,
        'accuracy': (hit + counts[False, False]) / len(examples) if examples else None,
        'precision': hit / (hit + wrong) if hit + wrong else None,
        'recall': hit / (hit + missed) if hit + missed else None,
    }


def train(settings: DetectorSettings) -> dict[str, dict[str, float | None]]:
    """Learns, measures and saves; numbers by part of the examples out."""
    if settings.data is not None:
        examples = read_examples(settings.data)
    else:
        parts = [
            expert_turns(settings.suite, settings.subgoal, split, settings.tasks)
            for split in ('train', 'test')
        ]
        examples = [one for part in parts for one in part]
    learned = [one for one in examples if not one.held_out]
    texts, labels = [one.text for one in learned], [one.label for one in learned]
    params = fetch(fit(texts, labels, settings.learning, keys.root(settings.seed)))
    classifier = Classifier(
        weight=np.asarray(params['weight']),
        bias=float(params['bias']),
        features=settings.learning.features,
        threshold=settings.threshold,
    )
    held_out = [one for one in examples if one.held_out]
    found = {'learned': measured(classifier, learned), 'held out': measured(classifier, held_out)}
    save_classifier(settings.out, classifier, measured=found)
    return found


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(DetectorSettings, description=__doc__)
        found = train(settings)
    columns = ['examples', *next(iter(found.values()))]
    print_table(
        str(settings.out), columns, [[name, *part.values()] for name, part in found.items()]
    )
    if settings.json:
        told = {'settings': plain(settings), 'measured': found, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


if __name__ == '__main__':
    main()
