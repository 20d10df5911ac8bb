"""A teacher behind an OpenAI-compatible endpoint.  Question in, thought out; the key stays hidden.

What the teacher is shown is the question and nothing else: the conversation before a turn, and the
turn.  What it writes is text to learn from, read for markers and never executed.
"""

import dataclasses
import hashlib
import json

from cacherl_jax.chat import endpoint
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
        if not 0 <= self.temperature <= 2:
            raise ValueError(f'temperature must be in [0, 2], got {self.temperature}')
        for name in ('thought_tokens', 'timeout_seconds'):
            if not getattr(self, name) > 0:
                raise ValueError(f'{name} must be above 0, got {getattr(self, name)}')
        endpoint_of(self)  # refuses what else is wrong

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


def endpoint_of(settings: EndpointSettings) -> endpoint.EndpointSettings:
    """The same in the words of the client."""
    return endpoint.EndpointSettings(
        url=settings.url,
        model=settings.model,
        key_variable=settings.key_variable,
        attempt_seconds=settings.timeout_seconds,
        max_tokens=settings.thought_tokens,
    )


def endpoint_teacher(settings: EndpointSettings) -> Teacher:
    """A teacher that asks the endpoint once for each question; thoughts cost the tokens it says.

    Raises ValueError where the key is missing.  A request raises NoAnswer where another try may
    help, and ValueError where the server refuses it.
    """
    where = endpoint_of(settings)
    endpoint.read_key(where)

    def teacher(question: Question) -> Reply:
        try:
            answer = endpoint.complete_once(
                where, messages_for(question), temperature=settings.temperature
            )
        except endpoint.Passing:
            raise NoAnswer from None
        except (endpoint.Unanswered, endpoint.EndpointError) as error:
            raise ValueError(f'{settings.model!r} gives no thoughts: {error}') from None
        # A model that thinks for itself writes its own thinking first, which is not asked for.
        thought = parse_turn(answer.content, HERMES).content
        return Reply(thought, answer.prompt_tokens + answer.completion_tokens)

    return teacher
