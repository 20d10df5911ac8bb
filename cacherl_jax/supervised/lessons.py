"""What is learned beside bare demonstrations: thoughts before turns, conversations of files."""

from collections.abc import Callable, Sequence

from cacherl_jax.chat.parse import CallFormat
from cacherl_jax.chat.template import Chat
from cacherl_jax.supervised.conversations import conversation_rows
from cacherl_jax.supervised.dataset import Arrays
from cacherl_jax.supervised.formats import read_conversations
from cacherl_jax.supervised.rules import rule_teacher
from cacherl_jax.supervised.thinking import recalled, silenced, think_episode
from cacherl_jax.supervised.update import SupervisedSettings
from cacherl_jax.tasks.task import Episode


def with_thinking(episodes: Sequence[Episode], thinking: str) -> list[Episode]:
    """The demonstrations as `SupervisedSettings.thinking` wants them.

    Raises ValueError where the rules, or the file, have no thought for one.
    """
    if thinking == 'none':
        return list(episodes)
    if thinking == 'silent':
        return [silenced(episode) for episode in episodes]
    if thinking == 'rules':
        return [think_episode(episode, rule_teacher) for episode in episodes]
    try:
        return recalled(episodes, read_conversations(thinking, 'openai').conversations)
    except ValueError as error:
        raise ValueError(f'supervised.thinking {thinking}: {error}') from None


def imported_arrays(
    chat: Chat,
    settings: SupervisedSettings,
    context_tokens: int,
    call_format: CallFormat,
    tell: Callable[[str], None] = print,
) -> list[Arrays]:
    """The conversations of `files` that fit the context, a line about each file to `tell`.

    Raises ValueError for a file that holds none, and FileNotFoundError for one that is not there.
    """
    arrays = []
    for file in settings.files:
        found = read_conversations(file, settings.format, malformed=settings.malformed)
        rows = conversation_rows(chat, found.conversations, context_tokens, call_format)
        malformed = f'; {len(found.refused)} malformed records skipped' if found.refused else ''
        tell(f'{file}: {rows.report()}{malformed}')
        arrays += rows.arrays
    return arrays
