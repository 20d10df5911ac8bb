"""A teacher behind an OpenAI-compatible endpoint.  Question in, thought out; the key stays hidden.

What the teacher is shown is the question and nothing else: the conversation before a turn, and the
turn.  What it writes is text to learn from, read for markers and never executed.
"""

import dataclasses
import hashlib
import json
import os

import openai

from cacherl_jax.chat.parse import HERMES, parse_turn
from cacherl_jax.supervised.augment import NoAnswer
from cacherl_jax.supervised.thinking import Kind, Question, Reply, Teacher

TASK = (
    'You write the private thought of an assistant just before its next message. '
    'You get the tools it has, the conversation so far, and that message. '
    'Say in one to three short sentences, in the first person, {why}. '
    'Use only what the conversation so far shows. Do not repeat the message, do not address the '
    'user, and write nothing but the thought.'
)
WHY = {
    Kind.USER_FACING: 'why it calls these tools with these arguments now',
    Kind.FINAL: 'why it answers now, and what the answer rests on',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Where the teacher is, and how it is asked."""

    url: str = 'http://127.0.0.1:8000/v1'  # an OpenAI-compatible server
    model: str = ''  # the name the server knows it by
    key_variable: str = 'OPENAI_API_KEY'  # environment variable of the key; '': none is needed
    temperature: float = 0.3
    thought_tokens: int = 160  # most a thought may have
    timeout_seconds: float = 60.0

    def __post_init__(self):
        if not self.url.startswith(('http://', 'https://')):
            raise ValueError(f'url must begin with http:// or https://, got {self.url!r}')
        if not self.model:
            raise ValueError(f'model must name a model of the server at {self.url}')
        if not 0 <= self.temperature <= 2:
            raise ValueError(f'temperature must be in [0, 2], got {self.temperature}')
        for name in ('thought_tokens', 'timeout_seconds'):
            if not getattr(self, name) > 0:
                raise ValueError(f'{name} must be above 0, got {getattr(self, name)}')

    @property
    def teacher(self) -> str:
        """A name that changes with whatever changes the thoughts."""
        asked = json.dumps([TASK, WHY, self.temperature, self.thought_tokens], sort_keys=True)
        return f'{self.model} {hashlib.sha256(asked.encode()).hexdigest()[:8]}'


def messages_for(question: Question) -> list[dict[str, str]]:
    """What is sent: the task of the teacher, and the question as JSON."""
    told = {
        'tools': [tool['function'] for tool in question.tools],
        'conversation': question.past,
        'message': question.turn,
    }
    return [
        {'role': 'system', 'content': TASK.format(why=WHY[question.kind])},
        {'role': 'user', 'content': json.dumps(told, ensure_ascii=False)},
    ]


def endpoint_teacher(settings: EndpointSettings) -> Teacher:
    """A teacher that asks the endpoint once for each question; thoughts cost the tokens it says.

    Raises ValueError where the key is missing.  A request raises NoAnswer where another try may
    help, and ValueError where the server refuses it.
    """
    key = os.environ.get(settings.key_variable, '') if settings.key_variable else 'none'
    if not key:
        raise ValueError(
            f'the environment variable {settings.key_variable} holds no key for {settings.url}; '
            "set it, or give key_variable '' where none is needed"
        )
    client = openai.OpenAI(
        base_url=settings.url, api_key=key, timeout=settings.timeout_seconds, max_retries=0
    )

    def teacher(question: Question) -> Reply:
        try:
            answer = client.chat.completions.create(
                model=settings.model,
                messages=messages_for(question),
                temperature=settings.temperature,
                max_tokens=settings.thought_tokens,
            )
        except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError):
            raise NoAnswer from None
        except openai.APIStatusError as error:
            # The body may repeat the key, so only the status is told.
            raise ValueError(
                f'{settings.url} refuses requests to {settings.model!r} with status '
                f'{error.status_code}'
            ) from None
        said = answer.choices[0].message.content if answer.choices else ''
        used = answer.usage.total_tokens if answer.usage else 0
        # A model that thinks for itself writes its own thinking first, which is not asked for.
        return Reply(parse_turn(said or '', HERMES).content, used)

    return teacher
