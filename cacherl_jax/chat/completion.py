"""A chat completion as a server wrote it.  Bytes in, a checked reply out.

What a server says is untrusted: it is read as strict JSON, and every field has its type or the
whole is no completion.
"""

import dataclasses
import json
from typing import Any

from cacherl_jax.chat.strict_json import decode_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawCall:
    """A call as the server wrote it; its arguments are text and may be no JSON."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """One assistant message."""

    content: str  # empty where the model called tools in place of speaking
    thinking: str
    calls: tuple[RawCall, ...]
    cut: bool  # the limit of tokens ended it
    prompt_tokens: int  # as the server counts them; 0 where it does not say
    completion_tokens: int


def read_reply(body: bytes) -> Reply:
    """The first choice of a chat completion; ValueError where the body is none."""
    try:
        value = decode_json(body.decode())[0]
        choice = value['choices'][0]
        message = choice['message']
        calls = tuple(map(_raw_call, message.get('tool_calls') or ()))
        content = _text(message.get('content'))
        thinking = _text(message.get('reasoning_content') or message.get('reasoning'))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError('a reply that is no chat completion') from None
    usage = value.get('usage')
    usage = usage if isinstance(usage, dict) else {}
    return Reply(
        content=content,
        thinking=thinking,
        calls=calls,
        cut=choice.get('finish_reason') == 'length',
        prompt_tokens=_count(usage.get('prompt_tokens')),
        completion_tokens=_count(usage.get('completion_tokens')),
    )


def error_code(said: str) -> Any:
    """The code within an error's body, None where there is none."""
    try:
        return decode_json(said)[0]['error']['code']
    except (ValueError, LookupError, TypeError):
        return None


def _raw_call(value: Any) -> RawCall:
    function = value['function']
    arguments = function['arguments']
    if not isinstance(arguments, str):  # some servers hand out the object itself
        arguments = json.dumps(arguments)
    return RawCall(
        id=_text(value.get('id')), name=_text(function['name']), arguments=arguments or '{}'
    )


def _text(value: Any) -> str:
    """Text, '' for null; TypeError for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(type(value))
    return value or ''


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
