"""What a person decides about records that wait.  A run's folder in; records and decisions out.

A run writes `quarantine/`; decisions are appended to `reviewed.jsonl` beside it, one line each, and
the run takes them up (`Door.settle`).  Nothing here changes what the run wrote, so a person may
review while it goes on.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from cacherl_jax.rollout_cache.record import Record, read

QUARANTINE, DECISIONS = 'quarantine', 'reviewed.jsonl'
PREFIX_CHARACTERS = 6  # fewest of an identity that name a record


def run_folder(folder: pathlib.Path) -> pathlib.Path:
    """The run's folder, also where its quarantine was given; ValueError where there is neither."""
    folder = folder.resolve()
    if folder.name == QUARANTINE:
        folder = folder.parent
    kept = (QUARANTINE, DECISIONS, 'rollout_cache', 'checkpoints')
    if not any((folder / name).exists() for name in kept):
        raise ValueError(
            f'{folder} is not the folder of a run; it would hold one of {", ".join(kept)}'
        )
    return folder


def decisions(folder: pathlib.Path) -> dict[str, bool]:
    """By identity: approved or rejected; a later line overrules an earlier one."""
    path = run_folder(folder) / DECISIONS
    decided = {}
    lines = path.read_text(encoding='utf-8').splitlines(keepends=True) if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line.endswith('\n'):
            continue  # cut short by a kill: it was not decided
        try:
            fields = json.loads(line)
            identity, approved = fields['record'], fields['approved']
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f'{path}, line {number} is no decision: {error!r}') from error
        if not isinstance(identity, str) or not isinstance(approved, bool):
            raise ValueError(f'{path}, line {number} is no decision: {line.strip()[:80]}')
        decided[identity] = approved
    return decided


def waiting(folder: pathlib.Path) -> list[Record]:
    """Records of the quarantine without a decision, in the order in which they came."""
    quarantine = run_folder(folder) / QUARANTINE
    records = read(quarantine) if quarantine.exists() else []
    decided = decisions(folder)
    return [record for record in records if record.identity not in decided]


def decide(
    folder: pathlib.Path, approve: Sequence[str] = (), reject: Sequence[str] = ()
) -> dict[str, bool]:
    """Writes decisions about records named by the beginning of their identity; all or none.

    ValueError where a name fits no record that waits, or several, or is given for both.
    """
    known = [record.identity for record in waiting(folder)]
    decided: dict[str, bool] = {}
    for names, approved in ((approve, True), (reject, False)):
        for name in names:
            identity = _named(name, known)
            if decided.setdefault(identity, approved) != approved:
                raise ValueError(f'{name} is to be approved and rejected')
    if decided:
        _append(run_folder(folder) / DECISIONS, decided)
    return decided


def _named(name: str, known: Sequence[str]) -> str:
    found = sorted({one for one in known if one.startswith(name)})
    if len(name) < PREFIX_CHARACTERS or len(found) != 1:
        raise ValueError(
            f'{name!r} names {len(found)} of the {len(known)} records that wait; give at least '
            f'{PREFIX_CHARACTERS} characters, and as many as tell one from the others'
        )
    return found[0]


def _append(path: pathlib.Path, decided: Mapping[str, bool]) -> None:
    """One write in append mode, so that two reviewers' lines do not mix."""
    written = path.read_bytes() if path.exists() else b''
    whole = written.rfind(b'\n') + 1
    if whole < len(written):  # a line that a kill cut short
        os.truncate(path, whole)
    lines = ''.join(
        json.dumps({'record': identity, 'approved': approved}) + '\n'
        for identity, approved in decided.items()
    )
    with path.open('a', encoding='utf-8', newline='\n') as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def shown(record: Record) -> dict[str, object]:
    """What a person needs for a decision, as plain values; the texts are the policy's."""
    return {
        'record': record.identity,
        'task': record.task,
        'step': record.step,
        'return': round(record.episode_return, 4),
        'rewards': {name: round(value, 4) for name, value in record.rewards.items()},
        'tier': record.worst_tier.name.lower(),
        'why': record.note,
        'turns': [
            {
                'text': turn.text,
                'results': [f'{r.status.value}: {r.text}' for r in turn.results],
            }
            for turn in record.turns
        ],
        'answer': record.turns[-1].content if record.turns else '',
    }
