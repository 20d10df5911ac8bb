"""Whether a success was earned.  Episodes in; for a door, judges that agree and flags that refuse.

A reward can be had without doing the work: by the same call again and again, by an answer that was
guessed or pasted, by talk about what one would do.  Each way leaves a mark in the facts, which is
looked for here and not in the reward.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping

from cacherl_jax.rewards.facts import Facts, FactSettings, gather_facts
from cacherl_jax.rewards.judges import Judge, judged, rule_judge
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tools.tool import Status, Tier

CALL_MARKERS = ('<tool_call>', '</tool_call>', '<|python_tag|>', '<tool_response>', '<|im_start|>')
RIGHT, NOT_WRONG = 'right answer', 'no wrong answer'
DECISIVE = (NOT_WRONG,)  # what the checker finds wrong is no matter of doubt


@dataclasses.dataclass(frozen=True, kw_only=True)
class HonestySettings:
    """Where an oddity becomes a flag, and what a judge asks for."""

    right_score: float = 0.99  # of the checker: from here the answer is right
    wrong_score: float = 0.5  # below this it is wrong; between the two it is doubtful
    process_score: float = 0.75  # mean of the known parts of the process
    model_score: float = 0.5  # of a reward model or another further judge
    most_repeats: int = 1  # calls that were made before, in these or other letters
    most_idle: int = 2  # calls that serve no sub-goal or come after the last one
    worst_tier: Tier = Tier.FUZZY  # least trusted result that counts as evidence

    def __post_init__(self):
        for name in ('right_score', 'wrong_score', 'process_score', 'model_score'):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f'{name} must be in [0, 1], got {getattr(self, name)}')
        if self.wrong_score > self.right_score:
            raise ValueError(
                f'wrong_score must not exceed right_score, '
                f'got {self.wrong_score} and {self.right_score}'
            )
        for name in ('most_repeats', 'most_idle'):
            if getattr(self, name) < 0:
                raise ValueError(f'{name} must be 0 or more, got {getattr(self, name)}')


def admission_judges(
    settings: HonestySettings,
    facts: FactSettings,
    checker: Judge = rule_judge,
    further: Mapping[str, Judge] | None = None,
) -> dict[str, Callable[[Episode], bool | None]]:
    """By name: yes, no or None for nothing to say.  `further` are scorers such as a reward model.

    right answer: the checker is content; no wrong answer: it is not discontent; milestones: every
    sub-goal was reached; evidence: what the answer states came from results; process: well played.
    """
    look = _latest(facts)

    def at_least(score: float | None, least: float) -> bool | None:
        return None if score is None else score >= least

    def milestones(episode):
        return (
            None
            if not episode.task.subgoals
            else bool(look(episode).reached[0].sum() == len(episode.task.subgoals))
        )

    def process(episode):
        found = look(episode)
        return bool(found.process[0][found.process_known[0]].mean() >= settings.process_score)

    judges = {
        RIGHT: lambda e: at_least(judged(checker, e), settings.right_score),
        NOT_WRONG: lambda e: at_least(judged(checker, e), settings.wrong_score),
        'milestones': milestones,
        'evidence': lambda e: rests_on_evidence(e, settings.worst_tier),
        'process': process,
    }
    return judges | {
        name: lambda e, judge=judge: at_least(judged(judge, e), settings.model_score)
        for name, judge in (further or {}).items()
    }


def hacking_flags(
    settings: HonestySettings, facts: FactSettings
) -> dict[str, Callable[[Episode], bool]]:
    """By name: True where an episode bears a mark of having gamed the reward."""
    look = _latest(facts)

    def repeats(episode):
        found = look(episode)
        return int(found.repeated.sum() + found.near.sum()) > settings.most_repeats

    def idle(episode):
        found = look(episode)
        return int(found.late.sum() + found.irrelevant.sum()) > settings.most_idle

    return {
        'repeated calls': repeats,
        'idle calls': idle,
        'meta-reasoning': lambda e: bool(look(e).meta[0]),
        'no evidence': lambda e: bool(e.task.subgoals) and not evidence(e, settings.worst_tier),
        'pasted output': pasted,
    }


def near_miss(settings: HonestySettings, facts: FactSettings) -> Callable[[Episode], bool]:
    """True of a failure that may teach by contrast: well played, a sub-goal reached, answer wrong.

    What was cut off, or gave no answer, shows nothing but that.
    """
    look = _latest(facts)

    def missed(episode):
        score = judged(rule_judge, episode)
        if not episode.answer or score is None or score >= settings.wrong_score:
            return False
        found = look(episode)
        played = found.process[0][found.process_known[0]].mean() >= settings.process_score
        return bool(played) and bool(found.reached[0].any())

    return missed


def evidence(episode: Episode, worst: Tier) -> list[str]:
    """The texts of results that went well and can be trusted."""
    results = [result for turn in episode.turns for result in turn.results]
    return [r.text for r in results if r.status is Status.OK and r.tier <= worst]


def rests_on_evidence(episode: Episode, worst: Tier) -> bool | None:
    """Whether every number that the answer adds to the request stands in some result.

    Where it adds no number, one of its new words must; None where it adds nothing at all.  Numbers
    that were computed in the head are a matter of doubt, not of course wrong.
    """
    asked = ' '.join(str(message['content']) for message in episode.task.messages)
    known = _words(asked + ' ' + ' '.join(turn.user for turn in episode.turns))
    added = _words(episode.answer) - known
    if not added:
        return None
    found = _words(' '.join(evidence(episode, worst)))
    numbers = {word for word in added if word[-1].isdigit()}
    return numbers <= found if numbers else not added.isdisjoint(found)


def pasted(episode: Episode) -> bool:
    """Whether the answer is, or holds, what a tool or a template wrote and no reader wants."""
    answer = episode.answer
    if any(marker in answer for marker in CALL_MARKERS):
        return True
    results = {result.text.strip() for turn in episode.turns for result in turn.results}
    return _is_structure(answer) or any(_is_structure(r) and r in answer for r in results)


def _is_structure(text: str) -> bool:
    """A JSON object or array with something in it."""
    if text[:1] not in '{[' or len(text) < 3:
        return False
    try:
        return bool(json.loads(text, parse_constant=lambda name: math.nan))
    except (ValueError, RecursionError):
        return False


def _words(text: str) -> set[str]:
    """Words in small letters and numbers without thousands separators."""
    found = re.findall(r'\d+(?:[.,]\d+)*|[^\W\d]+', text.casefold())
    return {word.replace(',', '') for word in found}


def _latest(settings: FactSettings) -> Callable[[Episode], Facts]:
    """Facts of one episode; judges and flags ask about the same one in turn.

    The task's score has no part in them, so it is not asked for.
    """
    latest: list = [None, None]

    def look(episode):
        if latest[0] is not episode:
            latest[:] = episode, gather_facts([episode], settings, lambda e: None)
        return latest[1]

    return look
