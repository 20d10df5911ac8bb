"""From a failure to a demonstration: entries to correct by hand, and corrections played live.

An entry is a line of JSON: what was asked, what the policy did, why that failed.  Whoever corrects
it edits `turns` (content, thinking, calls) and sets `corrected` to true.  Results are never taken
from the file: the calls are made again, and the task's own check has the last word.
"""

import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cacherl_jax.evaluate.failures import REMEDY, Kind
from cacherl_jax.tasks.task import Episode, Task, Termination, Turn
from cacherl_jax.tools.execute import LiveSessions
from cacherl_jax.tools.tool import Call, Status
from cacherl_jax.tools.untold import answer_told

SHOWN = ('task', 'sample', 'step', 'stage', 'split')
# What may come of a call in a demonstration: an answer, or a failure that is the world's.
BEARABLE = {Status.OK, Status.TOOL_ERROR, Status.UNAVAILABLE}


def review_entry(record: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a failed episode's record."""
    kind = Kind(record['failure']['kind'])
    return {
        **{name: record[name] for name in SHOWN},
        'corrected': False,
        'failure': kind.value,
        'turn': record['failure']['turn'],
        'why': record['failure']['why'],
        'remedy': REMEDY[kind],
        'termination': record['termination'],
        'messages': record['messages'],
        'turns': [
            {name: turn[name] for name in ('thinking', 'content', 'calls', 'results', 'user')}
            for turn in record['turns']
        ],
    }


def read_entries(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The entries that are marked as corrected, with `line` saying where each stands.

    Raises ValueError naming the line that is no entry, and where none is marked.
    """
    found = []
    for number, line in enumerate(pathlib.Path(path).read_text(encoding='utf-8').split('\n'), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f'{path}, line {number}: no JSON: {error}') from error
        if not isinstance(entry, dict) or not isinstance(entry.get('corrected'), bool):
            raise ValueError(f'{path}, line {number}: corrected must be true or false')
        if entry['corrected']:
            found.append(entry | {'line': number})
    if not found:
        raise ValueError(f'{path} has no entry with "corrected": true')
    return found


def corrected_turns(entry: Mapping[str, Any]) -> list[Turn]:
    """What the corrector lets the assistant say; no results yet.  ValueError says where."""
    turns = entry.get('turns')
    if not isinstance(turns, list) or not turns:
        raise ValueError('turns must be a list with at least one turn')
    return [_turn(turn, f'turn {number}') for number, turn in enumerate(turns)]


def _turn(turn: Any, where: str) -> Turn:
    if not isinstance(turn, dict):
        raise ValueError(f'{where} must be an object')
    texts = {name: turn.get(name, '') for name in ('content', 'thinking')}
    wrong = [name for name, text in texts.items() if not isinstance(text, str)]
    if wrong:
        raise ValueError(f'{where}: {wrong[0]} must be text, got {texts[wrong[0]]!r:.80}')
    if not all(map(_bearable, texts.values())):
        raise ValueError(f'{where}: half a surrogate pair is no text that a file can hold')
    calls = turn.get('calls', [])
    if not isinstance(calls, list):
        raise ValueError(f'{where}: calls must be a list')
    return Turn(text=texts['content'], calls=tuple(_call(call, where) for call in calls), **texts)


def _call(call: Any, where: str) -> Call:
    if not isinstance(call, dict) or call.keys() != {'name', 'arguments'}:
        raise ValueError(f'{where}: a call has a name and arguments, got {call!r:.80}')
    name, arguments = call['name'], call['arguments']
    fits = isinstance(name, str) and isinstance(arguments, dict)
    if not fits or not _bearable([name, arguments]):
        raise ValueError(f'{where}: name is text, arguments an object of JSON, got {call!r:.80}')
    return Call(name, arguments)


def _bearable(value: Any) -> bool:
    """Whether a file can hold it: Python's reader lets NaN and halves of surrogate pairs in."""
    if isinstance(value, str):
        return value.isascii() or not any('\ud800' <= letter <= '\udfff' for letter in value)
    if isinstance(value, Mapping):
        return all(map(_bearable, [*value, *value.values()]))
    if isinstance(value, list):
        return all(map(_bearable, value))
    return not isinstance(value, float) or math.isfinite(value)


def play_correction(task: Task, turns: Sequence[Turn], live: LiveSessions) -> Episode:
    """The episode that these turns make, their calls executed live.

    Raises ValueError where a call is refused or never answered, where the conversation does not end
    with the answer to the last message, and where the task's own check is not content.
    """
    session = live.open_session(task.id, task.tools, task.start)
    waiting, played = list(task.follow_ups), []
    try:
        for number, turn in enumerate(turns):
            last = number == len(turns) - 1
            told = task.told(len(task.follow_ups) - len(waiting))
            results = answer_told(session, turn.calls, told, task.tools)
            _refuse_failed_calls(turn, results, number)
            user = ''
            if not turn.calls and not last:
                if not waiting:
                    raise ValueError(f'turn {number} makes no call, so it must be the last one')
                user = waiting.pop(0)
            fields = {'text': turn.text, 'content': turn.content, 'thinking': turn.thinking}
            played.append(Turn(**fields, calls=turn.calls, results=results, user=user))
    finally:
        session.close()
    if turns[-1].calls or waiting:
        raise ValueError('the last turn must answer the last message, without a call')
    episode = Episode(
        task=task, sample=0, step=-1, turns=tuple(played), termination=Termination.ANSWERED
    )
    if not task.solved(episode):
        raise ValueError("the task's own check says that it is not solved")
    return episode


def _refuse_failed_calls(turn: Turn, results, number: int) -> None:
    for call, result in zip(turn.calls, results, strict=True):
        if result.status not in BEARABLE:
            raise ValueError(
                f'turn {number}: {call.name} ended with {result.status}: {result.text:.200}'
            )
