"""One turn of an agent behind an OpenAI-compatible endpoint: messages and tools in, a reply out.

The standard library makes the request: it is one POST, and the retries must stay within one total
time.  The key comes from the environment, goes into one header and to no other host, and stands in
no message.  What the server says is untrusted: it is read as strict JSON and checked.
"""

import dataclasses
import http.client
import ipaddress
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import tenacity

from cacherl_jax.chat.strict_json import decode_json
from cacherl_jax.policy.sample import SamplingSettings
from cacherl_jax.rewards.endpoint import EndpointError, EndpointSettings, Unanswered, read_key

MOST_BYTES = 4 * 2**20  # of a reply
CHUNK_BYTES = 2**16
PASSING = {408, 409, 425, 429, 500, 502, 503, 504, 529}  # to ask again may help
HOPELESS = {401, 403, 404, 405}  # every request would fail alike
SHOWN_CHARACTERS = 300  # of what a server says when it refuses
LONGEST_WAIT_SECONDS = 60.0  # a server that wants more is not waited for
PATIENCE = 8  # requests in a row without a reply, after which something is wrong with all of them


class ContextFull(Exception):
    """The conversation is longer than the model can read."""


class _Passing(Exception):
    """May be over soon; `after_seconds` is how long the server asks to be left alone."""

    def __init__(self, why: str, after_seconds: float = 0.0):
        super().__init__(why)
        self.after_seconds = after_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawCall:
    """A call as the server wrote it; its arguments are text and may be no JSON."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """One assistant message."""

    content: str
    thinking: str
    calls: tuple[RawCall, ...]
    cut: bool  # the limit of tokens ended it
    prompt_tokens: int  # as the server counts them; 0 where it does not say
    completion_tokens: int


class ChatEndpoint:
    """Asks for replies, from several threads at once, and counts what that took."""

    def __init__(
        self, settings: EndpointSettings, sampling: SamplingSettings, budget_seconds: float = 300.0
    ):
        """`budget_seconds` is for one reply with all its retries."""
        _refuse_bare_key(settings)
        self.settings, self.budget_seconds = settings, budget_seconds
        self._key = read_key(settings)
        self._body = {'model': settings.model, 'stream': False, 'max_tokens': settings.max_tokens}
        self._body |= {'temperature': sampling.temperature}
        self._body |= {'top_p': sampling.top_p} if sampling.top_p < 1 else {}
        self.usage = {'replies': 0, 'unanswered': 0, 'prompt_tokens': 0, 'completion_tokens': 0}
        self._silence = 0
        self._lock = threading.Lock()

    def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Reply:
        """The next message.

        Raises Unanswered where none could be had within the budget, ContextFull, and EndpointError
        for what is wrong with every request.
        """
        body = self._body | {'messages': list(messages)} | ({'tools': list(tools)} if tools else {})
        try:
            found = self._ask(json.dumps(body).encode())
        except Unanswered as error:
            self._count_silence(error)
            raise
        with self._lock:
            self._silence = 0
            self.usage['replies'] += 1
            self.usage['prompt_tokens'] += found.prompt_tokens
            self.usage['completion_tokens'] += found.completion_tokens
        return found

    def _count_silence(self, error: Unanswered) -> None:
        with self._lock:
            self.usage['unanswered'] += 1
            self._silence += 1
            lasting = self._silence >= PATIENCE
        if lasting:
            raise EndpointError(f'{PATIENCE} requests in a row had no reply; the last: {error}')

    def _ask(self, body: bytes) -> Reply:
        deadline = time.monotonic() + self.budget_seconds
        first = self.settings.first_wait_seconds
        backoff = tenacity.wait_exponential_jitter(
            multiplier=first, max=LONGEST_WAIT_SECONDS, jitter=first
        )
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Passing),
            stop=lambda state: time.monotonic() + state.upcoming_sleep >= deadline,
            wait=lambda state: max(backoff(state), state.outcome.exception().after_seconds),
            reraise=True,
        )
        try:
            return retrying(self._attempt, body, deadline)
        except _Passing as last:
            raise Unanswered(str(last)) from None

    def _attempt(self, body: bytes, deadline: float) -> Reply:
        seconds = min(self.settings.attempt_seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise Unanswered('no time left')
        request = urllib.request.Request(
            self.settings.url.rstrip('/') + '/chat/completions',
            data=body,
            headers={'Content-Type': 'application/json'}
            | ({'Authorization': f'Bearer {self._key}'} if self._key else {}),
        )
        try:
            with _OPENER.open(request, timeout=seconds) as response:
                return read_reply(_read(response, time.monotonic() + seconds))
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, http.client.HTTPException) as error:  # refused, reset, out of time
            raise _Passing(f'{request.full_url}: {type(error).__name__}') from None

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        """What a status other than 200 means for this request, and for all."""
        try:
            said = error.read(MOST_BYTES).decode(errors='replace')
        except (OSError, http.client.HTTPException):
            said = ''
        if _error_code(said) == 'context_length_exceeded':
            return ContextFull()
        shown = (said.replace(self._key, '***') if self._key else said)[:SHOWN_CHARACTERS]
        why = f'{self.settings.url} answered {error.code}: {shown}'
        if error.code in PASSING:
            return _Passing(why, _seconds(error.headers.get('Retry-After')))
        if error.code in HOPELESS or 300 <= error.code < 400:
            return EndpointError(f'{why}; check the url, the model and the key')
        return Unanswered(why)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key would follow to wherever the redirect leads."""

    def redirect_request(self, *arguments):
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _refuse_bare_key(settings: EndpointSettings) -> None:
    parts = urllib.parse.urlsplit(settings.url)
    if parts.scheme == 'https' or not settings.key_variable:
        return
    try:
        near = ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        near = parts.hostname == 'localhost'
    if not near:
        raise ValueError(
            f'{settings.key_variable} would travel unencrypted to {parts.hostname}; '
            'give an https url, or no key'
        )


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body; a server that drips is given up when the time is over."""
    parts, size = [], 0
    while chunk := response.read1(CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > MOST_BYTES:
            raise _Passing(f'a reply of more than {MOST_BYTES} bytes')
        if time.monotonic() > deadline:
            raise _Passing('a reply that took too long')
    return b''.join(parts)


def _seconds(header: str | None) -> float:
    """A Retry-After of whole seconds, as far as it is waited for; a date is not."""
    return min(float(header), LONGEST_WAIT_SECONDS) if header and header.isdecimal() else 0.0


def _error_code(said: str) -> Any:
    try:
        value = decode_json(said)[0]
        return value['error']['code']
    except (ValueError, LookupError, TypeError):
        return None


def read_reply(body: bytes) -> Reply:
    """A chat completion's first choice; what is none may be a proxy's page, and passes."""
    try:
        value = decode_json(body.decode())[0]
        choice = value['choices'][0]
        message = choice['message']
        calls = tuple(map(_raw_call, message.get('tool_calls') or ()))
        content = _text(message.get('content'))
        thinking = _text(message.get('reasoning_content') or message.get('reasoning'))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _Passing('a reply that is no chat completion') from None
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
