"""What is asked (Task) and what was done about it (Turn, Episode).  Host records, no judgement."""

import dataclasses
import enum
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from cacherl_jax.tools.tool import Call, ParseError, Result, Tool


class Termination(enum.StrEnum):
    """Why an episode ended; exactly one of these."""

    ANSWERED = 'answered'
    MAX_TURNS = 'max_turns'
    MAX_TOKENS = 'max_tokens'
    CONTEXT_FULL = 'context_full'
    PARSE_FAILURES = 'parse_failures'
    TOOL_INFRASTRUCTURE = 'tool_infrastructure'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One assistant message and the tool results that follow."""

    text: str  # the whole message as the policy wrote it, without the end id
    thinking: str = ''
    content: str = ''  # what is left outside thinking and calls
    calls: tuple[Call | ParseError, ...] = ()
    results: tuple[Result, ...] = ()  # one a call, in call order
    start: int = 0  # first sampled position in the trajectory's row
    stop: int = 0  # one past the last sampled position
    ended: bool = True  # the policy wrote an end id; False where a limit cut the message
    user: str = ''  # the user's next message, where the task has one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """One attempt at a task, from prompt to end."""

    task: 'Task'
    sample: int  # which attempt of its group
    step: int  # training step, or -1 outside training
    turns: tuple[Turn, ...]
    termination: Termination

    @property
    def answer(self) -> str:
        """The final message; empty where the episode ended without one."""
        answered = self.termination is Termination.ANSWERED and self.turns
        return self.turns[-1].content.strip() if answered else ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssistantTurn:
    """What an expert says in one turn: text, calls, or both; no calls means the final answer."""

    content: str = ''
    thinking: str = ''
    calls: tuple[Call, ...] = ()


Expert = Generator[AssistantTurn, tuple[Result, ...], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subgoal:
    """A milestone, paid once.  `reached` sees the turns so far and is asked again after each."""

    name: str
    reached: Callable[[Sequence[Turn]], bool]
    tools: frozenset[str] = frozenset()  # that serve it; calls to none of any are irrelevant
    after: frozenset[str] = frozenset()  # names of sub-goals that must come first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A request with its tools, its checks and its sub-goals."""

    id: str  # 'trip/train/2/00017', never changes
    suite: str
    split: str  # train, validation or test
    level: int  # 1 to 3
    entity: str  # what the split is made by: no entity stands in two splits
    messages: tuple[Mapping[str, str], ...]  # opening messages: role and content
    tools: tuple[Tool, ...]
    start: Callable[[], Any] = lambda: None  # a fresh state for the session tools
    expert: Callable[[], Expert]  # plays the task well: yields turns, is sent their results
    subgoals: tuple[Subgoal, ...] = ()
    score: Callable[[Episode], float]  # final reward in [0, 1]
    solved: Callable[[Episode], bool]  # success for evaluation, written apart from `score`
    follow_ups: tuple[str, ...] = ()  # later user messages, one after each answer
    # Names of tools that the prompt does not declare: the follow-up that does, counted from 1.
    later: Mapping[str, int] = dataclasses.field(default_factory=dict)
    wrong_answers: tuple[str, ...] = ()  # answers that `score` must rate below 0.5

    def told(self, follow_ups: int = 0) -> tuple[Tool, ...]:
        """The tools that may be called after so many follow-ups; at first, those of the prompt."""
        return tuple(tool for tool in self.tools if self.later.get(tool.name, 0) <= follow_ups)
