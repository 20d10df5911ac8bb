"""Small episodes of a small world, by hand and by chance, for the tests of rewards."""

import json

from hypothesis import strategies as st

from cacherl_jax.tasks.task import Episode, Subgoal, Task, Termination, Turn
from cacherl_jax.tools.tool import (
    Call,
    ParseError,
    Result,
    Scope,
    Status,
    Tier,
    Tool,
    Unavailable,
)

OBJECT = {'type': 'object'}
TOOLS = (
    Tool(name='find', description='Finds.', parameters=OBJECT, function=str),
    Tool(name='chat', description='Chats.', parameters=OBJECT, function=str),
    Tool(
        name='load',
        description='Loads.',
        parameters=OBJECT,
        function=str,
        scope=Scope.SESSION,
        changes_state=True,
    ),
    Tool(name='count', description='Counts.', parameters=OBJECT, function=str, scope=Scope.SESSION),
)


def goal(word, *tools, after=()):
    """Reached once a result says the word."""
    return Subgoal(
        name=word,
        reached=lambda turns: any(word in result.text for turn in turns for result in turn.results),
        tools=frozenset(tools),
        after=frozenset(after),
    )


def make_task(*subgoals, number=0, score=lambda episode: 1.0):
    return Task(
        id=f'toy/train/1/{number:05d}',
        suite='toy',
        split='train',
        level=1,
        entity='toy',
        messages=({'role': 'user', 'content': 'go'},),
        tools=TOOLS,
        expert=lambda: None,
        subgoals=subgoals,
        score=score,
        solved=lambda episode: True,
    )


def ask(*asked, text='fine', status=Status.OK, tier=Tier.EXACT):
    """A turn of calls that all came to the same."""
    results = tuple(Result(status=status, text=text, tier=tier) for _ in asked)
    return Turn(text='?', calls=tuple(asked), results=results)


def say(content='It is 7.', ended=True):
    return Turn(text=content, content=content, ended=ended)


def find(query='a', **more):
    return Call('find', {'query': query, **more})


def play(*turns, task=None, ending=Termination.ANSWERED, step=0, sample=0):
    return Episode(
        task=task or make_task(), sample=sample, step=step, turns=turns, termination=ending
    )


def live(task):
    """Answers calls by running the task's own tools, one after the other."""
    state, tools = task.start(), {tool.name: tool for tool in task.tools}

    def answer(calls):
        return tuple(_run(tools[call.name], state, call.arguments) for call in calls)

    return answer


def _run(tool, state, arguments):
    before = () if tool.scope is Scope.PURE else (state,)
    try:
        found = tool.function(*before, **arguments)
    except Unavailable as out:
        return Result(status=Status.UNAVAILABLE, text=str(out))
    except ValueError as wrong:
        return Result(status=Status.TOOL_ERROR, text=str(wrong))
    return Result(status=Status.OK, text=found if isinstance(found, str) else json.dumps(found))


queries = st.sampled_from(['acme report', 'Acme reports', 'acme report 2023', 'x', '1'])
calls = st.one_of(
    st.builds(Call, st.sampled_from(['find', 'chat', 'load', 'count']), st.just({})),
    st.builds(Call, st.just('find'), st.fixed_dictionaries({'query': queries})),
    st.builds(ParseError, reason=st.just('cut'), text=st.just('{')),
)
results = st.builds(
    Result,
    status=st.sampled_from(list(Status)),
    text=st.sampled_from(['fine', 'red', 'red blue', '500 error']),
    tier=st.sampled_from(list(Tier)),
)
answered = st.lists(st.tuples(calls, results), max_size=4)
turns = st.one_of(
    st.builds(
        lambda pairs, ended: Turn(
            text='?',
            calls=tuple(call for call, _ in pairs),
            results=tuple(result for _, result in pairs),
            ended=ended,
        ),
        answered,
        st.booleans(),
    ),
    st.builds(say, st.sampled_from(['It is 7.', 'Let me check.', ' ', '<think>']), st.booleans()),
)
tasks = st.builds(
    lambda goals, number, score: make_task(*goals, number=number, score=lambda episode: score),
    st.sampled_from([(), (goal('red', 'find'),), (goal('red', 'find'), goal('blue', 'load'))]),
    st.integers(0, 1),
    st.sampled_from([0.0, 0.1, 0.35, 0.7, 1.0, None]),
)
episodes = st.builds(
    lambda played, task, ending: play(*played, task=task, ending=ending),
    st.lists(turns, max_size=7),
    tasks,
    st.sampled_from(list(Termination)),
)
