"""An episode as JSON: everything a reader wants to see, nothing that only runs; written and read.

One record is a line of `episodes.jsonl`.  `step` is the training step it belongs to, `stage` says
what it was played for ('train', 'supervised', 'final' or any other word).
"""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cacherl_jax.evaluate.failures import attribute
from cacherl_jax.tasks.task import Episode, Termination, Turn
from cacherl_jax.tools.tool import ParseError, Result

Token = tuple[str, str, float]  # text, 'sampled' or 'forced', advantage


def _plain(value: Any) -> Any:
    """Arguments as strict JSON: what it cannot hold is shown as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (int, str)) else str(value)


def _call(call) -> dict[str, Any]:
    if isinstance(call, ParseError):
        return {'error': call.reason, 'text': call.text}
    return {'name': call.name, 'arguments': _plain(call.arguments)}


def _result(result: Result) -> dict[str, Any]:
    return {
        'status': result.status.value,
        'tier': result.tier.name.lower(),
        'text': result.text,
        'similarity': float(result.similarity),
        'provenance': result.provenance,
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        'text': turn.text,
        'thinking': turn.thinking,
        'content': turn.content,
        'calls': [_call(call) for call in turn.calls],
        'results': [_result(result) for result in turn.results],
        'ended': turn.ended,
        'user': turn.user,
    }


def row_tokens(
    ids: np.ndarray, sampled: np.ndarray, advantage: np.ndarray, text_of: Callable[[int], str]
) -> list[Token]:
    """The tokens of one row [token], up to its length, for `episode_record`."""
    kinds = ('forced', 'sampled')
    return [
        (text_of(int(token)), kinds[bool(chosen)], round(float(worth), 4))
        for token, chosen, worth in zip(ids, sampled, advantage, strict=True)
    ]


def _spread_tokens(turns: list[dict], episode: Episode, tokens: Sequence[Token]) -> None:
    """A turn shows what was forced since the turn before, then its own; the last one the rest."""
    start = 0
    for number, (shown, turn) in enumerate(zip(turns, episode.turns, strict=True)):
        stop = len(tokens) if number == len(turns) - 1 else turn.stop
        shown['tokens'] = [list(token) for token in tokens[start:stop]]
        start = stop


def episode_record(
    episode: Episode,
    *,
    step: int,
    stage: str,
    rewards: Sequence[float] | None = None,
    terms: Mapping[str, Sequence[float]] | None = None,
    advantages: Sequence[float] | None = None,
    tokens: Sequence[Token] | None = None,
) -> dict[str, Any]:
    """`rewards`, each of `terms` and `advantages` have a number a turn (longer ones are cut)."""
    turns = [_turn(turn) for turn in episode.turns]
    for number, shown in enumerate(turns):
        if rewards is not None:
            shown['reward'] = float(rewards[number])
        if terms is not None:
            shown['terms'] = {name: float(of_turn[number]) for name, of_turn in terms.items()}
        if advantages is not None:
            shown['advantage'] = float(advantages[number])
    if tokens is not None:
        _spread_tokens(turns, episode, tokens)
    task, failure = episode.task, attribute(episode)
    return {
        'step': int(step),
        'stage': stage,
        'task': task.id,
        'suite': task.suite,
        'level': task.level,
        'split': task.split,
        'sample': episode.sample,
        'messages': [dict(message) for message in task.messages],
        'turns': turns,
        'termination': episode.termination.value,
        'success': failure is None,
        'score': float(task.score(episode)),
        'failure': None if failure is None else dataclasses.asdict(failure),
    }


def spoken(record: Mapping[str, Any]) -> str:
    """A record as text to read: what was asked, said, called and answered, in order."""
    lines = [f'{record["task"]}, {record["termination"]}, score {record["score"]:.2f}']
    lines += [f'{message["role"]}: {message["content"]}' for message in record['messages']]
    for turn in record['turns']:
        lines += [f'assistant: {turn["text"]}']
        lines += [f'{result["status"]}, {result["tier"]}: {result["text"]}'
                  for result in turn['results']]  # fmt: skip
        lines += [f'user: {turn["user"]}'] if turn['user'] else []
    return '\n'.join(lines)


def episode_lines(source: str | os.PathLike) -> pathlib.Path:
    """The file of records that `source`, a run's folder or the file itself, stands for."""
    path = pathlib.Path(source)
    path = path / 'episodes.jsonl' if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f'{path} is not there; give the folder of a run, or a file that '
            'evaluate --episodes wrote'
        )
    return path


def content_hash(path: pathlib.Path) -> str:
    """Tells later whether numbers were made from the same file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_records(source: str | os.PathLike, stage: str = '') -> list[dict[str, Any]]:
    """The records of one stage in the order written, without a last line still being written.

    No stage named: the one written last.  Raises ValueError where there are none.
    """
    path = episode_lines(source)
    lines = path.read_text(encoding='utf-8').split('\n')[:-1]
    records = [json.loads(line) for line in lines if line]
    if not records:
        raise ValueError(f'{path} holds no episode')
    wanted = stage or records[-1]['stage']
    found = [record for record in records if record['stage'] == wanted]
    if not found:
        known = sorted({record['stage'] for record in records})
        raise ValueError(f'{path} has no stage {wanted!r}; there are {known}')
    return found


def record_key(record: Mapping[str, Any]) -> tuple[str, int, int]:
    """Task, sample and step: what an episode is known by among those of its stage."""
    return record['task'], record['sample'], record['step']


def record_answer(record: Mapping[str, Any]) -> str:
    """The final message; empty where the episode ended without one."""
    answered = record['termination'] == Termination.ANSWERED and record['turns']
    return record['turns'][-1]['content'].strip() if answered else ''


def _reward(record: Mapping[str, Any]) -> float:
    if not all('reward' in turn for turn in record['turns']):
        raise ValueError(
            f'episodes of stage {record["stage"]!r} were paid no reward; those of stage train are'
        )
    return float(sum(turn['reward'] for turn in record['turns']))


MEASURES: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    'success': lambda record: float(record['success']),
    'score': lambda record: float(record['score']),
    'reward': _reward,  # what training paid, over the turns
    'turns': lambda record: float(len(record['turns'])),
    'calls': lambda record: float(sum(len(turn['calls']) for turn in record['turns'])),
}
