"""One request to an OpenAI-compatible chat endpoint, within a total time.  Messages in, text out.

The standard library's client is enough for one POST: the `openai` package would bring ten more
packages and a retry policy of its own inside this one.  The key comes from an environment variable,
goes into one header, follows no redirect and stands in no message.
"""

import dataclasses
import http.client
import json
import os
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

import tenacity

from cacherl_jax.chat.strict_json import decode_json

MOST_BYTES = 2**20  # of a reply
PASSING = {408, 409, 425, 429, 500, 502, 503, 504}  # to ask again may help
ABOUT_THE_TEXT = {400, 413, 422}  # this request is refused, another need not be
SHOWN_CHARACTERS = 200  # of what a server says when it refuses


class Unanswered(Exception):
    """No reply to this request within its time; the next request may well have one."""


class EndpointError(Exception):
    """Every request would fail alike: wrong address, key or model."""


class _TryAgain(Exception):
    """A failure that may pass; `after_seconds` is how long the server asks to be left alone."""

    def __init__(self, why: str, after_seconds: float = 0.0):
        super().__init__(why)
        self.after_seconds = after_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Where the model is, and how long it is waited for."""

    url: str  # up to and with /v1
    model: str
    key_variable: str = ''  # environment variable that holds the key; empty: none is sent
    attempt_seconds: float = 30.0  # for one attempt
    first_wait_seconds: float = 0.5  # between attempts; doubles, drawn by chance up to that
    max_tokens: int = 256  # of a reply

    def __post_init__(self):
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ('http', 'https') or not parts.hostname or '@' in parts.netloc:
            raise ValueError(
                'url must be http(s)://host/v1 without a user or password in it, got '
                f'{parts.scheme}://{parts.hostname or ""}{parts.path}'
            )
        if not self.model:
            raise ValueError('model must be named')
        if not (self.attempt_seconds > 0 and self.first_wait_seconds > 0):
            raise ValueError(
                'attempt_seconds and first_wait_seconds must be above 0, '
                f'got {self.attempt_seconds} and {self.first_wait_seconds}'
            )
        if self.max_tokens < 1:
            raise ValueError(f'max_tokens must be at least 1, got {self.max_tokens}')


def read_key(settings: EndpointSettings) -> str:
    """The key out of the environment; a name without a value is refused, so that it is no typo."""
    key = os.environ.get(settings.key_variable, '') if settings.key_variable else ''
    if settings.key_variable and not key:
        raise ValueError(
            f'the environment variable {settings.key_variable} is not set; '
            "export the endpoint's key under that name, or name no variable"
        )
    if not key.isascii() or not key.isprintable():
        raise ValueError(f'{settings.key_variable} holds characters that no key has')
    return key


def complete(
    settings: EndpointSettings,
    messages: Sequence[Mapping[str, str]],
    *,
    deadline: float,
    temperature: float = 0.0,
    seed: int = 0,
) -> str:
    """The reply's text.  Tries again until `deadline`, of time.monotonic.

    Raises Unanswered for this request alone, EndpointError for what is wrong with all of them.
    """
    key = read_key(settings)
    body = {'model': settings.model, 'messages': list(messages), 'stream': False}
    body |= {'temperature': temperature, 'seed': seed, 'max_tokens': settings.max_tokens}
    request = urllib.request.Request(
        settings.url.rstrip('/') + '/chat/completions',
        data=json.dumps(body).encode(),
        headers={'Content-Type': 'application/json'}
        | ({'Authorization': f'Bearer {key}'} if key else {}),
    )

    def attempt() -> str:
        seconds = min(settings.attempt_seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise Unanswered('no time left')
        return _within(seconds, lambda: _post(request, seconds, key))

    def wait(state: tenacity.RetryCallState) -> float:
        drawn = random.uniform(0.5, 1) * settings.first_wait_seconds
        return max(drawn * 2 ** (state.attempt_number - 1), state.outcome.exception().after_seconds)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_TryAgain),
        stop=lambda state: time.monotonic() + state.upcoming_sleep >= deadline,
        wait=wait,
        reraise=True,
    )
    try:
        return retrying(attempt)
    except _TryAgain as last:
        raise Unanswered(str(last)) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key would follow to wherever the redirect leads."""

    def redirect_request(self, *arguments):
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _post(request: urllib.request.Request, seconds: float, key: str) -> str:
    try:
        with _OPENER.open(request, timeout=seconds) as response:
            return _text_of(response.read(MOST_BYTES + 1))
    except urllib.error.HTTPError as error:
        said = error.read(MOST_BYTES).decode(errors='replace')
        said = (said.replace(key, '***') if key else said)[:SHOWN_CHARACTERS]
        why = f'{request.full_url} answered {error.code}: {said}'
        if error.code in PASSING:
            raise _TryAgain(why, _seconds(error.headers.get('Retry-After'))) from None
        if error.code in ABOUT_THE_TEXT:
            raise Unanswered(why) from None
        raise EndpointError(f'{why}; check the url, the model and the key variable') from None
    except OSError as error:  # refused, reset, out of time, no such host
        raise _TryAgain(f'{request.full_url}: {type(error).__name__}') from None


def _text_of(reply: bytes) -> str:
    """The first choice's text; whatever is no such reply may be a proxy's page, and passes."""
    if len(reply) > MOST_BYTES:
        raise _TryAgain(f'a reply of more than {MOST_BYTES} bytes')
    try:
        value: Any = decode_json(reply.decode())[0]
        text = value['choices'][0]['message']['content']
    except (ValueError, LookupError, TypeError):
        raise _TryAgain('a reply that is no chat completion') from None
    if not isinstance(text, str | None):
        raise _TryAgain('a chat completion whose content is no text')
    return text or ''  # none where the model called a tool in place of speaking


def _within(seconds: float, work: Callable[[], str]) -> str:
    """What `work` returns or raises; a server that drips bytes is left behind in its thread."""
    outcome: futures.Future[str] = futures.Future()

    def body():
        try:
            outcome.set_result(work())
        except (_TryAgain, Unanswered, EndpointError) as error:
            outcome.set_exception(error)
        except (ValueError, http.client.HTTPException) as error:  # broken headers or chunks
            outcome.set_exception(_TryAgain(type(error).__name__))

    threading.Thread(target=body, daemon=True).start()
    futures.wait([outcome], seconds)
    if not outcome.done():
        raise _TryAgain(f'no reply within {seconds:.1f} seconds')
    return outcome.result()


def _seconds(header: str | None) -> float:
    """A Retry-After of whole seconds; a date is not waited for."""
    return float(header) if header and header.isdecimal() else 0.0
