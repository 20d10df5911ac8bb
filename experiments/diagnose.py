"""Why episodes failed, a file to correct them in, and corrections as demonstrations.

    ./launch.sh diagnose runs/small                             # the table, and review.jsonl
    ./launch.sh diagnose runs/small --accept runs/small/review.jsonl

In the review file edit `turns` of an entry and set `corrected` to true.  --accept plays the calls
of those entries live; where the task's own check is content, and the rollout cache's door would let
it in, the episode goes to corrections/ (records as the rollout cache keeps them) and to
corrections.jsonl (messages to learn from).  Only training tasks can be accepted.
"""

import dataclasses
import itertools
import json
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tyro

from cacherl_jax.chat.template import Chat
from cacherl_jax.compose.agent import load_agent, refused, task_source, tool_specifications
from cacherl_jax.compose.command import saved_config
from cacherl_jax.compose.keeping import digest
from cacherl_jax.compose.step import TERMS
from cacherl_jax.config import RunConfig
from cacherl_jax.evaluate.failures import Failure, Kind, failure_table
from cacherl_jax.evaluate.record import content_hash, episode_lines, read_records
from cacherl_jax.evaluate.review import (
    corrected_turns,
    play_correction,
    read_entries,
    review_entry,
)
from cacherl_jax.rewards.facts import gather_facts
from cacherl_jax.rewards.hybrid import hybrid_reward, weights_at
from cacherl_jax.rollout_cache import record
from cacherl_jax.rollout_cache.admission import Door, Outcome
from cacherl_jax.rollout_cache.record import Record, Source, record_episode
from cacherl_jax.run.fetch import fetch
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import EXIT_CODE, Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table
from cacherl_jax.supervised.conversations import Conversation
from cacherl_jax.supervised.dataset import episode_arrays, episode_messages
from cacherl_jax.supervised.formats import openai_lines
from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.tools.execute import live_sessions


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiagnoseSettings:
    """Which episodes, and what is done about them."""

    run: tyro.conf.Positional[pathlib.Path]  # the run's folder
    stage: str = ''  # train, supervised or final; not given: the one written last
    review: pathlib.Path | None = None  # where entries go; not given: RUN/review.jsonl
    accept: pathlib.Path | None = None  # a review file with corrections, to take them up
    json: pathlib.Path | None = None  # where the table goes, with the settings it belongs to


def failed_records(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the episodes that did not succeed, in the order played."""
    return [record for record in records if record['failure']]


def failures_of(failed: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The failure table, with how many of each kind stand in training tasks."""
    table = failure_table(
        (r['task'], Failure(**r['failure'] | {'kind': Kind(r['failure']['kind'])})) for r in failed
    )
    trained = Counter(r['failure']['kind'] for r in failed if r['split'] == 'train')
    return [line | {'training': trained[line['kind']]} for line in table]


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or break its encoding."""
    return ''.join(letter if letter.isprintable() else '?' for letter in text)


def write_review(path: pathlib.Path, failed: Sequence[Mapping[str, Any]]) -> None:
    """An entry each; a file in which somebody corrected something is not written over."""
    if path.exists() and any('"corrected": true' in line for line in path.open(encoding='utf-8')):
        raise Refusal(
            f'{path} holds corrections',
            remedy='take them up with --accept, or give --review another name',
        )
    lines = [json.dumps(review_entry(record)) + '\n' for record in failed]
    write_atomically(path, ''.join(lines))


def task_named(source: Callable[[str, str, int, int], Task], name: str, suites) -> Task:
    """The task of this id; benchmarks number their tasks in another way than their ids do."""
    parts = name.split('/')
    if len(parts) != 4 or parts[0] not in suites or not parts[2].isdecimal():
        raise ValueError(f'no task {name!r:.80} in the suites of the run: {list(suites)}')
    suite, split, level, number = parts[0], parts[1], int(parts[2]), parts[3]
    try:
        first = source(suite, split, level, int(number) if number.isdecimal() else 0)
        if first.id == name:
            return first
        if not first.id.rsplit('/', 1)[1].isdecimal():
            return _listed(source, suite, split, level, name)
    except Refusal:  # a benchmark without tasks of this level
        pass
    raise ValueError(f'no task {name!r:.80}')


def _listed(source, suite: str, split: str, level: int, name: str) -> Task:
    """The task of this id among those of a benchmark, which come round again after the last."""
    first = source(suite, split, level, 0).id
    for place in itertools.count():
        task = source(suite, split, level, place)
        if task.id == name:
            return task
        if place and task.id == first:
            raise ValueError(f'no task {name!r:.80}')


class Corrections:
    """What a run's corrections have to pass, and where they are kept."""

    def __init__(self, folder: pathlib.Path, config: RunConfig, chat: Chat):
        self.folder, self.config, self.chat = folder, config, chat
        self.kept = folder / 'corrections'
        self.door = Door(
            config.admission, {'right answer': lambda e: e.task.score(e) > 0.99}, flags={}
        )
        before = record.read(self.kept) if self.kept.exists() else []
        self.door.seen = {each.identity for each in before}

    def consider(self, entry: Mapping[str, Any], source) -> tuple[Record, Episode]:
        """An entry's record; ValueError says why it is refused."""
        name = entry.get('task')
        task = task_named(source, str(name), self.config.curriculum.suites)
        if task.split != 'train':
            raise ValueError(f'{name} is a {task.split} task, and those teach nothing')
        episode = play_correction(task, corrected_turns(entry), live_sessions(self.config.execute))
        made = self._record(episode)
        verdict = self.door.consider(made, episode)
        if verdict.outcome is not Outcome.ADMITTED:
            raise ValueError(f'{verdict.outcome}: {verdict.reason}, {verdict.detail}')
        return made, episode

    def _record(self, episode: Episode) -> Record:
        arrays = episode_arrays(self.chat, episode) | {'logprob': None}
        length, room = len(arrays['tokens']), self.config.decode.context_tokens
        if length > room:
            raise ValueError(f'{length} tokens, and decode.context_tokens is {room}')
        facts = gather_facts([episode], self.config.facts)
        paid = fetch(hybrid_reward(facts, weights_at(0, self.config.weights), self.config.hybrid))
        return record_episode(
            episode,
            arrays,
            rewards={term: float(paid.raw[term][0]) for term in TERMS},
            episode_return=float(paid.total[0]),
            version=0,
            source=Source.CORRECTION,
            template_hash=digest(self.chat.tokenizer.chat_template or ''),
            tools_hash=digest(json.dumps(tool_specifications(episode.task))),
            tool_cache_hash='',  # played live
        )

    def keep(self, taken: Sequence[tuple[Record, Episode]]) -> None:
        """Write records and messages; what was kept before stays."""
        record.append(self.kept, [made for made, _ in taken])
        file = self.folder / 'corrections.jsonl'
        before = file.read_text(encoding='utf-8') if file.exists() else ''
        spoken = [
            Conversation(
                messages=tuple(episode_messages(episode)),
                tools=tuple(tool_specifications(episode.task)),
            )
            for _, episode in taken
        ]
        write_atomically(file, before + openai_lines(spoken))


def accept(settings: DiagnoseSettings) -> tuple[int, list[list]]:
    """How many corrections were refused, and a row for each entry."""
    config = saved_config(settings.run)
    with refused():
        entries = read_entries(settings.accept)
        source = task_source(config)
    corrections = Corrections(settings.run, config, load_agent(config).chat)
    taken, rows = [], []
    for entry in entries:
        try:
            taken.append(corrections.consider(entry, source))
            rows.append([entry['line'], entry['task'], 'accepted', ''])
        except ValueError as error:
            shown = printable(str(entry.get('task'))), 'refused', printable(str(error))
            rows.append([entry['line'], *shown])
    if taken:
        corrections.keep(taken)
    return len(entries) - len(taken), rows


def diagnose(settings: DiagnoseSettings) -> None:
    """Print the table, write the review file."""
    records = read_records(settings.run, settings.stage)
    failed = failed_records(records)
    table = failures_of(failed)
    columns = ['failure', 'count', 'share', 'of training tasks']
    rows = [[line['kind'], line['count'], line['share'], line['training']] for line in table]
    stage = f'stage {records[0]["stage"]}'
    print_table(f'{settings.run}, {stage}: {len(failed)} of {len(records)} failed', columns, rows)
    for line in table:
        example = line['examples'][0]
        print(f'{line["kind"]}: {line["remedy"]}')
        print(printable(f'    such as {example["task"]}, turn {example["turn"]}: {example["why"]}'))
    review = settings.review or settings.run / 'review.jsonl'
    write_review(review, failed)
    print(f'{review}: {len(failed)} episodes to read or correct')
    if settings.json:
        told = {'settings': plain(settings), 'episodes': len(records), 'failures': table}
        told |= {'hashes': {'episodes': content_hash(episode_lines(settings.run))}}
        told |= {'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')


@refusing()
def main() -> None:
    """The command."""
    settings = tyro.cli(DiagnoseSettings, description=__doc__)
    if settings.accept is None:
        with refusing(ValueError):
            diagnose(settings)
        return
    refusals, rows = accept(settings)
    print_table(f'corrections in {settings.accept}', ['line', 'task', 'verdict', 'why'], rows)
    if len(rows) > refusals:
        print(f'{settings.run}/corrections, corrections.jsonl: {len(rows) - refusals} more')
    if refusals:
        raise SystemExit(EXIT_CODE)


if __name__ == '__main__':
    main()
