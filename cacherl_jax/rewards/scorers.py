"""Judges that compare the answer with one that is known to be right.  Task ids to answers in.

Where no answer is known they abstain; an episode without an answer is 0.  `first_known` and
`mean_known` put judges together, and an abstention has no part in either.
"""

import math
from collections.abc import Callable, Mapping

from cacherl_jax.rewards.judges import Judge, exact_match, judged, numeric_match, token_f1
from cacherl_jax.tasks.task import Episode

Place = tuple[str, int, int]  # task id, step, sample


def exact_scorer(expected: Mapping[str, str]) -> Judge:
    """1 where the answer is the expected one, spelling aside."""
    return _scorer(expected, exact_match)


def f1_scorer(expected: Mapping[str, str]) -> Judge:
    """Overlap of words, 2 p r / (p + r)."""
    return _scorer(expected, token_f1)


def numeric_scorer(
    expected: Mapping[str, float], *, tolerance_fraction: float = 0.005, most_numbers: int = 4
) -> Judge:
    """1 where a number of the answer lies within the tolerance; 0 for a list of guesses."""
    if not (math.isfinite(tolerance_fraction) and 0 <= tolerance_fraction < 1):
        raise ValueError(f'tolerance_fraction must be in [0, 1), got {tolerance_fraction}')
    if most_numbers < 1:
        raise ValueError(f'most_numbers must be at least 1, got {most_numbers}')
    wrong = {name: value for name, value in expected.items() if not math.isfinite(value)}
    if wrong:
        raise ValueError(f'expected numbers must be finite, got {wrong}')
    sizes = {'tolerance_fraction': tolerance_fraction, 'most_numbers': most_numbers}
    return _scorer(expected, lambda answer, number: numeric_match(answer, number, **sizes))


def recorded_scorer(scores: Mapping[Place, float | None]) -> Judge:
    """Scores that were computed elsewhere for a whole batch; abstains where there is none."""
    return lambda episode: scores.get(place_of(episode))


def place_of(episode: Episode) -> Place:
    """What tells one attempt from all others of a run."""
    return episode.task.id, episode.step, episode.sample


def first_known(*judges: Judge) -> Judge:
    """The score of the first judge that has one; later ones are not asked."""

    def judge(episode):
        scores = (judged(one, episode) for one in judges)
        return next((score for score in scores if score is not None), None)

    return judge


def mean_known(weights: Mapping[Judge, float]) -> Judge:
    """Σ w s / Σ w over the judges that do not abstain; None where all do."""
    if not weights or min(weights.values()) <= 0 or not all(map(math.isfinite, weights.values())):
        raise ValueError(f'weights must be finite and above 0, got {list(weights.values())}')

    def judge(episode):
        pairs = [(weight, judged(one, episode)) for one, weight in weights.items()]
        known = [(weight, score) for weight, score in pairs if score is not None]
        total = sum(weight for weight, _ in known)
        # A mean of numbers in [0, 1] may round to a little more than 1.
        return min(1.0, sum(w * s for w, s in known) / total) if known else None

    return judge


def _scorer(expected: Mapping[str, object], match: Callable[[str, object], float]) -> Judge:
    def judge(episode):
        if episode.task.id not in expected:
            return None
        return match(episode.answer, expected[episode.task.id]) if episode.answer else 0.0

    return judge
