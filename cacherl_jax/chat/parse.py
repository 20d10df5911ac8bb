"""What one assistant message says: text in; thinking, content and calls out.  Nothing runs here.

The message is read once from left to right, so that a marker counts only where it stands outside of
JSON strings and outside of thinking.  A call is exact or it is a ParseError: nothing is repaired,
and after a broken call reading goes on only behind its closing marker.
"""

import dataclasses
import functools
import json
import re
from typing import Any

from cacherl_jax.chat.strict_json import SPACE, decode_json, kind, short, skip_space
from cacherl_jax.tools.tool import Call, ParseError


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallFormat:
    """How a family of models writes calls."""

    opening: str  # begins a call
    closing: str  # ends it; empty where calls fill the rest of the message, `;` or lines between
    arguments: str  # the key that holds the arguments
    bare: bool = False  # a message may begin with the call itself, without the opening
    think: str = '<think>'  # begins thinking
    thought: str = '</think>'  # ends it

    def __post_init__(self):
        if not all((self.opening, self.arguments, self.think, self.thought)):
            raise ValueError(f'only closing may be empty, got {self}')
        if self.bare and self.closing:
            raise ValueError(
                f'bare calls fill the message and have no closing, got {self.closing!r}'
            )


HERMES = CallFormat(opening='<tool_call>', closing='</tool_call>', arguments='arguments')
LLAMA = CallFormat(opening='<|python_tag|>', closing='', arguments='parameters', bare=True)


@dataclasses.dataclass(frozen=True)
class ParsedTurn:
    """One message taken apart; white space around thinking and content is dropped."""

    thinking: str  # inside <think>, or before a </think> that nothing opened
    content: str  # outside of thinking and calls
    calls: tuple[Call | ParseError, ...]  # in the order written


def parse_turn(text: str, call_format: CallFormat) -> ParsedTurn:
    """Takes any text apart and never raises; a message without a marker is content."""
    thinking, content, calls = [], [], []
    position = 0
    while position < len(text):
        if call_format.bare and not ''.join(content).strip(SPACE):
            position = skip_space(text, position)
            answer = _other_object(text, position, call_format)
            if not answer and text.startswith('{', position):
                calls, position = _read_calls(text, position, call_format)
            content.append(answer)
            position += len(answer)
        found = _markers(call_format).search(text, position)
        content.append(text[position : found.start() if found else len(text)])
        position = found.end() if found else len(text)
        match found and found[0]:
            case call_format.think:
                stop = (text + call_format.thought).index(call_format.thought, position)
                thinking.append(text[position:stop].strip(SPACE))
                position = stop + len(call_format.thought)
            case call_format.thought:  # the prompt opened it: all so far was thinking, drafts too
                thinking, content, calls = [text[: found.start()].strip(SPACE)], [], []
            case call_format.opening:
                read = _read_block if call_format.closing else _read_calls
                new, position = read(text, position, call_format)
                calls += new
            case call_format.closing:
                reason = f'{call_format.closing} came without {call_format.opening}'
                calls.append(ParseError(reason, content.pop()))
    outside = ''.join(content).strip(SPACE)
    calls += _hidden_call(outside, call_format)
    return ParsedTurn('\n'.join(thinking), outside, tuple(calls))


def render_call(call: Call, call_format: CallFormat = HERMES) -> str:
    """The call as its family writes it, non-ASCII as it is; `parse_turn` gives the call back."""
    body = {'name': call.name, call_format.arguments: dict(call.arguments)}
    written = json.dumps(body, ensure_ascii=False, allow_nan=False)
    if not call_format.closing:
        return written
    return f'{call_format.opening}\n{written}\n{call_format.closing}'


@functools.cache
def _markers(call_format: CallFormat) -> re.Pattern:
    marks = (call_format.think, call_format.thought, call_format.opening, call_format.closing)
    return re.compile('|'.join(re.escape(mark) for mark in marks if mark))


def _read_block(text: str, start: int, call_format: CallFormat) -> tuple[list, int]:
    """The one call before a closing marker, and where reading goes on."""
    call, stop = _read_call(text, start, call_format)
    after = skip_space(text, stop)
    if stop > start and text.startswith(call_format.closing, after):
        return [call], after + len(call_format.closing)
    # An opening inside of broken text may stand in a string, so only a closing is trusted here.
    closing = text.find(call_format.closing, stop)
    if closing < 0:
        reason = f'the call is cut off: expected a JSON object and then {call_format.closing}'
        return [ParseError(reason, text[start:])], len(text)
    if isinstance(call, Call):
        came = short(text[after:closing])
        call = ParseError(f'expected {call_format.closing} after the JSON object, got {came}', '')
    call = dataclasses.replace(call, text=text[start:closing])
    return [call], closing + len(call_format.closing)


def _read_calls(text: str, start: int, call_format: CallFormat) -> tuple[list, int]:
    """The calls that fill the rest of the message, with `;` or a line break between them."""
    calls = []
    while start < len(text) or not calls:
        call, stop = _read_call(text, start, call_format)
        after = skip_space(text, stop)
        apart = text.startswith(';', after) or '\n' in text[stop:after] or after == len(text)
        if isinstance(call, Call) and not apart:
            reason = f'expected ; or a line break after the JSON object, got {short(text[after:])}'
            call = ParseError(reason, text[start:])
        calls.append(call)
        if stop == start or not apart:  # nothing tells where the next call would begin
            return calls, len(text)
        start = after
        if text.startswith(';', after):  # promises a call, so an empty rest is a broken one
            calls += (
                []
                if text[after + 1 :].strip(SPACE)
                else [ParseError('expected a call after ;', '')]
            )
            start = skip_space(text, after + 1)
    return calls, len(text)


def _read_call(text: str, start: int, call_format: CallFormat) -> tuple[Call | ParseError, int]:
    """The call at `start` and where its JSON stops; `start` itself where the JSON is broken."""
    begin = skip_space(text, start)
    try:
        body, stop = decode_json(text, begin)
    except ValueError as error:
        return ParseError(f'expected a JSON object, got {error}', text[start:]), start
    reason = _why_not_a_call(body, call_format.arguments)
    if reason:
        return ParseError(reason, text[begin:stop]), stop
    return Call(body['name'], body[call_format.arguments]), stop


def _why_not_a_call(body: Any, key: str) -> str:
    """Empty for a call; else what came and what is expected."""
    if not isinstance(body, dict):
        return f'expected an object with "name" and "{key}", got {kind(body)}'
    for needed in ('name', key):
        if needed not in body:
            return f'"{needed}" is missing: got the keys {short(list(body))}'
    if not isinstance(body['name'], str) or not body['name']:
        return f'"name" must be a string that is not empty, got {short(body["name"])}'
    if not isinstance(body[key], dict):
        return f'"{key}" must be an object, not text that holds one; got {kind(body[key])}'
    extra = {name: value for name, value in body.items() if name not in ('name', key)}
    if extra and extra != {'type': 'function'}:  # Llama likes to say that a function is one
        return f'expected "name" and "{key}" only, got also {short(extra)}'
    return ''


def _other_object(text: str, start: int, call_format: CallFormat) -> str:
    """Whole JSON at `start` with neither of a call's keys: an answer that is an object."""
    try:
        body, stop = decode_json(text, start)
    except ValueError:
        return ''
    is_answer = isinstance(body, dict) and not {'name', call_format.arguments} & set(body)
    return text[start:stop] if is_answer else ''


def _hidden_call(content: str, call_format: CallFormat) -> list[ParseError]:
    """A call cut off in its opening, or after other text, must not pass for an answer."""
    cuts = range(len(call_format.opening) - 1, 2, -1)  # two characters may begin any other mark
    for cut in (cut for cut in cuts if content.endswith(call_format.opening[:cut])):
        return [ParseError(f'the call is cut off inside {call_format.opening}', content[-cut:])]
    shape = rf'^[ \t]*\{{\s*"name"\s*:[^\n]*"{call_format.arguments}"\s*:'
    found = re.search(shape, content, re.MULTILINE) if call_format.bare else None
    if not found:
        return []
    reason = f'expected a call at the start of the message or after {call_format.opening}'
    return [ParseError(f'{reason}, got one after other text', content[found.start() :])]
