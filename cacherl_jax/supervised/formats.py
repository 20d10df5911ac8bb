"""Files of trajectories in, conversations out: OpenAI messages, ShareGPT, Hermes text; and back.

A file is JSON Lines (.jsonl), a record a line, or one JSON array (.json).  Whatever does not fit is
refused with its file, its line, what came and what is allowed.
"""

import json
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from cacherl_jax.chat.strict_json import SPACE, decode_json, kind, short, skip_space
from cacherl_jax.supervised.conversations import Conversation, calls_of
from cacherl_jax.supervised.hermes import read_hermes
from cacherl_jax.supervised.openai_messages import read_openai
from cacherl_jax.supervised.sharegpt import read_sharegpt

FORMATS: dict[str, Callable[[dict], dict]] = {
    'openai': read_openai,
    'sharegpt': read_sharegpt,
    'hermes': read_hermes,
}
SHOWN = 10  # refused records that an error tells of


class Imported(NamedTuple):
    """What a file held."""

    conversations: list[Conversation]
    refused: list[str]  # one line for each record that was left out


def read_conversations(
    path: str | os.PathLike,
    form: Literal['openai', 'sharegpt', 'hermes'],
    *,
    malformed: Literal['raise', 'skip'] = 'raise',
    ignored: Sequence[str] = (),
) -> Imported:
    """The conversations of a file, in its order; `ignored` names fields of records to do without.

    Raises ValueError that tells of the first malformed records and how many there are, unless they
    are to be skipped; then they are listed in `refused`.
    """
    if form not in FORMATS:
        raise ValueError(f'format must be one of {sorted(FORMATS)}, got {form!r}')
    if malformed not in ('raise', 'skip'):
        raise ValueError(f"malformed must be 'raise' or 'skip', got {malformed!r}")
    path = pathlib.Path(path)
    conversations, refused = [], []
    for line, record in _records(path):
        source = f'{path}, line {line}'
        try:
            if isinstance(record, ValueError):
                raise record
            fields = {name: x for name, x in _object(record).items() if name not in ignored}
            conversations.append(Conversation(**FORMATS[form](fields), source=source))
        except ValueError as error:
            refused.append(f'{source}: {error}')
    if refused and malformed == 'raise':
        more = f'\nand {len(refused) - SHOWN} more' if len(refused) > SHOWN else ''
        raise ValueError('\n'.join(refused[:SHOWN]) + more)
    if not conversations:
        raise ValueError(f'{path} holds no conversation; {len(refused)} records were refused')
    return Imported(conversations, refused)


def _records(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """(line, decoded value or the ValueError that came instead) of each record."""
    try:
        text = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is not UTF-8: {error.reason} at byte {error.start}') from None
    match path.suffix:
        case '.jsonl':
            # Not splitlines: a JSON string may hold characters that it takes for line breaks.
            for line, written in enumerate(text.split('\n'), 1):
                if written.strip(SPACE):
                    yield line, _whole(written)
        case '.json':
            yield from _elements(path, text)
        case other:
            raise ValueError(f'{path} ends in {other!r}; allowed: .jsonl and .json')


def _whole(written: str) -> Any:
    try:
        value, stop = decode_json(written, skip_space(written, 0))
    except ValueError as error:
        return error
    rest = written[stop:].strip(SPACE)
    return ValueError(f'more text after the record: {short(rest)}') if rest else value


def _elements(path: pathlib.Path, text: str) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON array with the lines they begin at."""

    def broken(why):
        line = text.count('\n', 0, place) + 1
        return ValueError(f'{path}, line {line}: {why}; a .json file holds one array of records')

    place = skip_space(text, 0)
    if not text.startswith('[', place):
        raise broken(f'expected [, got {short(text[place : place + 20])}')
    place, mark = skip_space(text, place + 1), ','
    while not text.startswith(']', place):
        if mark != ',':
            raise broken(f'expected , or ], got {short(text[place : place + 20])}')
        line = text.count('\n', 0, place) + 1
        try:
            value, stop = decode_json(text, place)
        except ValueError as error:
            raise broken(error) from None
        yield line, value
        place = skip_space(text, stop)
        mark = text[place : place + 1]
        place = skip_space(text, place + 1) if mark == ',' else place
    if text[place + 1 :].strip(SPACE):
        raise broken('more text after the array')


def _object(record: Any) -> dict:
    if not isinstance(record, dict):
        raise ValueError(f'a record must be an object, got {kind(record)}')
    return record


def openai_record(conversation: Conversation) -> dict[str, Any]:
    """The conversation as OpenAI messages: arguments as text, results under the ids of calls."""
    messages, waiting, said = [], [], 0
    for number, message in enumerate(conversation.messages):
        written = dict(message)
        if message['role'] == 'tool':
            written = {
                'role': 'tool',
                'tool_call_id': waiting.pop(0),
                'content': message['content'],
            }
        elif message['role'] == 'assistant':
            waiting = [f'call_{number}_{place}' for place in range(len(calls_of(message)))]
            if waiting:
                pairs = zip(waiting, calls_of(message), strict=True)
                written['tool_calls'] = [_written_call(own, call) for own, call in pairs]
            if conversation.learned and not conversation.learned[said]:
                written['weight'] = 0
            said += 1
        messages.append(written)
    tools = [dict(tool) for tool in conversation.tools]
    return {'messages': messages} | ({'tools': tools} if tools else {})


def _written_call(own: str, call) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
    return {
        'id': own,
        'type': 'function',
        'function': {'name': call.name, 'arguments': arguments},
    }


def openai_lines(conversations: Sequence[Conversation]) -> str:
    """JSON Lines that `read_conversations(path, 'openai')` reads back as they were."""
    records = map(openai_record, conversations)
    lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records]
    return ''.join(f'{line}\n' for line in lines)
