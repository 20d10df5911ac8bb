"""Conversations about one thing, for `conversation`: chance in, tools and messages out."""

from cacherl_jax.invented.messages import (
    asks,
    describe,
    distractors,
    noisy,
    noted,
    returns,
    says,
    tool,
    tool_name,
    user,
)
from cacherl_jax.invented.words import (
    ADJECTIVES,
    CALENDAR,
    NOUNS,
    distinct,
    made_up_id,
    made_up_name,
    number,
    value,
)


def chain(rng):
    """Values travel from request to call to result to next call to answer; a tool may fail."""
    length = rng.choice((1, 2, 2, 3, 3, 4, 5))
    nouns = rng.sample(NOUNS, length + 1)
    start = value(rng) if rng.random() < 0.5 else made_up_name(rng)
    names = distinct(rng, lambda r: tool_name(r), length)
    wanted = nouns[-1]
    tools = [
        tool(rng, names[i], [nouns[i]], describe(rng, nouns[i], nouns[i + 1]))
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
            backup = tool(rng, tool_name(rng), [nouns[i]], describe(rng, nouns[i], nouns[i + 1]))
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
        tool(rng, names[0], [nouns[0]], describe(rng, nouns[0], nouns[1])),
        tool(rng, names[1], [nouns[0]], describe(rng, nouns[0], nouns[2])),
        tool(rng, names[2], [nouns[0]], describe(rng, nouns[0], nouns[3])),
    ]
    which = rng.randrange(2)
    state = states[which]
    request = rng.choice(
        (
            f'Check the {nouns[1]} of {nouns[0]} {subject}. If it is {states[0]}, '
            f'give me the {nouns[2]}; if {states[1]}, the {nouns[3]}.',
            f'When the {nouns[1]} of {subject} is {states[0]} I want the {nouns[2]}, '
            f'when {states[1]} the {nouns[3]}.',
        )
    )
    found = value(rng)
    wanted = nouns[2 + which]
    note = rng.choice(('', f'{state}, so {wanted}.', f'It is {state}: {names[1 + which]}.'))
    messages = [
        user(request),
        asks(names[0], **{nouns[0]: subject}),
        returns(noisy(rng, {nouns[1]: state})),
        noted(note, asks(names[1 + which], **{nouns[0]: subject})),
        returns(noisy(rng, {wanted: found})),
        says(f'The {nouns[1]} is {state}. {wanted.capitalize()}: {found}'),
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
        tool(rng, names[1], [kind], describe(rng, kind, wanted)),
    ]
    found = value(rng)
    listing = [{kind: i, label: l} for i, l in zip(ids, labels, strict=True)]
    form, lines = rng.random(), labels
    if form < 0.7:  # a line of text each, its name before or behind it
        lines = [
            rng.choice((f'{subject} {kind} {l}', f'{l} {label}', f'{label} {l}')) for l in labels
        ]
        pairs = (ids, lines) if form < 0.35 else (lines, ids)
        listing = dict(zip(*pairs, strict=True))
    note = rng.choice(('', f'{lines[place]}: {ids[place]}.'))
    messages = [
        user(
            f'Of the {owner} {subject}, take the {kind} with {label} {labels[place]} '
            f'and tell me its {wanted}.'
        ),
        asks(names[0], **{owner: subject}),
        returns(listing if isinstance(listing, dict) else {f'{kind}s': listing}),
        noted(note, asks(names[1], **{kind: ids[place]})),
        returns(noisy(rng, {wanted: found})),
        says(f'{kind.capitalize()} {ids[place]}, {wanted}: {found}'),
    ]
    return tools + distractors(rng, rng.randint(0, 2)), messages


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
        end = 'largest' if style == 1 else 'smallest'
        request = f'In {owner} {subject}, which {kind} has the {end} {measure}?'
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
            f'Open {thing} {opened}, keep {part} {chosen} by {kind} {wanted}, '
            f'then give the {measure} {wanted}.'
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


def respell(rng):
    """A thing is named by its word, or by two in any order: then its spelling is looked up."""
    thing, wanted = rng.sample(NOUNS, 2)
    names = distinct(rng, lambda r: tool_name(r), 2)
    words = [
        [w.lower() for w in distinct(rng, lambda r: made_up_name(r).split()[0], 2)]
        for _ in range(rng.randint(2, 3))
    ]
    second = rng.sample(CALENDAR if rng.random() < 0.5 else NOUNS, len(words))
    words = [[pair[0], other.lower()] for pair, other in zip(words, second, strict=True)]
    if rng.random() < 0.4:  # the first word of all is the same
        words = [[words[0][0], pair[1]] for pair in words]
    joint = rng.choice('_-')
    order = rng.choice((1, -1))
    listed = [joint.join(pair[::order]) for pair in words]
    place = rng.randrange(len(listed))
    single = rng.random() < 0.5
    said = words[place][0] if single else ' '.join(words[place][:: rng.choice((1, 1, -1))])
    meant = said if single else listed[place]
    found = value(rng)
    note = rng.choice(('', f'{thing.capitalize()}: {said}.', f'{thing} {said}.', f'The {said}.'))
    request = rng.choice(
        (
            f'What is the {wanted} in the {thing} {said}?',
            f'{thing} {said}: its {wanted}?',
            f'Give me the {wanted} of {said}.',
            f'{wanted} in the {said} {thing}, please.',
        )
    )
    asked = asks(names[1], **{thing: meant})
    messages = [user(request)]
    if single:
        messages.append(noted(note, asked))
    else:
        messages += [noted(note, asks(names[0])), returns({f'{thing}s': listed}), asked]
    messages += [returns({wanted: found}), says(f'The {wanted} of {meant} is {found}.')]
    tools = [
        tool(rng, names[0], [], f'Names of every {thing}.'),
        tool(rng, names[1], [thing], describe(rng, thing, wanted)),
    ]
    return tools + distractors(rng, rng.randint(0, 3)), messages
