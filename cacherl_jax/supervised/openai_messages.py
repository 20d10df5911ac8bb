"""A record of OpenAI chat messages: {"messages": [...], "tools": [...]}; arguments as text."""

from typing import Any

from cacherl_jax.chat.strict_json import short
from cacherl_jax.chat.template import Message, call_message
from cacherl_jax.supervised.conversations import arranged
from cacherl_jax.supervised.fields import call_of, list_of, one_of, only, text_of, tools_of

ROLES = {'system': 'system', 'developer': 'system', 'user': 'user', 'tool': 'tool'}
ROLES |= {'assistant': 'assistant'}
ALLOWED = {
    'tool': ('tool_call_id', 'name'),
    'assistant': ('content', 'tool_calls', 'reasoning_content', 'weight'),
}


def read_openai(record: dict) -> dict[str, Any]:
    """Fields of a Conversation."""
    allowed = ('tools', 'parallel_tool_calls')
    record = only(record, 'the record', needed=('messages',), allowed=allowed)
    messages, ids, learned = [], [], []
    for number, each in enumerate(list_of(record['messages'], 'messages'), 1):
        message, own, weight = _message(each, f'message {number}')
        messages.append(message)
        ids.append(own)
        learned += [weight] if message['role'] == 'assistant' else []
    return {
        'messages': arranged(messages, ids),
        'tools': tools_of(record.get('tools')),
        'learned': () if all(learned) else tuple(learned),
    }


def _message(value: Any, where: str) -> tuple[Message, list[str], bool]:
    """The message, the ids of its calls, and whether it is learned."""
    came = value.get('role') if isinstance(value, dict) else None
    role = ROLES[one_of(came, tuple(ROLES), f'{where}, role')]
    needed = ('role',) if role == 'assistant' else ('role', 'content')
    fields = only(value, where, needed=needed, allowed=ALLOWED.get(role, ()))
    content = text_of(fields.get('content', ''), f'{where}, content')
    if role == 'tool':
        given = {'id': fields.get('tool_call_id', ''), 'name': fields.get('name', '')}
        return {'role': role, 'content': content} | given, [], True
    if role != 'assistant':
        return {'role': role, 'content': content}, [], True
    thinking = text_of(fields.get('reasoning_content', ''), f'{where}, reasoning_content')
    weight = fields.get('weight', 1)
    if weight not in (0, 1):
        raise ValueError(f'{where}, weight must be 0 or 1, got {short(weight)}')
    found = list_of(fields.get('tool_calls', []), f'{where}, tool_calls', empty=True)
    calls = [_call(each, f'{where}, call {n}') for n, each in enumerate(found, 1)]
    if not calls and not content:
        raise ValueError(f'{where} says nothing: it has neither content nor tool_calls')
    message = call_message(content, [call for call, _ in calls], thinking)
    return message, [own for _, own in calls], bool(weight)


def _call(value: Any, where: str):
    fields = only(value, where, needed=('function',), allowed=('id', 'type', 'index'))
    one_of(fields.get('type', 'function'), ('function',), f'{where}, type')
    return call_of(fields['function'], where), text_of(fields.get('id', ''), f'{where}, id')
