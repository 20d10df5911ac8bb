"""Procedural conversations to pre-train the small base model on: made-up tools and names, no task.

Every conversation draws new tool names, field names and values, so that nothing can be learned but
how a conversation with tools goes: read the request, find the tool that fits, copy values from
where they stand, follow a condition, pick from a list, recover from an error, answer from what was
seen.
"""

import random
from collections.abc import Sequence

from cacherl_jax.invented.kinds import branch, chain, choose, correct, largest, respell, session
from cacherl_jax.invented.messages import (
    asks,
    calls,
    describe,
    distractors,
    noisy,
    returns,
    says,
    tool,
    tool_name,
    user,
)
from cacherl_jax.invented.skills import backward, crossed, editions, matching, pick, slots
from cacherl_jax.invented.states import (
    classed,
    followed,
    glossary,
    looked_up,
    sorted_out,
    sorting,
    states,
)
from cacherl_jax.invented.words import (
    ADJECTIVES,
    NOUNS,
    distinct,
    made_up_id,
    made_up_name,
    phrase,
    value,
)


def several(rng):
    """Two things are asked at once: two calls in one turn, both answers in one message."""
    given, wanted = rng.sample(NOUNS, 2)
    subjects, name = distinct(rng, made_up_name, 2), tool_name(rng)
    extra = rng.choice(NOUNS)
    second = value(rng) if rng.random() < 0.5 and extra != given else None
    fields = [given] + ([extra] if second is not None else [])
    found = [value(rng) for _ in subjects]
    common = {extra: second} if second is not None else {}
    joint = f' with {extra} {second}' if second is not None else ''
    messages = [
        user(f'Tell me the {wanted} of the {given} {subjects[0]} and of {subjects[1]}{joint}.'),
        calls(*((name, {given: subject} | common) for subject in subjects)),
        *(returns(noisy(rng, {wanted: f})) for f in found),
        says(f'{subjects[0]}: {found[0]}. {subjects[1]}: {found[1]}.'),
    ]
    tools = [
        tool(rng, name, fields, describe(rng, given, wanted)),
        *distractors(rng, rng.randint(0, 2)),
    ]
    return tools, messages


def both(rng):
    """One thing is found, then two tools look at it side by side; the answer joins both."""
    owner, kind, first, second = rng.sample(NOUNS, 4)
    names = distinct(rng, lambda r: tool_name(r), 3)
    subject, opened = made_up_name(rng), made_up_id(rng)
    field = rng.choice(NOUNS)
    found = value(rng), phrase(rng)
    asked = rng.choice(
        (f'the {first} {field} and the {second}', f'{first} {field} plus a {second}')
    )
    tools = [
        tool(rng, names[0], [owner], describe(rng, owner, kind)),
        tool(rng, names[1], [kind, first], f'Read a {first} of a {kind}.'),
        tool(rng, names[2], [kind], describe(rng, kind, second)),
    ]
    messages = [
        user(f'For {owner} {subject} I want {asked}.'),
        asks(names[0], **{owner: subject}),
        returns({kind: opened}),
        calls((names[1], {kind: opened, first: field}), (names[2], {kind: opened})),
        returns({field: found[0]}),
        returns({second: found[1]}),
        says(f'{subject} {field}: {found[0]}. {found[1].capitalize()}'),
    ]
    return tools + distractors(rng, rng.randint(0, 3)), messages


def forks(rng):
    """Two things checked side by side; each then goes its own way by its state."""
    noun, state_noun, first, second = rng.sample(NOUNS, 4)
    names = distinct(rng, lambda r: tool_name(r), 3)
    subjects, states = distinct(rng, made_up_name, 2), rng.sample(ADJECTIVES, 2)
    common = {rng.choice([n for n in NOUNS if n != noun]): value(rng)} if rng.random() < 0.5 else {}
    where = ''.join(f' for {k} {v}' for k, v in common.items())
    which = [rng.randrange(2) for _ in subjects]
    wanted = (first, second)
    found = [value(rng) for _ in subjects]
    fields = [noun, *common]
    tools = [
        tool(rng, names[0], fields, f'{state_noun.capitalize()} of a {noun}.'),
        tool(rng, names[1], fields, f'{first.capitalize()} when {states[0]}.'),
        tool(rng, names[2], fields, f'{second.capitalize()} when {states[1]}.'),
    ]
    messages = [
        user(
            f'Check the {noun} {subjects[0]} and {subjects[1]}{where}: '
            f'the {first} if {states[0]}, the {second} if {states[1]}.'
        ),
        calls(*((names[0], common | {noun: s}) for s in subjects)),
        *(returns({state_noun: states[w]}) for w in which),
        calls(*((names[1 + w], common | {noun: s}) for s, w in zip(subjects, which, strict=True))),
        *(returns({wanted[w]: f}) for f, w in zip(found, which, strict=True)),
        says(
            ' '.join(
                f'{s}: {states[w]}, so {f}.' for s, w, f in zip(subjects, which, found, strict=True)
            )
        ),
    ]
    return tools + distractors(rng, rng.randint(0, 2)), messages


def drill(rng):
    """One or two tools, many short questions: nearly every word said is copied from the context."""
    given, *wanted = rng.sample(NOUNS, rng.choice((2, 2, 3)))
    names = distinct(rng, tool_name, len(wanted))
    tools = [
        tool(rng, name, [given], describe(rng, given, each))
        for name, each in zip(names, wanted, strict=True)
    ]
    messages = []
    for _ in range(rng.randint(3, 7)):
        subject = str((made_up_name if rng.random() < 0.7 else value)(rng))
        place, found = rng.randrange(len(wanted)), value(rng)
        asked = rng.choice((f'The {wanted[place]} of {subject}?', f'{subject}: {wanted[place]}'))
        messages += [
            user(asked),
            asks(names[place], **{given: subject}),
            returns(noisy(rng, {wanted[place]: found})),
            says(f'{subject} {wanted[place]}: {found}'),
        ]
    return tools, messages


def facts(rng):
    """No tools: some facts, then questions about them."""
    noun = rng.choice(NOUNS)
    names = distinct(rng, made_up_name, rng.randint(2, 5))
    known = {name: value(rng) for name in names}
    text = ' '.join(f'The {noun} of {name} is {known[name]}.' for name in names)
    messages = [user(text), says(rng.choice(('Noted.', 'Understood.', 'Thank you.')))]
    for name in rng.sample(names, rng.randint(1, len(names))):
        messages += [user(f'What is the {noun} of {name}?'), says(f'{known[name]}')]
    return [], messages


def echo(rng):
    """No tools: repeat, reverse or list what was said."""
    items = [str(value(rng)) for _ in range(rng.randint(2, 6))]
    style = rng.randrange(3)
    if style == 0:
        return [], [user('Repeat: ' + ', '.join(items)), says(', '.join(items))]
    if style == 1:
        return [], [user('In reverse order: ' + ', '.join(items)), says(', '.join(reversed(items)))]
    place = rng.randrange(len(items))
    words = ('first', 'second', 'third', 'fourth', 'fifth', 'sixth')
    return [], [user(f'Say the {words[place]} of: ' + ', '.join(items)), says(items[place])]


KINDS = (
    (chain, 4), (branch, 4), (choose, 5), (several, 2), (correct, 4), (largest, 2), (session, 1),
    (both, 2), (respell, 7), (forks, 2), (facts, 1), (echo, 1), (slots, 12), (editions, 10),
    (states, 16), (crossed, 8), (followed, 8), (sorted_out, 4), (classed, 1), (sorting, 6),
    (looked_up, 6), (pick, 7), (glossary, 1), (matching, 3), (backward, 1),
)  # fmt: skip
DENSE = (drill, 8), (facts, 1), (echo, 2)  # where most of what is said is copied


def conversation(
    rng: random.Random, dense: float = 0.0, only: Sequence[str] = ()
) -> tuple[list[dict], list[dict]]:
    """Tools and messages of one made-up conversation; tools in any order.

    `dense` is the share of conversations that are little more than copying; of the others there
    are the kinds named in `only`, or all.
    """
    kinds = [kind for kind in KINDS if not only or kind[0].__name__ in only]
    if not kinds or set(only) - {make.__name__ for make, _ in KINDS}:
        allowed = ', '.join(make.__name__ for make, _ in KINDS)
        raise ValueError(f'no such kind of conversation in {list(only)}; there are {allowed}')
    if dense and rng.random() < dense:
        kinds = DENSE
    make = rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
    return declared(rng, *make(rng))


def declared(rng: random.Random, tools: list[dict], messages: list[dict]):
    """The same with each name declared once, numbers as numbers, and the tools in any order."""
    named = {item['function']['name']: item for item in reversed(tools)}  # the first of a name
    for message in messages:
        for call in message.get('tool_calls', ()):
            _declare_types(named[call['function']['name']], call['function']['arguments'])
    tools = list(named.values())
    rng.shuffle(tools)
    return tools, messages


def _declare_types(tool, arguments):
    """A parameter that is given a number is declared as one."""
    properties = tool['function']['parameters']['properties']
    for field, given in arguments.items():
        if not isinstance(given, str):
            properties[field] = {'type': 'integer' if isinstance(given, int) else 'number'}
