"""What happened in each finished episode, as arrays.  Episodes in, Facts out.  No weights.

Everything that reads text or asks Python happens here, once for each episode.  The shapes depend on
the number of episodes and on the settings alone, so the arithmetic that follows compiles once.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from flax import struct

from cacherl_jax.rewards.judges import Judge, judged, rule_judge
from cacherl_jax.rewards.process import (
    MISUSES,
    PROCESS_PARTS,
    is_answer,
    precedences,
    process_parts,
)
from cacherl_jax.rewards.repeats import Asked
from cacherl_jax.tasks.task import Episode, Termination
from cacherl_jax.tools.tool import ParseError, Result, Status, Tier

Effect = Literal['keep', 'zero', 'leave_out']
TERMINATIONS = tuple(Termination)
# Talk about what to do next in place of an answer.
META_PATTERNS = (
    r'^\W*(okay|ok|alright|hmm|wait|so|well)?\W*the user (wants|asks|asked|is asking|needs)\b',
    r'^\W*(okay|ok|alright|hmm|wait|so|well|first)?\W*(i|we) (need|have|should|must|ought) to\b',
    r"^\W*(okay|ok|alright|hmm|wait|so|well|first)?\W*(let me|let's|i'll|i will) "
    r'(think|check|see|start|begin|try|first|search|look|find|call|use)\b',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TerminationEffects:
    """What an ending does: keep the reward, make it 0, or leave it out of loss and statistics."""

    answered: Effect = 'keep'
    max_turns: Effect = 'keep'
    max_tokens: Effect = 'keep'
    context_full: Effect = 'keep'
    parse_failures: Effect = 'keep'
    tool_infrastructure: Effect = 'leave_out'  # else the policy learns from the network

    def __post_init__(self):
        for ending in TERMINATIONS:
            if self.of(ending) not in Effect.__args__:
                raise ValueError(
                    f'{ending} must be one of {Effect.__args__}, got {self.of(ending)!r}'
                )

    def of(self, ending: Termination) -> Effect:
        """The effect of one ending."""
        return getattr(self, ending.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactSettings:
    """Sizes of the arrays, and where a likeness or a pattern becomes a fact."""

    turns: int = 16  # most turns an episode can have; the length of the turn axis
    subgoals: int = 8  # most sub-goals a task can have; the length of the sub-goal axis
    alike_words: float = 0.9  # likeness of spelling, in (0, 1], from which two words are one
    thinking_markers: tuple[str, ...] = ('<think>', '</think>')  # in an answer they are a leak
    meta_patterns: tuple[str, ...] = META_PATTERNS  # regular expressions no answer may have
    effects: TerminationEffects = TerminationEffects()

    def __post_init__(self):
        if self.turns < 1 or self.subgoals < 1:
            raise ValueError(
                f'turns and subgoals must be at least 1, got {self.turns} and {self.subgoals}'
            )
        if not 0 < self.alike_words <= 1:
            raise ValueError(f'alike_words must be in (0, 1], got {self.alike_words}')
        for pattern in self.meta_patterns:
            try:
                re.compile(pattern)
            except re.error as wrong:
                raise ValueError(f'meta_patterns: {pattern!r} is not valid: {wrong}') from wrong


@struct.dataclass
class Facts:
    """Counts and booleans of finished episodes; numpy.  A group: attempts of one task and step."""

    group: np.ndarray  # i32  [row]           number of (task, step), in order of appearance
    turns: np.ndarray  # i32  [row]           turns played
    played: np.ndarray  # bool [row, turn]
    executed: np.ndarray  # i32  [row, turn]     calls that succeeded: live, exact or fuzzy
    guessed: np.ndarray  # i32  [row, turn]     OK by best effort or on a miss: no success
    failed: np.ndarray  # i32  [row, turn]     tool error, timeout, unavailable, over budget
    misused: np.ndarray  # i32  [row, turn]     unknown tool, bad arguments, parse error
    silent: np.ndarray  # bool [row, turn]     neither a call nor an answer
    answers: np.ndarray  # bool [row, turn]     a complete message without a call
    repeated: np.ndarray  # i32  [row, turn]     calls identical to an earlier, answered one
    near: np.ndarray  # i32  [row, turn]     calls that differ from an earlier one in spelling only
    late: np.ndarray  # i32  [row, turn]     calls after the turn that reached the last sub-goal
    irrelevant: np.ndarray  # i32  [row, turn]     calls to tools that serve no sub-goal
    reached: np.ndarray  # bool [row, turn, subgoal]  paid here: true at most once for each sub-goal
    subgoals: np.ndarray  # i32  [row]           sub-goals the task has
    tier: np.ndarray  # i32  [row, turn]     worst tier among this turn's results; live where none
    tier_before: np.ndarray  # i32  [row, turn]     worst tier seen when the turn was taken
    tier_worst: np.ndarray  # i32  [row]           worst tier of the episode
    tier_calls: np.ndarray  # i32  [row, tier]     results by tier
    termination: np.ndarray  # i32  [row]           index into TERMINATIONS
    kept: np.ndarray  # bool [row]           False: the ending makes the reward 0
    counted: np.ndarray  # bool [row]           False: out of loss and statistics
    answered: np.ndarray  # bool [row]           ended with an answer
    judged: np.ndarray  # bool [row]           False: the judge abstained or was not asked
    answer_score: np.ndarray  # f32  [row]           in [0, 1]; 0 where not judged
    meta: np.ndarray  # bool [row]           the answer talks about what to do
    process: np.ndarray  # f32  [row, part]     in [0, 1], parts as in PROCESS_PARTS
    process_known: np.ndarray  # bool [row, part]     False: the task says nothing about that part

    @property
    def answer_turn(self) -> np.ndarray:
        """The turn of the final answer, i32 [row]; -1 where the episode ended without one."""
        spoke = np.take_along_axis(self.silent, np.maximum(self.turns - 1, 0)[:, None], 1)[:, 0]
        return np.where(self.answered & ~spoke, self.turns - 1, -1).astype(np.int32)


def gather_facts(
    episodes: Sequence[Episode], settings: FactSettings, judge: Judge = rule_judge
) -> Facts:
    """One row an episode, in the order given; the judge is asked once for each row that is kept."""
    numbers = {}
    for episode in episodes:
        numbers.setdefault((episode.task.id, episode.step), len(numbers))
    facts = _blank(len(episodes), settings)
    for row, episode in enumerate(episodes):
        _refuse_misfit(episode, settings)
        facts.group[row] = numbers[episode.task.id, episode.step]
        first = _fill_subgoals(facts, row, episode)
        _fill_turns(facts, row, episode, settings.alike_words)
        _fill_late(facts, row, episode, first)
        _fill_ending(facts, row, episode, settings, judge)
        facts.process[row], facts.process_known[row] = process_parts(
            episode, first, settings.thinking_markers
        )
    return facts


def stratified_group(facts: Facts) -> np.ndarray:
    """A group number for each (group, exact | fuzzy | worse): rows are compared at equal trust.

    The remedy where tier-aware rewards pay for missing the cache.  i32 [row].
    """
    return (facts.group * 3 + stratum(facts.tier_worst)).astype(np.int32)


def stratum(worst_tier: np.ndarray | Tier) -> np.ndarray:
    """0 for exact or live, 1 for fuzzy, 2 for what is trusted less."""
    return np.clip(worst_tier, Tier.EXACT, Tier.BEST_EFFORT) - Tier.EXACT


def _blank(rows: int, settings: FactSettings) -> Facts:
    """Facts of episodes in which nothing happened."""
    turn = (rows, settings.turns)
    shapes = {'reached': (*turn, settings.subgoals), 'tier_calls': (rows, len(Tier))}
    shapes |= dict.fromkeys(('process', 'process_known'), (rows, len(PROCESS_PARTS)))
    row_kinds = {'group': np.int32, 'turns': np.int32, 'subgoals': np.int32, 'tier_worst': np.int32}
    row_kinds |= {'termination': np.int32, 'answer_score': np.float32}
    row_kinds |= dict.fromkeys(('kept', 'counted', 'answered', 'judged', 'meta'), np.bool_)
    shapes |= dict.fromkeys(row_kinds, (rows,))
    kinds = row_kinds | dict.fromkeys(('played', 'silent', 'answers', 'reached'), np.bool_)
    kinds |= {'process': np.float32, 'process_known': np.bool_}
    names = [field.name for field in dataclasses.fields(Facts)]
    return Facts(
        **{name: np.zeros(shapes.get(name, turn), kinds.get(name, np.int32)) for name in names}
    )


def _refuse_misfit(episode: Episode, settings: FactSettings) -> None:
    """Sizes that the arrays cannot hold, and results that answer no call, are our mistakes."""
    name, turns, goals = episode.task.id, len(episode.turns), len(episode.task.subgoals)
    if turns > settings.turns or goals > settings.subgoals:
        raise ValueError(
            f'{name} has {turns} turns and {goals} sub-goals; '
            f'the settings allow {settings.turns} and {settings.subgoals}'
        )
    names = {goal.name for goal in episode.task.subgoals}
    strangers = frozenset().union(*(goal.after for goal in episode.task.subgoals)) - names
    if strangers or len(names) < goals:
        raise ValueError(
            f'{name} must have sub-goals of different names, and `after` may name only these: '
            f'{sorted(names)}, got {sorted(strangers)} and {goals} sub-goals'
        )
    for number, turn in enumerate(episode.turns):
        unanswered = number == turns - 1 and not turn.results  # a limit came before the calls ran
        if len(turn.results) != len(turn.calls) and not unanswered:
            raise ValueError(
                f'turn {number} of {name} has {len(turn.calls)} calls, {len(turn.results)} results'
            )


def _fill_subgoals(facts: Facts, row: int, episode: Episode) -> dict[str, int | None]:
    """Marks where each sub-goal is paid; returns the turn that first reached each, paid or not."""
    goals, turns = episode.task.subgoals, episode.turns
    facts.subgoals[row] = len(goals)
    first = {
        goal.name: next((t for t in range(len(turns)) if goal.reached(turns[: t + 1])), None)
        for goal in goals
    }
    for number, goal in enumerate(goals):
        if first[goal.name] is not None and all(precedences(goal, first)):
            facts.reached[row, first[goal.name], number] = True
    return first


def _fill_turns(facts: Facts, row: int, episode: Episode, alike: float) -> None:
    """What the calls of each turn came to, and how far their answers can be trusted."""
    serving = frozenset().union(*(goal.tools for goal in episode.task.subgoals))
    asked = Asked({tool.name: tool for tool in episode.task.tools}, alike)
    facts.turns[row] = len(episode.turns)
    for number, turn in enumerate(episode.turns):
        at = row, number
        facts.played[at] = True
        facts.answers[at] = is_answer(turn)
        facts.silent[at] = not turn.calls and not is_answer(turn)
        facts.tier_before[at] = facts.tier_worst[row]
        for call, result in zip(turn.calls, turn.results, strict=False):
            outcome = _outcome(result)
            getattr(facts, outcome)[at] += 1
            facts.tier_calls[row, result.tier] += 1
            facts.tier[at] = max(facts.tier[at], result.tier)
            if isinstance(call, ParseError):
                continue
            likeness = asked.add(call, result)
            facts.repeated[at] += likeness == 'identical'
            facts.near[at] += likeness == 'near'
            known = result.status is not Status.UNKNOWN_TOOL  # else it is misuse, and paid as that
            facts.irrelevant[at] += bool(serving) and known and call.name not in serving
        facts.tier_worst[row] = max(facts.tier_worst[row], facts.tier[at])


def _outcome(result: Result) -> str:
    """The name of the count a result belongs to: by its status and tier, never by its text."""
    if result.status is Status.OK:
        return 'guessed' if result.tier >= Tier.BEST_EFFORT else 'executed'
    return 'misused' if result.status in MISUSES else 'failed'


def _fill_late(facts: Facts, row: int, episode: Episode, first: dict[str, int | None]) -> None:
    """Calls in turns after the one that reached the last sub-goal: by then the answer was known."""
    if not first or None in first.values():
        return
    for number in range(max(first.values()) + 1, len(episode.turns)):
        facts.late[row, number] = len(episode.turns[number].results)


def _fill_ending(
    facts: Facts, row: int, episode: Episode, settings: FactSettings, judge: Judge
) -> None:
    """How it ended, what that does, and what the judge says where the reward stands."""
    effect = settings.effects.of(episode.termination)
    facts.termination[row] = TERMINATIONS.index(episode.termination)
    facts.kept[row] = effect != 'zero'
    facts.counted[row] = effect != 'leave_out'
    facts.answered[row] = episode.termination is Termination.ANSWERED
    facts.meta[row] = any(
        re.search(pattern, episode.answer, re.IGNORECASE) for pattern in settings.meta_patterns
    )
    if effect == 'keep':
        score = judged(judge, episode)
        facts.judged[row] = score is not None
        facts.answer_score[row] = 0.0 if score is None else score
