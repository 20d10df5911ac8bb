"""Why a failed episode failed: rules over what happened, the first that fits.  No model, no reward.

The order of the rules is from causes that leave no room for others (the infrastructure) to causes
that are read out of an otherwise orderly episode; what no rule explains is said to be unexplained.
"""

import dataclasses
import enum
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from cacherl_jax.tasks.task import Episode, Termination
from cacherl_jax.tools.tool import Call, ParseError, Result, Status, Tier

REPEATS = 3  # as often makes a loop
EXAMPLES = 3  # shown for a kind of failure
MISUSE = {Status.UNKNOWN_TOOL, Status.BAD_ARGUMENTS, Status.PARSE_ERROR, Status.OVER_BUDGET}
CUT = {Termination.MAX_TURNS, Termination.MAX_TOKENS, Termination.CONTEXT_FULL}


class Kind(enum.StrEnum):
    """What was wrong with a failed episode."""

    INFRASTRUCTURE = 'infrastructure'
    LOOP = 'loop'
    TOOL_MISUSE = 'tool_misuse'
    TRUNCATION = 'truncation'
    CACHE_INDUCED = 'cache_induced'
    MISUNDERSTOOD_REQUEST = 'misunderstood_request'
    PREMATURE_END = 'premature_end'
    WRONG_PLAN = 'wrong_plan'
    STALE_FACT = 'stale_fact'
    IGNORED_OBSERVATION = 'ignored_observation'
    UNEXPLAINED = 'unexplained'


REMEDY = {
    Kind.INFRASTRUCTURE: 'Repair the tool or raise its time limit; the episode teaches nothing.',
    Kind.LOOP: 'Raise the penalty for repeats; demonstrate what to do after a useless answer.',
    Kind.TOOL_MISUSE: 'More supervised steps on the call format; show the schema in the prompt.',
    Kind.TRUNCATION: 'Raise the limit of turns or tokens, or reward shorter episodes.',
    Kind.CACHE_INDUCED: 'Raise the similarity threshold, or allow exact answers only.',
    Kind.MISUNDERSTOOD_REQUEST: 'Add demonstrations with other wordings of such requests.',
    Kind.PREMATURE_END: 'Raise the reward of sub-goals; demonstrate the missing steps.',
    Kind.WRONG_PLAN: 'Correct the episode by hand and add it to the rollout cache.',
    Kind.STALE_FACT: 'Check the scope of the tool; demonstrate asking again after a change.',
    Kind.IGNORED_OBSERVATION: 'Demonstrate answers that quote what the tools returned.',
    Kind.UNEXPLAINED: 'Read the episode.',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed episode's cause."""

    kind: Kind
    turn: int  # where it shows, from 0; -1 where no turn is to blame
    why: str  # one clause with the evidence


def _steps(episode: Episode) -> Iterator[tuple[int, Call | ParseError, Result]]:
    for number, turn in enumerate(episode.turns):
        for call, result in zip(turn.calls, turn.results, strict=False):
            yield number, call, result


def _key(call: Call | ParseError) -> str:
    if isinstance(call, ParseError):
        return call.text
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)


def _last(episode: Episode) -> int:
    return len(episode.turns) - 1


def _words(text: str) -> set[str]:
    """What a text could be recognised by: its numbers and its words of four letters or more."""
    return set(re.findall(r'\d+(?:\.\d+)?|[^\W\d_]{4,}', text.lower().replace(',', '')))


def _request(episode: Episode) -> str:
    asked = [message['content'] for message in episode.task.messages if message['role'] == 'user']
    return ' '.join([*asked, *(turn.user for turn in episode.turns)])


def _infrastructure(episode):
    if episode.termination is Termination.TOOL_INFRASTRUCTURE:
        return _last(episode), 'a tool was out of service'
    steps = list(_steps(episode))
    if steps and steps[-1][2].tier is not Tier.MISS:
        number, call, result = steps[-1]
        if result.status in {Status.UNAVAILABLE, Status.TIMEOUT}:
            return number, f'the last call to {call.name} ended with {result.status}'
    return None


def _loop(episode):
    seen = Counter()
    for number, call, result in _steps(episode):
        seen[_key(call), result.text] += 1
        if seen[_key(call), result.text] == REPEATS:
            return number, f'the same call gave the same answer {REPEATS} times'
    for number, turn in enumerate(episode.turns):
        said = turn.text.strip()
        seen[said] += 1
        if said and seen[said] == REPEATS:  # an expert's turn that only calls has no text
            return number, f'the same message was written {REPEATS} times'
    return None


def _tool_misuse(episode):
    steps = list(_steps(episode))
    wrong = [(number, result) for number, _, result in steps if result.status in MISUSE]
    if episode.termination is Termination.PARSE_FAILURES:
        return _last(episode), 'the calls could not be read'
    if wrong and (2 * len(wrong) >= len(steps) or steps[-1][2].status in MISUSE):
        number, result = wrong[0]
        return number, f'{len(wrong)} of {len(steps)} calls were wrong, first {result.status}'
    return None


def _truncation(episode):
    if episode.termination in CUT:
        return _last(episode), f'the episode was cut by {episode.termination}'
    return None


def _cache_induced(episode):
    for number, call, result in _steps(episode):
        if result.tier is Tier.MISS and result.status is not Status.OK:
            return number, f'the cache had no answer for {_key(call)}'
        if result.tier in {Tier.FUZZY, Tier.BEST_EFFORT}:
            tier = result.tier.name.lower()
            return number, f'{_key(call)} got a {tier} answer, similarity {result.similarity:.2f}'
    return None


def _misunderstood_request(episode):
    known = _words(_request(episode))
    asked = set()
    for _, call, result in _steps(episode):
        if isinstance(call, Call):
            asked |= _words(' '.join(map(str, call.arguments.values())))
        known |= _words(result.text) if result.status is Status.OK else set()
    if asked and not asked & known:
        return 0, f'no argument stands in the request: {", ".join(sorted(asked)[:3])}'
    return None


def _unreached(episode) -> list[str]:
    played = [episode.turns[: count + 1] for count in range(len(episode.turns))]
    return [s.name for s in episode.task.subgoals if not any(s.reached(turns) for turns in played)]


def _premature_end(episode):
    if episode.termination is not Termination.ANSWERED:
        return None
    steps = list(_steps(episode))
    if episode.task.tools and not any(result.status is Status.OK for *_, result in steps):
        return _last(episode), 'it answered without one successful call'
    missing, serving = _unreached(episode), {t for s in episode.task.subgoals for t in s.tools}
    strays = [call for _, call, _ in steps if isinstance(call, Call) and call.name not in serving]
    if missing and not (serving and strays):
        return _last(episode), f'it answered before {missing[0]}'
    return None


def _wrong_plan(episode):
    missing = _unreached(episode)
    if not missing:
        return None
    serving = {tool for s in episode.task.subgoals for tool in s.tools}
    for number, call, _ in _steps(episode):
        if isinstance(call, Call) and serving and call.name not in serving:
            return number, f'{call.name} serves no sub-goal; {missing[0]} was not reached'
    return _last(episode), f'{missing[0]} was not reached'


def _stale_fact(episode):
    answers = defaultdict(list)
    for number, call, result in _steps(episode):
        if result.status is Status.OK:
            answers[_key(call)].append((number, _words(result.text)))
    said = _words(episode.answer)
    for key, seen in answers.items():
        old = set().union(*(words for _, words in seen[:-1])) - seen[-1][1]
        new = seen[-1][1] - set().union(*(words for _, words in seen[:-1]))
        if said & old and not said & new:
            return seen[-1][0], f'the answer repeats what {key} said before it changed'
    return None


def _ignored_observation(episode):
    observed = [result.text for *_, result in _steps(episode) if result.status is Status.OK]
    learned = _words(' '.join(observed)) - _words(_request(episode))
    if episode.answer and learned and not learned & _words(episode.answer):
        return _last(episode), 'nothing in the answer comes from what the tools returned'
    return None


RULES: tuple[tuple[Kind, Callable[[Episode], tuple[int, str] | None]], ...] = (
    (Kind.INFRASTRUCTURE, _infrastructure),
    (Kind.LOOP, _loop),
    (Kind.TOOL_MISUSE, _tool_misuse),
    (Kind.TRUNCATION, _truncation),
    (Kind.CACHE_INDUCED, _cache_induced),
    (Kind.MISUNDERSTOOD_REQUEST, _misunderstood_request),
    (Kind.PREMATURE_END, _premature_end),
    (Kind.WRONG_PLAN, _wrong_plan),
    (Kind.STALE_FACT, _stale_fact),
    (Kind.IGNORED_OBSERVATION, _ignored_observation),
)


def attribute(episode: Episode) -> Failure | None:
    """The first rule that fits a failed episode; None where the task was solved."""
    if episode.task.solved(episode):
        return None
    for kind, rule in RULES:
        found = rule(episode)
        if found is not None:
            return Failure(kind=kind, turn=found[0], why=found[1])
    return Failure(kind=Kind.UNEXPLAINED, turn=-1, why='no rule fits')


def failure_table(failures: Iterable[tuple[str, Failure]]) -> list[dict]:
    """One line a kind that occurred, most frequent first, from (task id, failure) pairs."""
    found = defaultdict(list)
    for task_id, failure in failures:
        found[failure.kind].append({'task': task_id, 'turn': failure.turn, 'why': failure.why})
    total = sum(map(len, found.values()))
    return [
        {
            'kind': kind.value,
            'count': len(examples),
            'share': len(examples) / total,
            'remedy': REMEDY[kind],
            'examples': examples[:EXAMPLES],
        }
        for kind, examples in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
