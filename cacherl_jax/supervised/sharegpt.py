"""A ShareGPT record: {"conversations": [{"from": ..., "value": ...}], "tools": ..., "system": ...}.

Calls are turns of their own (`function_call`, the JSON of one call or of a list of them), and
`observation` turns carry their results in order.  Calls inside of what `gpt` says are Hermes text,
which is another format.
"""

from typing import Any

from cacherl_jax.chat.strict_json import kind
from cacherl_jax.chat.template import Message, call_message
from cacherl_jax.supervised.conversations import arranged
from cacherl_jax.supervised.fields import call_of, json_of, list_of, one_of, only, text_of, tools_of

ROLES = {'system': 'system', 'human': 'user', 'user': 'user', 'gpt': 'assistant'}
ROLES |= {'assistant': 'assistant', 'function_call': 'call', 'observation': 'tool', 'tool': 'tool'}


def read_sharegpt(record: dict) -> dict[str, Any]:
    """Fields of a Conversation."""
    turns, tools = turns_of(record)
    messages = [_message(role, text, f'turn {n}') for n, (role, text) in enumerate(turns, 1)]
    ids = [[''] * len(message.get('tool_calls', ())) for message in messages]
    return {'messages': arranged(messages, ids), 'tools': tools_of(tools)}


def turns_of(record: dict) -> tuple[list[tuple[str, str]], Any]:
    """(role, text) of each turn, the system prompt first, and the tools as they came."""
    optional = ('tools', 'system', 'id')
    record = only(record, 'the record', needed=('conversations',), allowed=optional)
    turns = []
    for number, each in enumerate(list_of(record['conversations'], 'conversations'), 1):
        fields = only(each, f'turn {number}', needed=('from', 'value'))
        role = ROLES[one_of(fields['from'], tuple(ROLES), f'turn {number}, from')]
        turns.append((role, text_of(fields['value'], f'turn {number}, value')))
    system = text_of(record.get('system', ''), 'system')
    return ([('system', system)] if system else []) + turns, record.get('tools')


def _message(role: str, text: str, where: str) -> Message:
    if role == 'call':
        found = json_of(text, where)
        if not isinstance(found, list | dict) or not found:
            raise ValueError(f'{where} must hold a call or a list of calls, got {kind(found)}')
        found = found if isinstance(found, list) else [found]
        return call_message('', [call_of(call, f'{where}, call {n}') for n, call in
                                 enumerate(found, 1)])  # fmt: skip
    if role == 'assistant' and '<tool_call>' in text:
        raise ValueError(f'{where} holds <tool_call>, which is Hermes text: use the format hermes')
    if role == 'assistant' and not text:
        raise ValueError(f'{where} says nothing')
    return {'role': role, 'content': text}
