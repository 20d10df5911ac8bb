"""Requests to an OpenAI-compatible chat endpoint.  Messages and tools in, one checked reply out.

The standard library makes the request: it is one POST, and all its retries must stay within one
total time.  The key comes from the environment at each request, goes into one header, leaves this
machine encrypted or not at all, follows no redirect, and stands in no object and no message.
"""

import dataclasses
import http.client
import ipaddress
import json
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import tenacity

from cacherl_jax.chat.completion import Reply, error_code, read_reply

MOST_BYTES = 4 * 2**20  # of a reply
CHUNK_BYTES = 2**16
PASSING = {408, 409, 425, 429}  # to ask again may help, as it may from 500 on
ABOUT_THE_REQUEST = {400, 413, 422}  # this one is refused, another need not be
SHOWN_CHARACTERS = 300  # of what a server says when it refuses
LONGEST_WAIT_SECONDS = 60.0  # between attempts, where the server asks for no more


class Unanswered(Exception):
    """No reply to this request; the next request may well have one."""


class Passing(Unanswered):
    """May be over soon; `after_seconds` is how long the server asks to be left alone."""

    def __init__(self, why: str, after_seconds: float = 0.0):
        super().__init__(why)
        self.after_seconds = after_seconds


class ContextFull(Unanswered):
    """The conversation is longer than the model can read."""


class EndpointError(Exception):
    """Every request would fail alike: wrong address, key or model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Where the model is, and how long it is waited for."""

    url: str  # up to and with /v1
    model: str
    key_variable: str = ''  # environment variable that holds the key; empty: none is sent
    attempt_seconds: float = 30.0  # for one attempt
    first_wait_seconds: float = 0.5  # between attempts; doubles, and as much again by chance
    max_tokens: int = 256  # of a reply

    def __post_init__(self):
        _check_url(self.url)
        if not self.model:
            raise ValueError(f'model must name a model of the server at {self.url}')
        for name in ('attempt_seconds', 'first_wait_seconds'):
            if not getattr(self, name) > 0:
                raise ValueError(f'{name} must be above 0, got {getattr(self, name)}')
        if self.max_tokens < 1:
            raise ValueError(f'max_tokens must be at least 1, got {self.max_tokens}')


def read_key(settings: EndpointSettings) -> str:
    """The key out of the environment, '' where none is asked for.

    Raises ValueError where the variable is empty, what it holds is no key, or the key would travel
    unencrypted to another machine.
    """
    name = settings.key_variable
    key = os.environ.get(name, '') if name else ''
    if name and not key:
        raise ValueError(
            f'the environment variable {name} holds no key for {settings.url}: {name} is not set '
            "or empty; export the endpoint's key under that name, or name no variable"
        )
    if not key.isascii() or not key.isprintable():
        raise ValueError(f'{name} holds characters that no key has')
    where = urllib.parse.urlsplit(settings.url)
    if key and where.scheme != 'https' and not _is_this_machine(where.hostname):
        raise ValueError(
            f'{name} would travel unencrypted to {where.hostname}; give an https url, or no key'
        )
    return key


def complete(
    settings: EndpointSettings,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    deadline: float,
    **sampling: float,
) -> Reply:
    """The model's next message; tries again until `deadline`, of time.monotonic.

    `sampling` (temperature, top_p, seed) is sent as it is.  Raises Unanswered for this request
    alone, ContextFull among them, and EndpointError for what is wrong with all of them.
    """
    key = read_key(settings)
    request = _request(settings, key, messages, tools, sampling)
    first = settings.first_wait_seconds
    backoff = tenacity.wait_exponential_jitter(
        multiplier=first, max=LONGEST_WAIT_SECONDS, jitter=first
    )

    def attempt() -> Reply:
        seconds = min(settings.attempt_seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise Unanswered('no time left')
        return _attempt(request, key, seconds)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Passing),
        stop=lambda state: time.monotonic() + state.upcoming_sleep >= deadline,
        wait=lambda state: max(backoff(state), state.outcome.exception().after_seconds),
        reraise=True,
    )(attempt)


def complete_once(
    settings: EndpointSettings,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    **sampling: float,
) -> Reply:
    """As `complete`, in one attempt: for callers that count requests.  Passing asks for another."""
    key = read_key(settings)
    request = _request(settings, key, messages, tools, sampling)
    return _attempt(request, key, settings.attempt_seconds)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key would follow to wherever the redirect leads."""

    def redirect_request(self, *arguments):
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _check_url(url: str) -> None:
    try:
        where = urllib.parse.urlsplit(url)
        known = where.scheme in ('http', 'https') and where.hostname and where.port != 0
    except ValueError:  # a port that is no number, brackets that hold no address
        known = False
    if known and '@' not in where.netloc and not (where.query or where.fragment):
        return
    front, at, shown = re.split('[?#]', url)[0].rpartition('@')  # no password is shown
    raise ValueError(
        'url must begin with http:// or https://, end at /v1, and hold no user, password or query, '
        f'got {"..." + at + shown if front else shown!r}'
    )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == 'localhost'


def _request(settings, key, messages, tools, sampling) -> urllib.request.Request:
    body = {'model': settings.model, 'messages': list(messages), 'stream': False}
    body |= {'max_tokens': settings.max_tokens} | sampling
    body |= {'tools': list(tools)} if tools else {}
    return urllib.request.Request(
        settings.url.rstrip('/') + '/chat/completions',
        data=json.dumps(body).encode(),
        headers={'Content-Type': 'application/json'}
        | ({'Authorization': f'Bearer {key}'} if key else {}),
    )


def _attempt(request: urllib.request.Request, key: str, seconds: float) -> Reply:
    """One POST; a server that is not done in time is left behind in a thread, which ends soon."""
    outcome: futures.Future[Reply] = futures.Future()

    def work():
        try:
            outcome.set_result(_post(request, key, seconds))
        except (Unanswered, EndpointError) as error:
            outcome.set_exception(error)
        except (OSError, ValueError, http.client.HTTPException) as error:  # refused, reset, broken
            # Only the kind is told: the text of some errors quotes headers.
            kind = type(getattr(error, 'reason', None) or error).__name__
            outcome.set_exception(Passing(f'{request.full_url}: {kind}'))

    threading.Thread(target=work, daemon=True).start()
    futures.wait([outcome], seconds)
    if not outcome.done():
        raise Passing(f'{request.full_url}: no reply within {seconds:.1f} seconds')
    return outcome.result()


def _post(request: urllib.request.Request, key: str, seconds: float) -> Reply:
    deadline = time.monotonic() + seconds
    try:
        with _OPENER.open(request, timeout=seconds) as response:
            body = _read(response, deadline)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(request.full_url, error, _said(error.fp, deadline), key) from None
    try:
        return read_reply(body)
    except ValueError as error:  # perhaps a proxy's page
        raise Passing(f'{request.full_url}: {error}') from None


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body; Passing where it is too long, or drips."""
    parts, size = [], 0
    while chunk := response.read1(CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > MOST_BYTES:
            raise Passing(f'a reply of more than {MOST_BYTES} bytes')
        if time.monotonic() > deadline:
            raise Passing('a reply that took too long')
    return b''.join(parts)


def _said(response: http.client.HTTPResponse, deadline: float) -> str:
    """What a server that refuses says about it, '' where it breaks off."""
    try:
        return _read(response, deadline).decode(errors='replace')
    except (OSError, http.client.HTTPException, Passing):
        return ''


def _refusal(url: str, error: urllib.error.HTTPError, said: str, key: str) -> Exception:
    """What a status other than 200 means for this request, and for all."""
    why = f'{url} refuses with status {error.code}: {_without(key, said)[:SHOWN_CHARACTERS]}'
    if error_code(said) == 'context_length_exceeded':
        return ContextFull(why)
    if error.code in PASSING or error.code >= 500:
        return Passing(why, _seconds(error.headers.get('Retry-After')))
    if error.code in ABOUT_THE_REQUEST:
        return Unanswered(why)
    return EndpointError(f'{why}; check the url, the model and the key')


def _without(key: str, said: str) -> str:
    """What was said, with the key blotted out as it is and as JSON writes it."""
    for spelling in filter(None, (key, json.dumps(key)[1:-1])):
        said = said.replace(spelling, '***')
    return said


def _seconds(header: str | None) -> float:
    """A Retry-After of whole seconds; a date is not waited for."""
    return float(header) if header and header.isdecimal() else 0.0
