"""From messages to token ids, a suffix at a time, by the tokenizer's own chat template.

A conversation is written once: the prompt, then after each assistant turn only what the template
puts behind it.  `prove` shows at start-up that this equals rendering the whole, or says why not.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cacherl_jax.chat.parse import HERMES, LLAMA, CallFormat, parse_turn
from cacherl_jax.tools.tool import Call

Message = Mapping[str, Any]
OPENING = ({'role': 'user', 'content': 'Hello.'},)
PROBES = (
    ({'role': 'user', 'content': 'And then?'},),
    ({'role': 'tool', 'name': 'look', 'content': '{"found": "<|im_end|> "}'},),
    (
        {'role': 'tool', 'name': 'look', 'content': 'naïve 1'},
        {'role': 'tool', 'name': 'look', 'content': '{"error": "2"}'},
    ),
)


class TemplateError(ValueError):
    """The chat template cannot be used a suffix at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chat:
    """A tokenizer with its template.  `end_ids` end an assistant turn; experts write the first."""

    tokenizer: Any
    end_ids: tuple[int, ...]

    def render(self, messages: Sequence[Message], tools=(), header: bool = False) -> str:
        """The template's text; `header` adds the opening of an assistant turn."""
        messages = [self._harmless(message) for message in messages]
        return self.tokenizer.apply_chat_template(
            messages, tools=list(tools) or None, add_generation_prompt=header, tokenize=False
        )

    def _harmless(self, message: Message) -> Message:
        """Markers in what users and tools say are broken by a space: text cannot forge a turn."""
        text = message.get('content')
        if message['role'] not in ('user', 'tool') or not text or not self._marker.search(text):
            return message
        broken = self._marker.sub(lambda found: f'{found[0][0]} {found[0][1:]}', text)
        return {**message, 'content': broken}

    @functools.cached_property
    def _marker(self) -> re.Pattern:
        """The strings that the tokenizer reads as one token of their own."""
        added = self.tokenizer.added_tokens_decoder.values()
        return re.compile('|'.join(re.escape(str(token)) for token in added) or r'(?!)')

    def encode(self, text: str) -> list[int]:
        """Ids of template text, with no special token added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at and to parse; never to be encoded again."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def message_text(self, ids: Sequence[int]) -> str:
        """A sampled turn as text, without the end id."""
        ids = list(ids)
        return self.decode(ids[:-1] if ids and ids[-1] in self.end_ids else ids)

    def prompt_ids(self, messages: Sequence[Message], tools=()) -> list[int]:
        """Everything up to the first assistant turn, its header included."""
        return self.encode(self.render(messages, tools, header=True))

    def turn_ids(self, message: Message) -> list[int]:
        """What an assistant writes to say `message`: its text and the end id, nothing else."""
        return self.encode(self._turn_text(OPENING, message))

    def suffix_ids(self, messages: Sequence[Message]) -> list[int]:
        """What the template puts behind an assistant turn: its rest, `messages`, a new header."""
        return self.encode(
            self._suffix_text(OPENING, {'role': 'assistant', 'content': 'Yes.'}, messages)
        )

    @property
    def end_texts(self) -> list[str]:
        """What ends an assistant turn, as text."""
        return [self.decode([number]) for number in self.end_ids]

    def _turn_text(self, before, message):
        header = self.render(before, header=True)
        text = _after(header, self.render([*before, message]), 'an assistant turn')
        ends = [text.rindex(end) + len(end) for end in self.end_texts if end in text]
        if not ends:
            raise TemplateError(
                f'the template ends an assistant turn with {text[-20:]!r}, not with an end id '
                f'{self.end_texts}; give the end ids that the template writes in generation_config'
            )
        return text[: max(ends)]

    def _suffix_text(self, before, message, messages):
        spoken = self.render(before, header=True) + self._turn_text(before, message)
        whole = self.render([*before, message, *messages], header=True)
        return _after(spoken, whole, 'what follows an assistant turn')


def _after(start: str, whole: str, what: str) -> str:
    if not whole.startswith(start):
        place = _first_difference(start, whole)
        before, after = start[place : place + 40], whole[place : place + 40]
        raise TemplateError(
            f'the chat template is not prefix-preserving: rendering {what} changes earlier text '
            f'at character {place}, from {before!r} to {after!r}; '
            'use a template that never rewrites earlier turns'
        )
    return whole[len(start) :]


def _first_difference(start: Sequence, whole: Sequence) -> int:
    """The first place where they differ; the length of the shorter where they never do."""
    pairs = zip(start, whole, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(start), len(whole)))


def conversation_ids(chat: Chat, messages: Sequence[Message], tools=()):
    """Ids of a whole conversation, which of them the assistant wrote, and the turn each belongs to.

    Three lists of one length: ids, sampled (content and end id of assistant messages), turn (-1 in
    the prompt, else the index of the assistant message that a position belongs to or follows).
    """
    said = [i for i, message in enumerate(messages) if message['role'] == 'assistant']
    if not said:
        raise ValueError('a conversation needs at least one assistant message')
    ids = chat.prompt_ids(messages[: said[0]], tools)
    sampled, turn = [False] * len(ids), [-1] * len(ids)
    for number, place in enumerate(said):
        spoken = chat.turn_ids(messages[place])
        until = said[number + 1] if number + 1 < len(said) else None
        behind = chat.suffix_ids(messages[place + 1 : until]) if until else []
        ids += spoken + behind
        sampled += [True] * len(spoken) + [False] * len(behind)
        turn += [number] * (len(spoken) + len(behind))
    return ids, sampled, turn


def tool_message(name: str, text: str) -> Message:
    """The message that carries one tool result."""
    return {'role': 'tool', 'name': name, 'content': text}


def call_message(content: str, calls: Sequence[tuple[str, Mapping]], thinking: str = '') -> Message:
    """An assistant message with calls, in the form that chat templates read."""
    functions = [{'name': name, 'arguments': dict(arguments)} for name, arguments in calls]
    message = {'role': 'assistant', 'content': content}
    if functions:
        message['tool_calls'] = [{'type': 'function', 'function': f} for f in functions]
    return message | ({'reasoning_content': thinking} if thinking else {})


def prove(chat: Chat, tools=(), thinking: bool = False) -> None:
    """Show that writing suffixes equals rendering whole conversations, id for id.

    Tried with calls, several results, a further user message and, where asked, thinking.
    Raises TemplateError with the first difference.
    """
    thought = 'Look first.' if thinking else ''
    turns = (
        call_message('', [('look', {'at': 'sea'})], thought),
        call_message('', [('look', {'at': 'sea'}), ('look', {'at': 'été "x"'})], thought),
        call_message('Done.', [], thought),
    )
    for first in turns:
        for probe in PROBES:
            for last in turns:
                messages = [*OPENING, first, *probe, last]
                _prove_one(chat, messages, tools)


def call_format(chat: Chat) -> CallFormat:
    """How the template writes calls: the format that reads back what it renders.

    Raises TemplateError where none does: a policy taught by such a template would never be heard.
    """
    wanted = [('look', {'at': 'été "x"', 'deep': True}), ('listen', {})]
    text = chat.message_text(chat.turn_ids(call_message('', wanted)))
    made = tuple(Call(name, arguments) for name, arguments in wanted)
    for known in (HERMES, LLAMA):
        if parse_turn(text, known).calls == made:
            return known
    raise TemplateError(
        f'the chat template writes two calls as {text!r}, which no known format reads back; '
        'use a template that writes <tool_call>{"name": ..., "arguments": ...}</tool_call> '
        'or <|python_tag|>{"name": ..., "parameters": ...}'
    )


def _prove_one(chat, messages, tools):
    pieces = conversation_ids(chat, messages, tools)[0]
    whole = chat.encode(chat.render(messages, tools))
    if pieces != whole[: len(pieces)]:
        place = _first_difference(pieces, whole)
        raise TemplateError(
            'the chat template cannot be written a suffix at a time: token '
            f'{place} is {chat.decode(pieces[place : place + 5])!r} in pieces and '
            f'{chat.decode(whole[place : place + 5])!r} in the whole of '
            f'{json.dumps([m["role"] for m in messages])}'
        )
