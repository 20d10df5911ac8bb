"""Tasks played by a model behind an endpoint: the same Episodes as a rollout's, without tokens.

Limits are the rollout's own.  A message that the endpoint did not give is our trouble: its episode
ends as spoiled by infrastructure, is counted, and is left out of success.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cacherl_jax.chat.completion import RawCall, Reply
from cacherl_jax.chat.endpoint import ContextFull, Unanswered
from cacherl_jax.chat.parse import HERMES, parse_turn, render_call
from cacherl_jax.chat.strict_json import SPACE, decode_json
from cacherl_jax.evaluate.chat_endpoint import ChatEndpoint
from cacherl_jax.seat import RolloutSettings
from cacherl_jax.tasks.task import Episode, Task, Termination, Turn
from cacherl_jax.tools.tool import Call, ParseError, Status, specification
from cacherl_jax.tools.untold import answer_told

Message = dict[str, Any]
IN_TEXT = 'calls must be made through tool_calls, not written in the message'


def play_endpoint(
    endpoint: ChatEndpoint,
    tasks: Sequence[Task],
    open_session: Callable,
    settings: RolloutSettings,
    workers: int = 8,
    done: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """`settings.samples` attempts at each task, group-major; `done` is called after each.

    `open_session(task_id, tools, start, sample)` gives what answers the calls of one episode.
    Raises EndpointError where the endpoint is of no use at all.
    """
    seats = [
        (task, sample, open_session(task.id, task.tools, task.start, sample))
        for task, sample in itertools.product(tasks, range(settings.samples))
    ]

    def play(seat) -> Episode:
        episode = _Attempt(endpoint, settings, *seat).play()
        seat[2].close()
        done()
        return episode

    pool = ThreadPoolExecutor(workers)
    try:
        return list(pool.map(play, seats))
    finally:
        pool.shutdown(cancel_futures=True)


class _Attempt:
    """One episode: the conversation so far and how often things went wrong in a row."""

    def __init__(self, endpoint, settings, task, sample, session):
        self.endpoint, self.settings = endpoint, settings
        self.task, self.sample, self.session = task, sample, session
        self.messages: list[Message] = [dict(message) for message in task.messages]
        self.answers = 0  # follow-ups so far
        self.turns: list[Turn] = []
        self.parse_failures = self.timeouts = 0

    def play(self) -> Episode:
        why = None
        while why is None:
            try:
                tools = [specification(tool) for tool in self.task.told(self.answers)]
                reply = self.endpoint.reply(self.messages, tools)
            except ContextFull:
                why = Termination.CONTEXT_FULL
            except Unanswered:
                why = Termination.TOOL_INFRASTRUCTURE
            else:
                why = self._take(reply)
        return Episode(
            task=self.task,
            sample=self.sample,
            step=0,
            turns=tuple(self.turns),
            termination=why,
        )

    def _take(self, reply: Reply) -> Termination | None:
        """Add the turn, run its calls, say why the episode ends here if it does."""
        calls, content, thinking = read_turn(reply)
        written = [render_call(call) if isinstance(call, Call) else call.text for call in calls]
        turn = {'text': '\n'.join(filter(None, [content, *written])), 'content': content}
        turn |= {'thinking': thinking, 'calls': calls}
        if reply.cut:  # what it would have said is not known, so nothing of it is acted on
            self.turns.append(Turn(**turn, ended=False))
            return Termination.MAX_TOKENS
        told = self.task.told(self.answers)
        results = answer_told(self.session, calls, told, self.task.tools) if calls else ()
        user = ''
        if not calls and self.answers < len(self.task.follow_ups):
            user = self.task.follow_ups[self.answers]
            self.answers += 1
        self.turns.append(Turn(**turn, results=results, user=user))
        if not calls and not user:
            return Termination.ANSWERED
        self.messages += spoken(reply, results, user, len(self.turns))
        return self._limits(calls, results)

    def _limits(self, calls, results) -> Termination | None:
        broken = bool(calls) and all(isinstance(call, ParseError) for call in calls)
        late = bool(results) and all(result.status is Status.TIMEOUT for result in results)
        self.parse_failures = self.parse_failures + 1 if broken else 0
        self.timeouts = self.timeouts + 1 if late else 0
        if self.parse_failures >= self.settings.max_parse_failures:
            return Termination.PARSE_FAILURES
        if self.timeouts >= self.settings.max_timeouts:
            return Termination.TOOL_INFRASTRUCTURE
        if len(self.turns) >= self.settings.max_turns:
            return Termination.MAX_TURNS
        return None


def read_turn(reply: Reply) -> tuple[tuple[Call | ParseError, ...], str, str]:
    """Calls, content and thinking; nothing is repaired, and a call in the text is a mistake."""
    parsed = parse_turn(reply.content, HERMES)
    thinking = '\n'.join(filter(None, [reply.thinking.strip(SPACE), parsed.thinking]))
    calls: tuple[Call | ParseError, ...] = tuple(map(_read_call, reply.calls))
    if not calls and parsed.calls:
        calls = (ParseError(IN_TEXT, reply.content),)
    return calls, parsed.content, thinking


def _read_call(raw: RawCall) -> Call | ParseError:
    try:
        arguments, stop = decode_json(raw.arguments)
    except ValueError as error:
        return ParseError(f'the arguments of {raw.name} are no JSON: {error}', raw.arguments)
    if raw.arguments[stop:].strip(SPACE) or not isinstance(arguments, dict):
        return ParseError(f'the arguments of {raw.name} must be one JSON object', raw.arguments)
    return Call(raw.name, arguments)


def spoken(reply: Reply, results: Sequence, user: str, number: int) -> list[Message]:
    """A turn as the endpoint reads it back: the message, each result under its call's id.

    Thinking is not sent back.  Arguments that were no JSON are quoted in an object, because servers
    refuse a conversation in which a call cannot be read.
    """
    said: Message = {'role': 'assistant', 'content': reply.content}
    if not reply.calls:  # calls in the text are answered as the user would
        answers = [{'role': 'user', 'content': result.text} for result in results[:1]]
        return [said, *answers, *([{'role': 'user', 'content': user}] if user else [])]
    ids = [raw.id for raw in reply.calls]
    if len(set(ids) - {''}) < len(ids):
        ids = [f'call_{number}_{place}' for place in range(len(ids))]
    said['content'] = reply.content or None
    said['tool_calls'] = [
        {
            'id': name,
            'type': 'function',
            'function': {'name': raw.name, 'arguments': _quoted(raw)},
        }
        for name, raw in zip(ids, reply.calls, strict=True)
    ]
    return [
        said,
        *(
            {'role': 'tool', 'tool_call_id': name, 'content': result.text}
            for name, result in zip(ids, results, strict=True)
        ),
    ]


def _quoted(raw: RawCall) -> str:
    if isinstance(_read_call(raw), Call):
        return raw.arguments
    return json.dumps({'unreadable': raw.arguments})
