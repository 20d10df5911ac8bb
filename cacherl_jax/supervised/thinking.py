"""Why this tool now: turns without a thought get one, written by a teacher that sees no future.

A turn is final (no call: the user reads it), user-facing (calls, and words for the user or none) or
analytical (calls, and words that already reason).  A teacher writes the thought of the first two;
analytical words are wrapped as they are.  Calls and results stay untouched.
"""

import dataclasses
import enum
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cacherl_jax.chat.parse import HERMES, CallFormat, parse_turn
from cacherl_jax.chat.strict_json import SPACE, short
from cacherl_jax.chat.template import Message
from cacherl_jax.supervised.conversations import Conversation
from cacherl_jax.supervised.dataset import episode_messages
from cacherl_jax.tasks.task import Episode
from cacherl_jax.tools.tool import specification

ADDRESSED = re.compile(
    r"\?\s*$|\b(?:you|your|yours|you'll|please|sorry|thanks|sure|certainly|of course)\b",
    re.IGNORECASE,
)
THOUGHT_CHARACTERS = 1000  # most that is taken for a thought


class Kind(enum.StrEnum):
    """What the words of an assistant turn are for."""

    USER_FACING = 'user_facing'
    ANALYTICAL = 'analytical'
    FINAL = 'final'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What a teacher is told: everything before a turn, and the turn.  Nothing after it."""

    past: tuple[Message, ...]
    tools: tuple[Mapping, ...]
    turn: Message
    kind: Kind

    @property
    def key(self) -> str:
        """Equal for questions that have the same answer."""
        told = [self.kind, self.past, self.tools, self.turn]
        written = json.dumps(told, sort_keys=True, ensure_ascii=False, separators=(',', ':'))
        return hashlib.sha256(written.encode()).hexdigest()


class Reply(NamedTuple):
    """A teacher's thought, and the tokens it cost."""

    thought: str
    tokens: int = 0


Teacher = Callable[[Question], Reply]


class UnusableThought(ValueError):
    """What a teacher wrote cannot stand before a turn."""


def classify(message: Message) -> Kind:
    """The kind of an assistant turn, from the turn alone: what follows cannot change it."""
    if not message.get('tool_calls'):
        return Kind.FINAL
    words = (message.get('content') or '').strip(SPACE)
    return Kind.USER_FACING if not words or ADDRESSED.search(words) else Kind.ANALYTICAL


def questions(
    conversation: Conversation, kind_of: Callable[[Message], Kind] = classify
) -> dict[int, Question]:
    """What a teacher must answer, by the place of the message; turns with a thought keep it."""
    found = {}
    for place, message in enumerate(conversation.messages):
        if message['role'] != 'assistant' or message.get('reasoning_content'):
            continue
        kind = kind_of(message)
        if kind is not Kind.ANALYTICAL:
            past = conversation.messages[:place]
            found[place] = Question(past=past, tools=conversation.tools, turn=message, kind=kind)
    return found


def with_thoughts(conversation: Conversation, thoughts: Mapping[int, str]) -> Conversation:
    """The conversation with a thought before every assistant turn.

    `thoughts` answers `questions`, place by place; a missing one is a KeyError.  Turns that were
    not asked about are analytical: their words become their thought.
    """
    messages = list(conversation.messages)
    for place, message in enumerate(conversation.messages):
        if message['role'] != 'assistant' or message.get('reasoning_content'):
            continue
        if place in thoughts or not message.get('tool_calls') or not message.get('content'):
            messages[place] = {**message, 'reasoning_content': thoughts[place]}
        else:
            thought = message['content'].strip(SPACE)
            messages[place] = {**message, 'content': '', 'reasoning_content': thought}
    return dataclasses.replace(conversation, messages=tuple(messages))


def checked_thought(thought: str, call_format: CallFormat = HERMES) -> str:
    """The thought, stripped; UnusableThought where it would not be read back as one."""
    thought = thought.strip(SPACE)
    if not thought:
        raise UnusableThought('the thought is empty')
    if len(thought) > THOUGHT_CHARACTERS:
        raise UnusableThought(f'the thought has more than {THOUGHT_CHARACTERS} characters')
    read = parse_turn(f'{call_format.think}{thought}{call_format.thought}.', call_format)
    marks = (call_format.opening, call_format.think, '<|')
    if read.thinking != thought or read.calls or any(mark in thought for mark in marks):
        raise UnusableThought(f'the thought holds a marker: {short(thought)}')
    return thought


def think_episode(episode: Episode, teacher: Teacher) -> Episode:
    """The episode with the teacher's thoughts, nothing else changed but where words are wrapped."""
    conversation = spoken(episode)
    asked = questions(conversation)
    thoughts = {place: checked_thought(teacher(each).thought) for place, each in asked.items()}
    return _thinking(episode, with_thoughts(conversation, thoughts))


def silenced(episode: Episode) -> Episode:
    """The episode with nothing beside its calls: what was written there told why they come now."""
    turns = [
        dataclasses.replace(turn, thinking='', content='' if turn.calls else turn.content)
        for turn in episode.turns
    ]
    return dataclasses.replace(episode, turns=tuple(turns))


def recalled(episodes: Sequence[Episode], thought: Sequence[Conversation]) -> list[Episode]:
    """The episodes with the thoughts of the conversations that are theirs but for thoughts.

    Raises ValueError where an episode has no such conversation, or a turn of it no thought.
    """
    known = {_bare(conversation): conversation for conversation in thought}
    asked = [_bare(spoken(episode)) for episode in episodes]
    lacking = [e.task.id for e, bare in zip(episodes, asked, strict=True) if bare not in known]
    if lacking:
        raise ValueError(
            f'{len(lacking)} of {len(episodes)} demonstrations are not among its {len(thought)} '
            f'conversations, {lacking[0]} for one; make it anew, with at least as many of each '
            'suite and level'
        )
    found = [known[bare] for bare in asked]
    for episode, conversation in zip(episodes, found, strict=True):
        if any(not m.get('reasoning_content') for m in _assistant(conversation.messages)):
            raise ValueError(f'the conversation of {episode.task.id} has a turn without a thought')
    return [_thinking(*pair) for pair in zip(episodes, found, strict=True)]


def spoken(episode: Episode) -> Conversation:
    """The whole conversation of an episode."""
    return Conversation(
        messages=tuple(episode_messages(episode)),
        tools=tuple(specification(tool) for tool in episode.task.tools),
        source=episode.task.id,
    )


def _thinking(episode: Episode, conversation: Conversation) -> Episode:
    """The episode with the thoughts and words of its conversation."""
    # Opening messages of a task may hold examples; the turns are the last ones.
    said = _assistant(conversation.messages)[-len(episode.turns) :]
    turns = [
        dataclasses.replace(turn, thinking=message['reasoning_content'], content=message['content'])
        for turn, message in zip(episode.turns, said, strict=True)
    ]
    return dataclasses.replace(episode, turns=tuple(turns))


def _bare(conversation: Conversation) -> str:
    """Equal before and after thinking, which may make a thought of the words beside calls."""
    told: list[object] = [conversation.tools]
    for message in conversation.messages:
        added = (
            {'reasoning_content', 'content'} if message.get('tool_calls') else {'reasoning_content'}
        )
        told.append({name: x for name, x in message.items() if name not in added})
    return json.dumps(told, sort_keys=True, ensure_ascii=False)


def _assistant(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message['role'] == 'assistant']
