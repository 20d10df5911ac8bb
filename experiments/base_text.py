"""Procedural conversations to pre-train the small base model on: made-up tools, made-up names, no task.

Every conversation draws new tool names, field names and values, so that nothing can be learned but how a
conversation with tools goes: read the request, find the tool that fits, copy values from where they stand,
follow a condition, pick from a list, recover from an error, answer from what was seen.
"""

import json
import random

from base_words import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    distinct,
    made_up_id,
    made_up_name,
    number,
    phrase,
    value,
)


def tool(rng, name, fields, description=None) -> dict:
    """A tool declaration with one line of description."""
    description = description or f'{name.replace("_", " ").capitalize()}.'
    properties = {field: {'type': 'string'} for field in fields}
    parameters = {'type': 'object', 'properties': properties, 'required': list(fields)}
    return {
        'type': 'function',
        'function': {'name': name, 'description': description, 'parameters': parameters},
    }


def tool_name(rng, noun=None) -> str:
    """verb_noun, sometimes one word."""
    verb, noun = rng.choice(VERBS), noun or rng.choice(NOUNS)
    return verb if rng.random() < 0.15 else f'{verb}_{noun}'


def asks(name, /, **arguments) -> dict:
    """An assistant message with one call."""
    return calls((name, arguments))


def calls(*requests) -> dict:
    """An assistant message with several calls."""
    return {
        'role': 'assistant',
        'content': '',
        'tool_calls': [
            {'type': 'function', 'function': {'name': name, 'arguments': arguments}}
            for name, arguments in requests
        ],
    }


def says(text) -> dict:
    return {'role': 'assistant', 'content': text}


def user(text) -> dict:
    return {'role': 'user', 'content': text}


def returns(content) -> dict:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {'role': 'tool', 'content': text}


def distractors(rng, count):
    """Tools that nothing asks for."""
    return [
        tool(
            rng,
            tool_name(rng),
            rng.sample(NOUNS, rng.randint(1, 2)),
            f'{phrase(rng).capitalize()}.',
        )
        for _ in range(count)
    ]


def noisy(rng, content: dict) -> dict:
    """The same result with other fields around, in any order."""
    extra = {
        noun: value(rng) for noun in rng.sample(NOUNS, rng.randint(0, 2)) if noun not in content
    }
    items = list((content | extra).items())
    rng.shuffle(items)
    return dict(items)


def chain(rng):
    """Values travel from request to call to result to next call to answer; sometimes the first tool fails."""
    length = rng.choice((1, 2, 2, 3, 3, 4, 5))
    nouns = rng.sample(NOUNS, length + 1)
    start = value(rng) if rng.random() < 0.5 else made_up_name(rng)
    names = distinct(rng, lambda r: tool_name(r), length)
    wanted = nouns[-1]
    tools = [
        tool(rng, names[i], [nouns[i]], _describe(rng, nouns[i], nouns[i + 1]))
        for i in range(length)
    ]
    request = rng.choice(
        (
            f'Find the {wanted} of {nouns[0]} {start}.',
            f'What is the {wanted} of the {nouns[0]} {start}?',
            f'I need the {wanted} for {nouns[0]} {start}, please.',
            f'For the {nouns[0]} {start}: tell me the {wanted}.',
        )
    )
    messages, current = [user(request)], start
    for i in range(length):
        if rng.random() < 0.12:
            backup = tool(rng, tool_name(rng), [nouns[i]], _describe(rng, nouns[i], nouns[i + 1]))
            tools.append(backup)
            messages += [asks(names[i], **{nouns[i]: current}), returns({'error': _error(rng)})]
            names[i] = backup['function']['name']
        messages.append(asks(names[i], **{nouns[i]: current}))
        current = value(rng)
        messages.append(returns(noisy(rng, {nouns[i + 1]: current})))
    answer = rng.choice(
        (
            f'The {wanted} of {start} is {current}.',
            f'{wanted.capitalize()}: {current}',
            f'{start} has the {wanted} {current}.',
        )
    )
    messages.append(says(answer))
    tools += distractors(rng, rng.randint(0, 2))
    return tools, messages


def _describe(rng, given, wanted):
    return rng.choice(
        (
            f'{wanted.capitalize()} of a {given}.',
            f'Gives the {wanted} of a {given}.',
            f'Look up the {wanted} for a {given}.',
        )
    )


def _error(rng):
    return rng.choice(
        ('unavailable', 'tool_error', 'timeout', 'not found', 'no answer', 'busy, try another tool')
    )


def branch(rng):
    """What the first result says decides which tool is right."""
    subject, nouns = made_up_name(rng), rng.sample(NOUNS, 5)
    states = rng.sample(ADJECTIVES, 2)
    names = distinct(rng, lambda r: tool_name(r), 3)
    tools = [
        tool(rng, names[0], [nouns[0]], _describe(rng, nouns[0], nouns[1])),
        tool(rng, names[1], [nouns[0]], _describe(rng, nouns[0], nouns[2])),
        tool(rng, names[2], [nouns[0]], _describe(rng, nouns[0], nouns[3])),
    ]
    which = rng.randrange(2)
    state = states[which]
    request = rng.choice(
        (
            f'Check the {nouns[1]} of {nouns[0]} {subject}. If it is {states[0]}, give me the {nouns[2]}; '
            f'if {states[1]}, the {nouns[3]}.',
            f'When the {nouns[1]} of {subject} is {states[0]} I want the {nouns[2]}, when {states[1]} the {nouns[3]}.',
        )
    )
    found = value(rng)
    messages = [
        user(request),
        asks(names[0], **{nouns[0]: subject}),
        returns(noisy(rng, {nouns[1]: state})),
        asks(names[1 + which], **{nouns[0]: subject}),
        returns(noisy(rng, {nouns[2 + which]: found})),
        says(f'The {nouns[1]} is {state}. {nouns[2 + which].capitalize()}: {found}'),
    ]
    return tools + distractors(rng, rng.randint(0, 2)), messages


def choose(rng):
    """A list comes back; the request says which entry to go on with."""
    kind, label, wanted, owner = rng.sample(NOUNS, 4)
    labels = distinct(
        rng,
        rng.choice(
            (
                made_up_name,
                made_up_id,
                lambda r: r.choice(ADJECTIVES),
                lambda r: r.randint(1990, 2035),
            )
        ),
        rng.randint(2, 4),
    )
    ids = distinct(rng, made_up_id, len(labels))
    place = rng.randrange(len(labels))
    names = distinct(rng, lambda r: tool_name(r), 2)
    subject = made_up_name(rng)
    tools = [
        tool(rng, names[0], [owner], f'List every {kind} of a {owner}.'),
        tool(rng, names[1], [kind], _describe(rng, kind, wanted)),
    ]
    found = value(rng)
    listing = [{kind: i, label: l} for i, l in zip(ids, labels, strict=True)]
    if rng.random() < 0.6:  # names as keys, a line of text each
        lines = [
            rng.choice((f'{subject} {kind} {l}', f'{l} {label}', f'{label} {l}')) for l in labels
        ]
        listing = dict(zip(ids, lines, strict=True))
    messages = [
        user(
            f'Of the {owner} {subject}, take the {kind} with {label} {labels[place]} and tell me its {wanted}.'
        ),
        asks(names[0], **{owner: subject}),
        returns(listing if isinstance(listing, dict) else {f'{kind}s': listing}),
        asks(names[1], **{kind: ids[place]}),
        returns(noisy(rng, {wanted: found})),
        says(f'{kind.capitalize()} {ids[place]}, {wanted}: {found}'),
    ]
    return tools + distractors(rng, rng.randint(0, 2)), messages


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
        tool(rng, name, fields, _describe(rng, given, wanted)),
        *distractors(rng, rng.randint(0, 2)),
    ]
    return tools, messages


def correct(rng):
    """An argument is refused with the allowed values: take the one that fits."""
    field, subject_noun, wanted = rng.sample(NOUNS, 3)
    name, subject = tool_name(rng), made_up_name(rng)
    allowed = distinct(rng, lambda r: f'{r.choice(NOUNS)}_{r.choice(NOUNS)}', rng.randint(2, 4))
    right = rng.choice(allowed)
    asked = right.split('_')[0]
    if sum(item.split('_')[0] == asked for item in allowed) > 1:
        return correct(rng)
    found = value(rng)
    refusal = rng.choice(
        (
            {'error': f'unknown {field}', 'allowed': allowed},
            {'error': f'no {field} {asked}; {field}s: {", ".join(allowed)}'},
            {'error': 'bad_arguments', 'detail': f'{field} must be one of {", ".join(allowed)}'},
        )
    )
    messages = [
        user(f'Give me the {asked} {wanted} of {subject}.'),
        asks(name, **{subject_noun: subject, field: asked}),
        returns(refusal),
        asks(name, **{subject_noun: subject, field: right}),
        returns(noisy(rng, {wanted: found})),
        says(f'{right}: {found}'),
    ]
    return [tool(rng, name, [subject_noun, field]), *distractors(rng, rng.randint(0, 2))], messages


def largest(rng):
    """Numbers by label; the request asks for the largest or smallest, or for one by name."""
    kind, measure, owner = rng.sample(NOUNS, 3)
    labels = distinct(
        rng, rng.choice((made_up_name, lambda r: r.choice(ADJECTIVES))), rng.randint(2, 4)
    )
    numbers = distinct(rng, number, len(labels))
    table = dict(zip(labels, numbers, strict=True))
    name, subject = tool_name(rng), made_up_name(rng)
    style = rng.randrange(3)
    if style == 0:
        best = rng.choice(labels)
        request = f'In {owner} {subject}, what is the {measure} of {best}?'
    else:
        best = (max if style == 1 else min)(table, key=table.get)
        request = f'In {owner} {subject}, which {kind} has the {"largest" if style == 1 else "smallest"} {measure}?'
    if style and rng.random() < 0.5:
        table = dict(sorted(table.items(), key=lambda item: item[1], reverse=style == 1))
    messages = [
        user(request),
        asks(name, **{owner: subject}),
        returns({measure: table}),
        says(f'{best}: {table[best]}'),
    ]
    return [
        tool(rng, name, [owner], f'{measure.capitalize()} by {kind}.'),
        *distractors(rng, rng.randint(0, 2)),
    ], messages


def session(rng):
    """Several calls on one opened thing, each with what the request names."""
    thing, kind, part, measure = rng.sample(NOUNS, 4)
    names = distinct(rng, lambda r: tool_name(r), 3)
    opened, chosen, wanted = made_up_id(rng), value(rng), rng.choice(NOUNS)
    tools = [
        tool(rng, names[0], [thing], f'Open a {thing}.'),
        tool(rng, names[1], [kind, part], f'Keep the {part} of one {kind}.'),
        tool(rng, names[2], [measure], f'The {measure} of what is left.'),
    ]
    found = number(rng)
    messages = [
        user(
            f'Open {thing} {opened}, keep {part} {chosen} by {kind} {wanted}, then give the {measure} {wanted}.'
        ),
        asks(names[0], **{thing: opened}),
        returns(noisy(rng, {'rows': rng.randint(2, 60)})),
        asks(names[1], **{kind: wanted, part: chosen}),
        returns({'rows': rng.randint(1, 40)}),
        asks(names[2], **{measure: wanted}),
        returns({measure: found}),
        says(f'{wanted.capitalize()}: {found}'),
    ]
    return tools + distractors(rng, rng.randint(0, 1)), messages


def both(rng):
    """One thing is found, then two tools look at it side by side; the answer joins what they say."""
    owner, kind, first, second = rng.sample(NOUNS, 4)
    names = distinct(rng, lambda r: tool_name(r), 3)
    subject, opened = made_up_name(rng), made_up_id(rng)
    field = rng.choice(NOUNS)
    found = value(rng), phrase(rng)
    asked = rng.choice(
        (f'the {first} {field} and the {second}', f'{first} {field} plus a {second}')
    )
    tools = [
        tool(rng, names[0], [owner], _describe(rng, owner, kind)),
        tool(rng, names[1], [kind, first], f'Read a {first} of a {kind}.'),
        tool(rng, names[2], [kind], _describe(rng, kind, second)),
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


def respell(rng):
    """A listed name is meant though its words were said in another order or spelling."""
    thing, wanted = rng.sample(NOUNS, 2)
    names = distinct(rng, lambda r: tool_name(r), 2)
    words = [
        [w.lower() for w in distinct(rng, lambda r: made_up_name(r).split()[0], 2)]
        for _ in range(rng.randint(2, 3))
    ]
    second = rng.choice(NOUNS)
    words = [[pair[0], second if rng.random() < 0.3 else pair[1]] for pair in words]
    joint = rng.choice('_-')
    listed = [joint.join(pair) for pair in words]
    if len(set(listed)) < len(listed):
        return respell(rng)
    place = rng.randrange(len(listed))
    said = words[place] if rng.random() < 0.5 else words[place][::-1]
    found = value(rng)
    messages = [
        user(f'What is the {wanted} in the {thing} {" ".join(said)}?'),
        asks(names[0]),
        returns({f'{thing}s': listed}),
        asks(names[1], **{thing: listed[place]}),
        returns({wanted: found}),
        says(f'The {wanted} of {listed[place]} is {found}.'),
    ]
    tools = [
        tool(rng, names[0], [], f'Names of every {thing}.'),
        tool(rng, names[1], [thing], _describe(rng, thing, wanted)),
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
            f'Check the {noun} {subjects[0]} and {subjects[1]}{where}: the {first} if {states[0]}, the {second} if {states[1]}.'
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
    (chain, 6), (branch, 3), (choose, 3), (several, 2), (correct, 2), (largest, 2), (session, 2),
    (both, 2), (respell, 1), (forks, 2), (facts, 1), (echo, 1),
)  # fmt: skip


def conversation(rng: random.Random) -> tuple[list[dict], list[dict]]:
    """Tools and messages of one made-up conversation; tools in any order."""
    make = rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
    tools, messages = make(rng)
    named = {
        item['function']['name']: item for item in reversed(tools)
    }  # the first of a name stays
    for message in messages:
        for call in message.get('tool_calls', ()):
            _declare_types(named[call['function']['name']], call['function']['arguments'])
    tools = list(named.values())
    rng.shuffle(tools)
    return tools, messages


def _declare_types(declared, arguments):
    """A parameter that is given a number is declared as one."""
    properties = declared['function']['parameters']['properties']
    for field, given in arguments.items():
        if not isinstance(given, str):
            properties[field] = {'type': 'integer' if isinstance(given, int) else 'number'}
