"""Put a thought before every assistant turn: why this tool now, by a teacher that sees no future.

    ./launch.sh think demonstrations --out thinking.jsonl
    OPENAI_API_KEY=... ./launch.sh think some.jsonl --format openai --out thinking.jsonl \\
        --teacher endpoint --endpoint.url https://HOST/v1 --endpoint.model NAME --budget.calls 500

Thoughts are kept beside the output (OUT.thoughts): a run that was stopped, or whose budget was used
up, goes on when the same command is given again.  The output is JSON Lines of OpenAI messages.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Literal

import tyro

from cacherl_jax.compose.agent import demonstrations, refused, tool_specifications
from cacherl_jax.run.files import write_atomically
from cacherl_jax.run.refusal import Refusal, refusing
from cacherl_jax.run.results import plain, versions
from cacherl_jax.run.terminal import print_table, progress
from cacherl_jax.supervised.augment import Augmented, Budget, Journal, augment
from cacherl_jax.supervised.conversations import Conversation
from cacherl_jax.supervised.dataset import episode_messages
from cacherl_jax.supervised.endpoint import EndpointSettings, endpoint_teacher
from cacherl_jax.supervised.formats import openai_lines, read_conversations
from cacherl_jax.supervised.rules import rule_teacher
from cacherl_jax.supervised.thinking import questions
from cacherl_jax.tasks.suite import LEVELS, draw
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tools.execute import live_sessions


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThinkSettings:
    """What is thought about, and by whom."""

    source: tyro.conf.Positional[str]  # a .jsonl or .json file, or: demonstrations
    out: pathlib.Path  # where the conversations go
    format: Literal['openai', 'sharegpt', 'hermes'] = 'openai'  # of the file
    malformed: Literal['raise', 'skip'] = 'raise'  # what happens to records that are refused
    ignored: tuple[str, ...] = ()  # fields of records to do without
    demonstrations: int = 16  # of each suite and level, where they are the source
    teacher: Literal['rules', 'endpoint'] = 'rules'  # rules know the built-in suites only
    endpoint: EndpointSettings | None = None
    budget: Budget = Budget()
    json: pathlib.Path | None = None  # where the counts go, with the settings they belong to

    def __post_init__(self):
        if (self.teacher == 'endpoint') != (self.endpoint is not None):
            raise ValueError(
                f'teacher is {self.teacher!r} and endpoint is {self.endpoint}; '
                'give endpoint.model with the teacher endpoint, and only there'
            )
        if self.demonstrations < 1:
            raise ValueError(f'demonstrations must be at least 1, got {self.demonstrations}')


def read_source(settings: ThinkSettings) -> tuple[list[Conversation], list[str]]:
    """The conversations, and a line for each record that was left out."""
    if settings.source != 'demonstrations':
        return read_conversations(
            settings.source,
            settings.format,
            malformed=settings.malformed,
            ignored=settings.ignored,
        )
    tasks = [
        task
        for suite in SUITES
        for level in LEVELS
        for task in draw(suite, 'train', level, settings.demonstrations)
    ]
    return [
        Conversation(
            messages=tuple(episode_messages(episode)),
            tools=tuple(tool_specifications(episode.task)),
            source=episode.task.id,
        )
        for episode in demonstrations(tasks, live_sessions())
    ], []


@contextlib.contextmanager
def user_mistakes() -> Iterator[None]:
    """Files and servers that refuse are told in one message."""
    try:
        with refused():
            yield
    except OSError as error:
        raise Refusal(str(error)) from error


def think(settings: ThinkSettings) -> tuple[Augmented, list[str]]:
    """Reads, asks, writes the output; what came of it."""
    with user_mistakes():
        found, left_out = read_source(settings)
        teacher, name = rule_teacher, 'rules'
        if settings.endpoint:
            teacher, name = endpoint_teacher(settings.endpoint), settings.endpoint.teacher
        journal = Journal(settings.out.with_name(settings.out.name + '.thoughts'), name)
        distinct = {each.key for one in found for each in questions(one).values()}
        with progress('thoughts', len(distinct)) as advance:
            done = augment(found, teacher, journal=journal, budget=settings.budget, tell=advance)
        write_atomically(settings.out, openai_lines(done.conversations))
    return done, left_out


@refusing()
def main() -> None:
    """The command."""
    with refusing(ValueError):
        settings = tyro.cli(ThinkSettings, description=__doc__)
    done, left_out = think(settings)
    counts = {'conversations': len(done.kept), 'malformed': len(left_out)} | done.counts
    for line in left_out:
        print(line)
    print_table(str(settings.out), ('what', 'number'), list(counts.items()))
    if settings.json:
        told = {'settings': plain(settings), 'counts': counts, 'versions': versions()}
        write_atomically(settings.json, json.dumps(told, indent=2) + '\n')
    if done.counts['left_out']:
        raise Refusal(
            f'{done.counts["left_out"]} conversations have not all of their thoughts',
            remedy='give the same command again; raise the budget where it was used up',
        )


if __name__ == '__main__':
    main()
