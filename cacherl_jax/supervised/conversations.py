"""A conversation to learn from, whoever recorded it: what must hold of it, and its rows.

Messages are kept in the form that chat templates read, with results in the order of their calls.  A
conversation that no episode of ours could have been is refused; nothing is repaired.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cacherl_jax.chat.parse import HERMES, CallFormat, parse_turn
from cacherl_jax.chat.strict_json import SPACE, short
from cacherl_jax.chat.template import Chat, Message, tool_message
from cacherl_jax.supervised.dataset import Arrays, conversation_arrays
from cacherl_jax.tools.tool import Call


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages and the tools declared in their prompt."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping, ...] = ()  # as `specification` gives them
    learned: tuple[bool, ...] = ()  # of each assistant message; empty: every one is learned
    source: str = ''  # the file and line it was read from

    def __post_init__(self):
        said = [message for message in self.messages if message['role'] == 'assistant']
        _check_turns_of_speech(self.messages)
        if not said:
            raise ValueError('there is no assistant message, so there is nothing to learn')
        if self.learned and len(self.learned) != len(said):
            raise ValueError(f'learned has {len(self.learned)} flags for {len(said)} messages')
        if self.learned and not any(self.learned):
            raise ValueError('every assistant message has weight 0, so there is nothing to learn')
        declared = [tool['function']['name'] for tool in self.tools]
        if len(set(declared)) < len(declared):
            raise ValueError(f'a tool is declared twice: {sorted(declared)}')
        strangers = {call.name for m in said for call in calls_of(m)} - set(declared)
        if strangers:
            raise ValueError(
                f'calls of {sorted(strangers)}, and the tools declared are {sorted(declared)}; '
                'declare every tool that is called'
            )


def calls_of(message: Message) -> tuple[Call, ...]:
    """The calls of an assistant message."""
    functions = [call['function'] for call in message.get('tool_calls', ())]
    return tuple(Call(function['name'], function['arguments']) for function in functions)


def _check_turns_of_speech(messages: Sequence[Message]) -> None:
    """System first if at all, then the user; never two assistant messages in a row."""
    roles = [message['role'] for message in messages]
    if 'system' in roles[1:]:
        raise ValueError(
            f'message {roles.index("system", 1) + 1} is from system, which may only come first'
        )
    opening = roles[1:2] if roles[:1] == ['system'] else roles[:1]
    if opening != ['user']:
        raise ValueError(f'the first message after system must be from user, got {opening}')
    for number in range(1, len(roles)):
        if roles[number - 1 : number + 1] == ['assistant', 'assistant']:
            raise ValueError(
                f'messages {number} and {number + 1} are both from assistant; join them, or give '
                'what was said between them'
            )


def arranged(messages: Sequence[Message], ids: Sequence[Sequence[str]]) -> tuple[Message, ...]:
    """Messages with their results named after their calls and put in the order of the calls.

    A tool message may carry `id` and `name`; `ids` holds the ids of the calls of each message, ''
    where a format has none: then results belong to calls in order.  Only a conversation that ends
    there may leave calls without a result.
    """
    found, waiting = [], []
    for number, (message, own) in enumerate(zip(messages, ids, strict=True), 1):
        if message['role'] == 'tool':
            _give(waiting, message, number)
            continue
        if any(call['result'] is None for call in waiting):
            names = [call['name'] for call in waiting if call['result'] is None]
            raise ValueError(
                f'message {number} comes before the results of the calls of {names}; '
                'every call needs a tool message'
            )
        found += [call['result'] for call in waiting]
        named = [call.name for call in calls_of(message)] if own else []
        if len(set(own) - {''}) < len([each for each in own if each]):
            raise ValueError(f'message {number} has a call id twice: {list(own)}')
        pairs = zip(own, named, strict=True)
        waiting = [{'id': each, 'name': name, 'result': None} for each, name in pairs]
        found.append(message)
    return (*found, *(call['result'] for call in waiting if call['result'] is not None))


def _give(waiting: list[dict], message: Message, number: int) -> None:
    """Put a result beside the call that it answers."""
    wanted, name = message.get('id', ''), message.get('name', '')
    still = [call for call in waiting if call['result'] is None]
    fitting = [call for call in still if call['id'] == wanted]
    if not fitting:
        raise ValueError(
            f'message {number} is a result for call id {wanted!r}; calls that wait: '
            f'{[(call["id"], call["name"]) for call in still]}'
        )
    call = fitting[0]
    if name and name != call['name']:
        raise ValueError(
            f'message {number} is a result of {name!r}, and the call it answers is of '
            f'{call["name"]!r}'
        )
    call['result'] = tool_message(call['name'], message['content'])


class Rows(NamedTuple):
    """What of a list of conversations can be learned."""

    arrays: list[Arrays]
    kept: list[int]  # which conversations they are
    too_long: dict[int, int]  # tokens of those that are longer than the context

    def report(self) -> str:
        """How many were kept, and how long the others are."""
        if not self.too_long:
            return f'{len(self.kept)} conversations, none longer than the context'
        return (
            f'{len(self.kept)} conversations kept, {len(self.too_long)} left out because they are '
            f'longer than the context; the longest has {max(self.too_long.values())} tokens'
        )


def learned_arrays(
    chat: Chat, conversation: Conversation, call_format: CallFormat = HERMES
) -> Arrays:
    """Ids with the exact mask of what is learned; what is learned reads back as what was said.

    Raises ValueError where the chat template, or a marker in the text, would teach anything else:
    a lost call, text that ends its own turn, a thought that is read as an answer.
    """
    said = [message for message in conversation.messages if message['role'] == 'assistant']
    for number, message in enumerate(said, 1):
        _check_reads_back(chat, message, number, call_format)
    arrays = conversation_arrays(chat, conversation.messages, conversation.tools)
    if conversation.learned:
        flags = np.array([*conversation.learned, False])  # the last is for -1, the prompt
        arrays['sampled'] &= flags[arrays['turn']]
    return arrays


def _check_reads_back(chat, message, number, call_format):
    ids = chat.turn_ids(message)
    if sum(token in chat.end_ids for token in ids) != 1:
        raise ValueError(
            f'assistant message {number} holds a marker that ends a turn in its text: '
            f'{short(chat.decode(ids))}'
        )
    read = parse_turn(chat.message_text(ids), call_format)
    wrote = (
        message.get('reasoning_content', '').strip(SPACE),
        (message.get('content') or '').strip(SPACE),
        calls_of(message),
    )
    for part, before, after in zip(
        ('thinking', 'content', 'calls'),
        wrote,
        (read.thinking, read.content, read.calls),
        strict=True,
    ):
        if before != after:
            raise ValueError(
                f'assistant message {number} has the {part} {str(before)[:80]!r} and would be '
                f'learned as {str(after)[:80]!r}; use a chat template that writes {part}, and keep '
                f'{call_format.opening} and {call_format.think} out of plain text'
            )


def conversation_rows(
    chat: Chat,
    conversations: Sequence[Conversation],
    context_tokens: int,
    call_format: CallFormat = HERMES,
) -> Rows:
    """Rows of the conversations that fit the context; the others are counted, never cut."""
    arrays, kept, too_long = [], [], {}
    for place, conversation in enumerate(conversations):
        try:
            row = learned_arrays(chat, conversation, call_format)
        except ValueError as error:
            raise ValueError(f'{conversation.source or f"conversation {place}"}: {error}') from None
        if len(row['tokens']) > context_tokens:
            too_long[place] = len(row['tokens'])
            continue
        arrays.append(row)
        kept.append(place)
    if not kept:
        raise ValueError(
            f'none of {len(conversations)} conversations fits: context_tokens is {context_tokens}, '
            f'the shortest has {min(too_long.values(), default=0)} tokens; raise context_tokens'
        )
    return Rows(arrays, kept, too_long)
