"""A record with calls as Hermes and Qwen write them: text with <tool_call>, <think> and the like.

The turns stand under `conversations` (from, value) or under `messages` (role, content).  Where the
record has no `tools`, they are read from <tools> in the system prompt; that prompt is then left
out, from "# Tools" on or whole, because the chat template declares tools in words of its own.
"""

import re
from typing import Any

from cacherl_jax.chat.parse import HERMES, parse_turn
from cacherl_jax.chat.strict_json import SPACE, decode_json, short, skip_space
from cacherl_jax.chat.template import Message, call_message
from cacherl_jax.supervised.conversations import arranged
from cacherl_jax.supervised.fields import list_of, one_of, only, text_of, tools_of
from cacherl_jax.supervised.sharegpt import turns_of
from cacherl_jax.tools.tool import ParseError

ROLES = ('system', 'user', 'assistant', 'tool')
DECLARED = re.compile(r'<tools>\s*([\[{].*?)</tools>', re.DOTALL)
RESPONSE = re.compile(r'<tool_response>(.*?)</tool_response>', re.DOTALL)


def read_hermes(record: dict) -> dict[str, Any]:
    """Fields of a Conversation."""
    turns, tools = _turns(record)
    if not tools:
        turns, tools = _declared(turns)
    messages = [
        message
        for number, (role, text) in enumerate(turns, 1)
        for message in _messages(role, text, f'turn {number}')
    ]
    ids = [[''] * len(message.get('tool_calls', ())) for message in messages]
    return {'messages': arranged(messages, ids), 'tools': tools_of(tools)}


def _turns(record: dict) -> tuple[list[tuple[str, str]], Any]:
    if 'messages' not in record:
        return turns_of(record)
    record = only(record, 'the record', needed=('messages',), allowed=('tools', 'id'))
    turns = []
    for number, each in enumerate(list_of(record['messages'], 'messages'), 1):
        where = f'message {number}'
        fields = only(each, where, needed=('role', 'content'), allowed=('name',))
        role = one_of(fields['role'], ROLES, f'{where}, role')
        turns.append((role, text_of(fields['content'], f'{where}, content')))
    return turns, record.get('tools')


def _declared(turns):
    """Turns without the declaration of tools, and the tools it declared."""
    found = DECLARED.search(turns[0][1]) if turns[0][0] == 'system' else None
    if not found:
        return turns, None
    before, mark, _ = turns[0][1].partition('# Tools')
    kept = before.strip(SPACE) if mark else ''
    return ([('system', kept)] if kept else []) + turns[1:], _listed(found[1])


def _listed(text: str) -> list:
    """One array of tools, or a tool after the other."""
    tools, place = [], 0
    while (place := skip_space(text, place)) < len(text):
        try:
            value, place = decode_json(text, place)
        except ValueError as error:
            raise ValueError(f'<tools> in the system prompt: {error}') from None
        tools += value if isinstance(value, list) else [value]
    return tools


def _messages(role: str, text: str, where: str) -> list[Message]:
    if role == 'call':
        raise ValueError(f'{where} is a function_call turn, not Hermes text: use sharegpt')
    if role == 'tool':
        return _results(text, where)
    if role != 'assistant':
        answers = RESPONSE.fullmatch(text.strip(SPACE)) if role == 'user' else None
        return _results(text, where) if answers else [{'role': role, 'content': text}]
    turn = parse_turn(text, HERMES)
    broken = [call for call in turn.calls if isinstance(call, ParseError)]
    if broken:
        raise ValueError(f'{where}: {broken[0].reason}, in {short(broken[0].text)}')
    if not turn.calls and not turn.content:
        raise ValueError(f'{where} says nothing: it has neither an answer nor a call')
    calls = [(call.name, call.arguments) for call in turn.calls]
    return [call_message(turn.content, calls, turn.thinking)]


def _results(text: str, where: str) -> list[Message]:
    """One message for each <tool_response>; text without any is one result."""
    if not RESPONSE.search(text):
        return [{'role': 'tool', 'content': text}]
    rest = RESPONSE.sub('', text).strip(SPACE)
    if rest:
        raise ValueError(f'{where} has text outside of <tool_response>: {short(rest)}')
    found = RESPONSE.findall(text)
    return [{'role': 'tool', 'content': each.strip('\n')} for each in found]
