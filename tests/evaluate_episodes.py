"""Small episodes written by hand: a train timetable with two sub-goals and an answer of '15:40'."""

from cacherl_jax.tasks.task import Episode, Subgoal, Task, Termination, Turn
from cacherl_jax.tools.tool import Call, Result, Status, Tier, Tool

PLACE = {'type': 'object', 'properties': {'place': {'type': 'string'}}, 'required': ['place']}


def used(name):
    return Subgoal(
        name=f'{name} asked',
        tools=frozenset({name}),
        reached=lambda turns: any(
            isinstance(call, Call) and call.name == name and result.status is Status.OK
            for turn in turns
            for call, result in zip(turn.calls, turn.results, strict=True)
        ),
    )


def task(name='trip/test/1/00000', suite='trip', level=1, split='test'):
    tools = tuple(
        Tool(name=each, description=f'Asks for {each}.', parameters=PLACE, function=str)
        for each in ('trains', 'price', 'weather')
    )
    return Task(
        id=name,
        suite=suite,
        split=split,
        level=level,
        entity='Lisbon',
        messages=({'role': 'user', 'content': 'When does the train to Lisbon leave, for 30?'},),
        tools=tools,
        expert=lambda: iter(()),
        subgoals=(used('trains'), used('price')),
        score=lambda episode: 0.25,
        solved=lambda episode: '15:40' in episode.answer,
    )


def call(name='trains', place='Lisbon'):
    return Call(name, {'place': place})


def result(text='leaves 15:40', status=Status.OK, tier=Tier.LIVE):
    return Result(status=status, text=text, tier=tier, similarity=1.0 if tier < 2 else 0.75)


def turn(*pairs, says='', **more):
    """A turn with (call, result) pairs; text that says nothing still differs by its calls."""
    calls = tuple(made for made, _ in pairs)
    return Turn(
        text=says or repr(calls),
        content=says,
        calls=calls,
        results=tuple(answer for _, answer in pairs),
        **more,
    )


TRAINS = turn((call('trains'), result()))
PRICE = turn((call('price'), result('costs 28 euro')))


def answer(text):
    return turn(says=text)


def episode(*turns, of=None, sample=0, ended=Termination.ANSWERED):
    return Episode(task=of or task(), sample=sample, step=3, turns=turns, termination=ended)
