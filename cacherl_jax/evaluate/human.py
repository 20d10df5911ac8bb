"""What people say of episodes: a sheet to fill in, read back, and held against a run's rewards.

The sheet is CSV, filled in by hand or by a page that shows one episode after the other.  An episode
is known by task, sample and step; several lines about one episode are several people's, and their
mean counts.
"""

import csv
import hashlib
import io
import json
import math
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cacherl_jax.evaluate.html import page_with
from cacherl_jax.evaluate.record import record_answer, record_key
from cacherl_jax.evaluate.statistics import Agreement, correlations

KNOWN_BY = ('task', 'sample', 'step')
SCORE = 'human'
TO_READ = ('request', 'answer')
SHOWN = ('text', 'thinking', 'content', 'calls', 'results', 'ended', 'user')  # of a turn
FORMULA = ('=', '+', '-', '@', '\t', '\r')  # what spreadsheets run when a cell begins with it

Key = tuple[str, int, int]


def _cell(text: str) -> str:
    """Text that no spreadsheet runs."""
    return f"'{text}" if text.startswith(FORMULA) else text


def blank_sheet(records: Iterable[Mapping[str, Any]]) -> str:
    """A line an episode, with what was asked and answered, and an empty score.

    Whether the task was solved is left out: who scores should not know.
    """
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator='\n')
    sheet.writerow((*KNOWN_BY, SCORE, *TO_READ))
    for record in records:
        said = _to_read(record).values()
        sheet.writerow((*record_key(record), '', *said))
    return text.getvalue()


def _to_read(record: Mapping[str, Any]) -> dict[str, str]:
    asked = [m['content'] for m in record['messages'] if m['role'] == 'user']
    asked += [turn['user'] for turn in record['turns'] if turn['user']]
    told = (' / '.join(asked), record_answer(record))
    return dict(zip(TO_READ, map(_cell, told), strict=True))


def scoring_page(records: Sequence[Mapping[str, Any]]) -> str:
    """An HTML page on which the episodes are read and scored, and which saves the sheet.

    It knows nothing of success, score, rewards and failures.
    """
    episodes = [
        dict(zip(KNOWN_BY, record_key(record), strict=True))
        | _to_read(record)
        | {'messages': record['messages']}
        | {'turns': [{name: turn[name] for name in SHOWN} for turn in record['turns']]}
        for record in records
    ]
    told = hashlib.sha256(json.dumps(episodes).encode()).hexdigest()[:16]
    return page_with('scoring.html', {'hash': told, 'episodes': episodes})


def read_sheet(path: str | os.PathLike) -> dict[Key, float]:
    """The mean score of each episode that somebody scored; lines without a score are skipped.

    Raises ValueError naming the line where a column is missing or something is no number.
    """
    with pathlib.Path(path).open(encoding='utf-8', newline='') as file:
        sheet = csv.DictReader(file)
        missing = {*KNOWN_BY, SCORE} - set(sheet.fieldnames or ())
        if missing:
            raise ValueError(
                f'{path} has no column {sorted(missing)}, it has {sheet.fieldnames}; '
                'correlate --sheet writes one to fill in'
            )
        scores: dict[Key, list[float]] = defaultdict(list)
        for row in sheet:
            if (row[SCORE] or '').strip():
                key, score = _line(row, f'{path}, line {sheet.line_num}')
                scores[key].append(score)
    if not scores:
        raise ValueError(f'{path} holds no score; fill in the column {SCORE!r}')
    return {key: sum(given) / len(given) for key, given in scores.items()}


def _line(row: Mapping[str, str], where: str) -> tuple[Key, float]:
    try:
        key = (row['task'], int(row['sample']), int(row['step']))
        score = float(row[SCORE])
    except (TypeError, ValueError) as error:
        raise ValueError(f'{where}: sample, step and {SCORE} must be numbers: {error}') from error
    if not math.isfinite(score):
        raise ValueError(f'{where}: {SCORE} must be finite, got {row[SCORE]}')
    return key, score


def human_agreement(
    records: Sequence[Mapping[str, Any]], scores: Mapping[Key, float], measure
) -> dict[str, tuple[int, dict[str, Agreement]]]:
    """{suite: (scored episodes, coefficients)}, all suites together under 'all' first.

    Raises ValueError for a score of an episode that is not among the records.
    """
    known = {record_key(record): record for record in records}
    strange = [key for key in scores if key not in known]
    if strange:
        raise ValueError(
            f'{len(strange)} of {len(scores)} scores are for no episode of this stage, such as '
            f'task {strange[0][0]}, sample {strange[0][1]}, step {strange[0][2]}'
        )
    scored = {key: known[key] for key in scores}
    suites = sorted({record['suite'] for record in scored.values()})
    found = {}
    for suite in ('all', *(suites if len(suites) > 1 else ())):
        keys = [key for key, record in scored.items() if suite in ('all', record['suite'])]
        rewards = [measure(scored[key]) for key in keys]
        human = [scores[key] for key in keys]
        found[suite] = len(keys), correlations(rewards, human, [key[0] for key in keys])
    return found
