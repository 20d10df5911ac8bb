"""A language model behind an endpoint as a judge of answers.  Episode in, score or None out.

    score = mean of the votes / 5,  where at least `quorum` votes could be had and read

Anything else is an abstention, never a zero; an episode without an answer is 0 and is not asked
about.  Votes are cached, so a question is paid for once.  A judge that abstains `patience` times in
a row is out of order, and says so instead of abstaining for ever.
"""

import collections
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from cacherl_jax.chat.endpoint import (
    EndpointError,
    EndpointSettings,
    Unanswered,
    complete,
    read_key,
)
from cacherl_jax.rewards.rubric import (
    ANSWER_RUBRIC,
    HIGHEST,
    MaterialSettings,
    Rubric,
    judge_messages,
    read_vote,
)
from cacherl_jax.rewards.verdicts import make_verdicts, vote_key
from cacherl_jax.tasks.task import Episode


@dataclasses.dataclass(frozen=True, kw_only=True)
class LlmJudgeSettings:
    """Whom to ask, how often, and for how long."""

    endpoint: EndpointSettings
    cache: pathlib.Path  # SQLite file of votes
    rubric: Rubric = ANSWER_RUBRIC
    material: MaterialSettings = MaterialSettings()
    votes: int = 3
    quorum: int = 2  # fewest votes that make a verdict
    temperature: float = 0.7  # several votes differ by it alone
    budget_seconds: float = 60.0  # for a verdict: all its votes with all their retries
    parallel: int = 8  # episodes asked about at once
    patience: int = 20  # abstentions in a row after which something is wrong with the judge

    def __post_init__(self):
        if not 1 <= self.quorum <= self.votes:
            raise ValueError(f'quorum must be in 1..votes ({self.votes}), got {self.quorum}')
        if self.votes > 1 and not self.temperature > 0:
            raise ValueError(
                f'{self.votes} votes at temperature {self.temperature} are one and the same'
            )
        if not self.budget_seconds > 0:
            raise ValueError(f'budget_seconds must be above 0, got {self.budget_seconds}')
        for name in ('parallel', 'patience'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} must be at least 1, got {getattr(self, name)}')


class LlmJudge:
    """Serves as a Judge; `score_all` asks about many episodes at once."""

    def __init__(
        self,
        settings: LlmJudgeSettings,
        reference: Callable[[Episode], str | None] = lambda episode: None,
    ):
        """`reference` gives the right answer where it is known, to compare with."""
        read_key(settings.endpoint)  # a missing key is said now and not at step 500
        self.settings, self.reference = settings, reference
        self.counts: collections.Counter[str] = collections.Counter()
        self._verdicts = make_verdicts(settings.cache)
        self._lock = threading.Lock()
        self._abstained = 0  # in a row

    def __call__(self, episode: Episode) -> float | None:
        """The score in [0, 1], or None."""
        return self.score_all([episode])[0]

    def score_all(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Scores in order; equal answers to equal requests are asked about once."""
        questions = [self._question(episode) for episode in episodes]
        asked = {vote_key(q): q for q in questions if q is not None}
        with ThreadPoolExecutor(self.settings.parallel) as pool:
            found = dict(zip(asked, pool.map(self._verdict, asked.values()), strict=True))
        for score in found.values():
            self._refuse_silence(score)
        return [0.0 if q is None else found[vote_key(q)] for q in questions]

    def metrics(self) -> dict[str, float]:
        """Counts so far, `judge/<name>`: votes asked, cached, unread, unanswered; abstentions."""
        names = ('asked', 'cached', 'unread', 'unanswered', 'abstained')
        return {f'judge/{name}': float(self.counts[name]) for name in names}

    def close(self) -> None:
        """Closes the file of votes."""
        self._verdicts.close()

    def _question(self, episode: Episode) -> list[dict[str, str]] | None:
        if not episode.answer:
            return None
        settings = self.settings
        reference = self.reference(episode)
        return judge_messages(episode, settings.rubric, settings.material, reference)

    def _verdict(self, messages: Sequence[Mapping[str, str]]) -> float | None:
        deadline = time.monotonic() + self.settings.budget_seconds
        numbers = range(self.settings.votes)
        with ThreadPoolExecutor(self.settings.votes) as pool:
            votes = list(pool.map(lambda n: self._vote(messages, n, deadline), numbers))
        grades = [vote for vote in votes if vote is not None]
        if len(grades) < self.settings.quorum:
            self._count('abstained')
            return None
        return sum(grades) / len(grades) / HIGHEST

    def _vote(self, messages, number: int, deadline: float) -> int | None:
        """One grade, out of the cache or asked for; None where there was none to read."""
        endpoint, version = self.settings.endpoint, self.settings.rubric.version
        temperature = self.settings.temperature
        key = vote_key(endpoint.model, endpoint.max_tokens, version, messages, temperature, number)
        grade = self._verdicts.find(key)
        if grade is not None:
            self._count('cached')
            return grade
        self._count('asked')
        try:
            reply = complete(
                endpoint, messages, deadline=deadline, temperature=temperature, seed=number
            )
        except Unanswered:
            self._count('unanswered')
            return None
        grade = read_vote(reply.content)
        if grade is None:
            self._count('unread')
            return None
        return self._verdicts.store(key, endpoint.model, version, grade)

    def _count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1

    def _refuse_silence(self, score: float | None) -> None:
        self._abstained = 0 if score is not None else self._abstained + 1
        if self._abstained >= self.settings.patience:
            told = ', '.join(f'{name} {count}' for name, count in sorted(self.counts.items()))
            raise EndpointError(
                f'the judge {self.settings.endpoint.model} abstained {self._abstained} times in a '
                f'row ({told}); see whether the endpoint answers and replies with the JSON object'
            )
