"""Who scores final answers: the checker, a reward model, a language model, or several at once.

    score = Σ w s / Σ w over the scorers that have something to say

A whole batch is asked about at once, so that a slow scorer is waited for once; of several processes
the first asks.  Only answers whose ending keeps its reward are asked about.  With the checker alone
the score is the checker's.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from cacherl_jax import processes
from cacherl_jax.chat.endpoint import EndpointSettings
from cacherl_jax.rewards.facts import TerminationEffects
from cacherl_jax.rewards.judges import Judge, rule_judge
from cacherl_jax.rewards.llm_judge import LlmJudge, LlmJudgeSettings
from cacherl_jax.rewards.scorers import mean_known, place_of, recorded_scorer
from cacherl_jax.tasks.task import Episode

RowScores = Callable[[Any], Sequence[float]]  # token rows of a batch to a score in [0, 1] each


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinalSettings:
    """Weights of the scorers, and where those are that do not ship."""

    rules: float = 1.0  # weight of the task's own checker
    reward_model: float = 0.0  # weight of the reward model in `head`
    language_model: float = 0.0  # weight of the language model at `endpoint`
    head: str = ''  # folder of a reward model (experiments/train_reward_model.py)
    endpoint: str = ''  # url up to /v1 of an OpenAI-compatible server
    endpoint_model: str = ''  # the model's name there
    endpoint_key: str = ''  # environment variable that holds its key; empty: no key is sent
    endpoint_tokens: int = 256  # of a reply
    votes: int = 3  # of the language model, on each answer
    quorum: int = 2  # fewest votes that make a verdict
    temperature: float = 0.7  # several votes differ by it alone
    budget_seconds: float = 60.0  # for a verdict: all its votes with all their retries

    def __post_init__(self):
        weights = {name: getattr(self, name) for name in ('rules', 'reward_model')}
        weights['language_model'] = self.language_model
        for name, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f'{name} must be finite and at least 0, got {weight}')
        if not any(weights.values()):
            raise ValueError(f'somebody must score: {sorted(weights)} are all 0')
        if bool(self.reward_model) != bool(self.head):
            raise ValueError(
                'reward_model and head go together: a weight and the folder it is for, '
                f'got {self.reward_model} and {self.head!r}'
            )
        where = bool(self.endpoint), bool(self.endpoint_model)
        if {bool(self.language_model), *where} == {True, False}:
            raise ValueError(
                'language_model, endpoint and endpoint_model go together, '
                f'got {self.language_model}, {self.endpoint!r} and {self.endpoint_model!r}'
            )
        if self.language_model:
            self.judge_settings(pathlib.Path(':memory:'))

    def judge_settings(self, votes: pathlib.Path) -> LlmJudgeSettings:
        """The language model's, which keeps its votes in the file given."""
        return LlmJudgeSettings(
            endpoint=EndpointSettings(
                url=self.endpoint,
                model=self.endpoint_model,
                key_variable=self.endpoint_key,
                max_tokens=self.endpoint_tokens,
            ),
            cache=votes,
            votes=self.votes,
            quorum=self.quorum,
            temperature=self.temperature,
            budget_seconds=self.budget_seconds,
        )


class FinalScorer:
    """`judge(episodes, rows)` has scored the batch and says so, one episode after the other."""

    def __init__(
        self,
        settings: FinalSettings,
        effects: TerminationEffects,
        votes: pathlib.Path,
        row_scores: RowScores | None = None,
    ):
        """`row_scores` is the reward model, where there is one."""
        if bool(settings.reward_model) != (row_scores is not None):
            raise ValueError('row_scores is needed where the reward model has a weight, only there')
        self._settings, self._effects, self._row_scores = settings, effects, row_scores
        asked = settings.language_model
        self._language_model = LlmJudge(settings.judge_settings(votes)) if asked else None

    def judge(self, episodes: Sequence[Episode], rows: Any) -> Judge:
        """For episodes and their token rows, in the same order."""
        settings, weights = self._settings, {}
        kept = [self._effects.of(episode.termination) == 'keep' for episode in episodes]
        if settings.rules:
            weights[rule_judge] = settings.rules
        if self._row_scores is not None:
            scores = self._row_scores(rows) if any(kept) else [0.0] * len(episodes)
            told = {
                place_of(episode): float(score) if episode.answer else 0.0
                for episode, score in zip(episodes, scores, strict=True)
            }
            weights[recorded_scorer(told)] = settings.reward_model
        if self._language_model is not None:
            asked = [one for one, keeps in zip(episodes, kept, strict=True) if keeps]
            scores = processes.told(lambda: self._language_model.score_all(asked))
            told = {place_of(one): score for one, score in zip(asked, scores, strict=True)}
            weights[recorded_scorer(told)] = settings.language_model
        return rule_judge if list(weights) == [rule_judge] else mean_known(weights)

    def metrics(self) -> dict[str, float]:
        """Of the language model's votes so far, `judge/*`; nothing where none is asked."""
        return {} if self._language_model is None else self._language_model.metrics()

    def close(self) -> None:
        """Closes the file of votes."""
        if self._language_model is not None:
            self._language_model.close()
