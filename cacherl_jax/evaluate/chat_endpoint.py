"""An agent behind a chat endpoint: messages and tools in, its next message out, what that took.

One that gives no reply for long is out of order, and says so instead of spoiling every episode.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cacherl_jax.chat.completion import Reply
from cacherl_jax.chat.endpoint import (
    ContextFull,
    EndpointError,
    EndpointSettings,
    Unanswered,
    complete,
    read_key,
)
from cacherl_jax.policy.sample import SamplingSettings

PATIENCE = 8  # requests in a row without a reply, after which something is wrong with all of them


class ChatEndpoint:
    """Asks for replies, from several threads at once, and counts what that took."""

    def __init__(
        self, settings: EndpointSettings, sampling: SamplingSettings, budget_seconds: float = 300.0
    ):
        """`budget_seconds` is for one reply with all its retries."""
        read_key(settings)  # a missing key is said before anything is played
        self.settings, self.budget_seconds = settings, budget_seconds
        self._sampling = {'temperature': sampling.temperature}
        self._sampling |= {'top_p': sampling.top_p} if sampling.top_p < 1 else {}
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
        deadline = time.monotonic() + self.budget_seconds
        try:
            found = complete(self.settings, messages, tools, deadline=deadline, **self._sampling)
        except ContextFull:
            raise
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
