"""An episode as it is kept on disk, and as rows on the device.  Ids and arrays, never text for ids.

A folder holds numbered segments; a segment is a folder with `records.jsonl` (a header line, then a
line for each record) and `arrays.npz`.  It is written aside and renamed, so a reader sees all of it
or nothing.
"""

import dataclasses
import enum
import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from cacherl_jax.keys import name_number
from cacherl_jax.processes import several, told
from cacherl_jax.rollout_cache.actions import ACTIONS, actions_of
from cacherl_jax.rollout_cache.buffer import Entries
from cacherl_jax.tasks.task import Episode, Task, Termination, Turn
from cacherl_jax.tools.tool import Call, ParseError, Result, Status, Tier
from cacherl_jax.trajectory import Trajectory

SCHEMA = 2
READABLE = (1, SCHEMA)  # 1 had no note
ARRAYS = {'tokens': np.int32, 'sampled': np.bool_, 'logprob': np.float32, 'turn': np.int32}


class Source(enum.IntEnum):
    """Where an episode came from."""

    DEMONSTRATION = 0  # played by an expert
    REJECTION = 1  # sampled by the supervised model and found right
    SUCCESS = 2  # the policy's own, during training
    FAILURE = 3  # kept for contrast
    CORRECTION = 4  # a failure put right


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """One episode with everything later decisions need."""

    tokens: np.ndarray  # i32  [token]  no padding
    sampled: np.ndarray  # bool [token]
    logprob: np.ndarray | None  # f32  [token]; None where the sampling policy is not known
    turn: np.ndarray  # i32  [token]  -1 in the prompt
    turns: tuple[Turn, ...]
    task: str  # id
    suite: str
    split: str
    level: int
    sample: int  # which attempt of its group
    step: int  # training step, or -1
    termination: Termination
    rewards: Mapping[str, float]  # components before their weights; NaN where a judge abstained
    episode_return: float  # under the weights of its making
    version: int  # step of the policy that sampled it; -1: one of before RL
    source: Source
    template_hash: str
    tools_hash: str
    tool_cache_hash: str
    note: str = ''  # what speaks against it, where judges disagreed

    def __post_init__(self):
        arrays = {name: getattr(self, name) for name in ARRAYS}
        shapes = {name: x.shape for name, x in arrays.items() if x is not None}
        if set(shapes.values()) != {(len(self.tokens),)}:
            raise ValueError(f'arrays of a record must be [token] alike, got {shapes}')

    @property
    def identity(self) -> str:
        """Equal for equal ids with equal choices, whoever made them."""
        digest = hashlib.sha256(self.tokens.astype('<i4').tobytes())
        digest.update(np.packbits(self.sampled).tobytes())
        return digest.hexdigest()

    @property
    def worst_tier(self) -> Tier:
        """The least trusted source of any answer; LIVE where nothing was called."""
        return max((r.tier for turn in self.turns for r in turn.results), default=Tier.LIVE)


def record_episode(episode: Episode, arrays: Mapping[str, np.ndarray | None], **known) -> Record:
    """Join an episode, its row of the trajectory (cut to its length) and what the caller knows."""
    row = {
        name: None if arrays[name] is None else np.asarray(arrays[name], kind)
        for name, kind in ARRAYS.items()
    }
    task = episode.task
    return Record(
        **row,
        turns=episode.turns,
        task=task.id,
        suite=task.suite,
        split=task.split,
        level=task.level,
        sample=episode.sample,
        step=episode.step,
        termination=episode.termination,
        **known,
    )


def episode_of(record: Record, task: Task) -> Episode:
    """The episode that was recorded, a play of `task`; ValueError where that is another one's."""
    if record.task != task.id:
        raise ValueError(f'a record of {record.task} is no play of {task.id}')
    return Episode(
        task=task,
        sample=record.sample,
        step=record.step,
        turns=record.turns,
        termination=record.termination,
    )


def append(folder: pathlib.Path, records: Sequence[Record]) -> pathlib.Path:
    """Write a new segment; a kill at any moment leaves the earlier ones as they were."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f'.partial-{os.getpid()}'
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    np.savez(aside / 'arrays.npz', **_pack(records))
    lines = [{'schema': SCHEMA, 'records': len(records)}, *map(_to_json, records)]
    text = ''.join(json.dumps(x, ensure_ascii=False, allow_nan=False) + '\n' for x in lines)
    (aside / 'records.jsonl').write_text(text, encoding='utf-8')
    for path in (*aside.iterdir(), aside):
        _sync(path)
    number = len(_segments(folder))
    while True:  # another process may take a number first: a folder in use is never replaced
        try:
            segment = folder / f'{number:06d}'
            os.rename(aside, segment)
            break
        except OSError:
            if not segment.exists():
                raise
            number += 1
    _sync(folder)
    return segment


def read(folder: pathlib.Path) -> list[Record]:
    """Every record of every whole segment, in the order written."""
    return [record for segment in _segments(folder) for record in _read_segment(segment)]


def read_together(folder: pathlib.Path) -> list[Record]:
    """The same on every process, while another program may write; none where there is no folder.

    Raises RuntimeError where a process does not see what the first one does.
    """
    if not several():
        return read(folder) if folder.exists() else []
    # The first one looks before all others, who then find at least as much.
    names = told(lambda: [one.identity for one in read(folder)] if folder.exists() else [])
    found = {one.identity: one for one in read(folder)} if names else {}
    if missing := [name for name in names if name not in found]:
        raise RuntimeError(f'{folder}: {len(missing)} records are seen by the first process only')
    return [found[name] for name in names]


def as_entries(records: Sequence[Record], context_tokens: int, terms: Sequence[str]) -> Entries:
    """Padded rows for the store; `terms` orders the reward components.

    NaN, where a judge abstained, becomes 0 beside a return that was computed without it.
    """
    longest = max((len(record.tokens) for record in records), default=0)
    if longest > context_tokens:
        raise ValueError(f'a record of {longest} tokens does not fit {context_tokens} tokens')
    padded = {
        name: np.full((len(records), context_tokens), -1 if name == 'turn' else 0, kind)
        for name, kind in ARRAYS.items()
    }
    for row, record in enumerate(records):
        for name, field in padded.items():
            if getattr(record, name) is not None:
                field[row, : len(record.tokens)] = getattr(record, name)
    rewards = np.array([[record.rewards[term] for term in terms] for record in records])
    return Entries(
        trajectory=Trajectory(
            length=_whole(len(record.tokens) for record in records),
            **{name: jnp.asarray(field) for name, field in padded.items()},
        ),
        task=_whole(name_number(record.task) for record in records),
        level=_whole(record.level for record in records),
        episode_return=jnp.asarray([r.episode_return for r in records], jnp.float32),
        reward=jnp.asarray(np.nan_to_num(rewards), jnp.float32).reshape(len(records), len(terms)),
        version=_whole(record.version for record in records),
        source=_whole(record.source for record in records),
        has_behaviour=jnp.asarray([record.logprob is not None for record in records], bool),
        actions=_whole(actions_of(r.turns) for r in records).reshape(len(records), ACTIONS),
        familiar=jnp.zeros(len(records)),
        reuse=jnp.zeros(len(records), jnp.int32),
        added=jnp.zeros(len(records), jnp.int32),
    )


def _whole(values) -> jnp.ndarray:
    return jnp.asarray(list(values), jnp.int32)


def _segments(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.glob('[0-9]*') if path.name.isdigit())


def _sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _pack(records: Sequence[Record]) -> dict[str, np.ndarray]:
    """The arrays of all records end to end, with the length of each."""
    packed = {'length': np.array([len(record.tokens) for record in records], np.int64)}
    packed['has_behaviour'] = np.array([r.logprob is not None for r in records], bool)
    for name, kind in ARRAYS.items():
        fields = [getattr(record, name) for record in records]
        fields = [
            np.zeros(len(record.tokens), kind) if field is None else field
            for record, field in zip(records, fields, strict=True)
        ]
        packed[name] = np.concatenate([np.zeros(0, kind), *fields])
    return packed


def _to_json(record: Record) -> dict:
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(Record)}
    fields = {name: value for name, value in fields.items() if name not in ARRAYS}
    rewards = {term: None if math.isnan(x) else float(x) for term, x in record.rewards.items()}
    turns = [dataclasses.asdict(turn) for turn in record.turns]
    return fields | {
        'turns': turns,
        'rewards': rewards,
        'episode_return': float(record.episode_return),
    }


def _read_segment(segment: pathlib.Path) -> list[Record]:
    lines = (segment / 'records.jsonl').read_text(encoding='utf-8').split('\n')[:-1]
    header, *rows = [json.loads(line) for line in lines]
    if header.get('schema') not in READABLE:
        found = header.get('schema')
        raise ValueError(f'{segment} has schema {found!r}; this reads {READABLE}')
    rows = [{'note': ''} | row if header['schema'] == 1 else row for row in rows]
    with np.load(segment / 'arrays.npz', allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    count = len(arrays['length'])
    if not header['records'] == len(rows) == count:
        raise ValueError(
            f'{segment} says {header["records"]} records, and holds {len(rows)} lines and '
            f'{count} arrays'
        )
    ends = np.cumsum(arrays['length'])
    records = []
    for place, row in enumerate(rows):
        span = slice(ends[place] - arrays['length'][place], ends[place])
        fields = {name: arrays[name][span] for name in ARRAYS}
        if not arrays['has_behaviour'][place]:
            fields['logprob'] = None
        records.append(_from_json(row, fields, segment))
    return records


def _from_json(row: dict, arrays: dict, segment: pathlib.Path) -> Record:
    expected = {field.name for field in dataclasses.fields(Record)} - ARRAYS.keys()
    if row.keys() != expected:
        raise ValueError(
            f'{segment}: fields {sorted(row.keys() ^ expected)} are missing or unknown'
        )
    rewards = {term: math.nan if x is None else x for term, x in row['rewards'].items()}
    known = {
        'turns': tuple(map(_turn, row['turns'])),
        'termination': Termination(row['termination']),
        'source': Source(row['source']),
        'rewards': rewards,
    }
    return Record(**(row | known), **arrays)


def _turn(fields: dict) -> Turn:
    calls = tuple(Call(**x) if 'name' in x else ParseError(**x) for x in fields['calls'])
    results = tuple(
        Result(**(x | {'status': Status(x['status']), 'tier': Tier(x['tier'])}))
        for x in fields['results']
    )
    return Turn(**(fields | {'calls': calls, 'results': results}))
