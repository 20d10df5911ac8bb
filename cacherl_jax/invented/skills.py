"""Conversations that train one skill: finding what a request names, choosing by name and year."""

import json

from cacherl_jax.invented.messages import (
    asks,
    calls,
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
    CALENDAR,
    NOUNS,
    SUFFIXES,
    WORDS,
    distinct,
    made_up_id,
    made_up_name,
    number,
    phrase,
    quantity,
)

OPERATIONS = ('total', 'mean', 'peak', 'lowest', 'count', 'range')
ONE = (
    'Take {thing} {name}, only {kind} {value}, and work out the {how} {number}.',
    '{how} {number} please: {thing} {name}, {kind} = {value}.',
    'From {name}, a {thing}, I want {number}, {how}, wherever the {kind} reads {value}.',
    'Of all {kind} {value} within the {thing} {name}: {how} {number}.',
    'Say the {how} over every {number} whose {kind} equals {value}; see {name}.',
    'My {thing} is {name}. Keep {value} among its {kind} entries; {how} {number}?',
    '{kind} {value}, {thing} {name}: how about {number}, as {how}?',
    'The {number} of {name}, {how}, but nothing except {value} as {kind}.',
)
BEST = (
    'With {value} as the {kind}, name the best {group} by {number}, {thing} {name}.',
    'Rank each {group} of {name} by {number}, just {kind} {value}. Who wins?',
    '{thing} {name}, {kind} {value}: the winning {group}, judged by {number}?',
    'By {number}, what {group} beats the others in {name} once {kind} equals {value}?',
    'Look at {value} only, a {kind} of {name}. Its strongest {group} by {number}?',
    'Strongest {group} in {thing} {name}, {number} decides, {kind} must be {value}.',
)


def plain_word(rng) -> str:
    """A made-up word in small letters."""
    return made_up_name(rng).split()[0].lower()


def label(rng) -> str:
    """What a column is called: mostly a word of every day, sometimes one that nobody has heard."""
    if rng.random() < 0.2:
        return plain_word(rng)
    return rng.choice(NOUNS if rng.random() < 0.6 else WORDS).lower()


def opening(rng, thing, name, open_it, list_them):
    """How the thing of a name is opened: messages, and the words by which a request names it.

    Two words stand for a spelling that has to be looked up among its like.
    """
    note = rng.choice(('', f'{thing.capitalize()} {{said}}.', '{said}.'))
    if rng.random() < 0.5:
        return [noted(note.format(said=name), asks(open_it, **{thing: name}))], name
    others = rng.sample(CALENDAR if rng.random() < 0.6 else NOUNS, rng.choice((1, 2, 2, 3)))
    others = [word.lower() for word in others]
    joint, order = rng.choice('__-'), rng.choice((1, -1))
    listed = {word: joint.join((name, word)[::order]) for word in others}
    said = f'{name} {others[0]}'
    messages = [
        noted(note.format(said=said), asks(list_them)),
        returns({f'{thing}s': sorted(listed.values())}),
        asks(open_it, **{thing: listed[others[0]]}),
    ]
    return messages, said


def slots(rng):
    """A request names several things in any order; every call takes the ones that belong to it."""
    thing = rng.choice(NOUNS)
    kind, group, measured = distinct(rng, label, 3)
    key, entry, field, mode = rng.sample(NOUNS, 4)
    names = distinct(rng, tool_name, 6)
    make = plain_word if rng.random() < 0.7 else made_up_name
    name, kept, winner = distinct(rng, make, 3)
    how, best = rng.choice(OPERATIONS), rng.random() < 0.5
    messages, called = opening(rng, thing, name, names[0], names[5])
    said = {'thing': thing, 'name': called, 'kind': kind, 'value': kept, 'number': measured}
    request = rng.choice(BEST if best else ONE).format(**said, group=group, how=how)
    tools = [
        tool(rng, names[0], [thing], f'Open a {thing}.'),
        tool(rng, names[1], [field, entry], f'Keep one {entry} of a {field}.'),
        tool(rng, names[2], [field], f'Split by a {field}.'),
        tool(rng, names[3], [mode, field], f'Work out a {field}.'),
        tool(rng, names[4], [field], f'Winner by a {field}.'),
        tool(rng, names[5], [], f'Names of every {thing}.'),
    ]
    messages = [user(request), *messages, returns({key: rng.randint(2, 60)})]
    ending = rng.choice(
        ('', '', f'_{rng.choice(NOUNS)}', f'_{rng.choice(NOUNS)}_{rng.choice(WORDS)}')
    )
    real = {word: word + ending for word in (kind, group, measured)}
    if ending:
        listed = rng.sample(sorted(real.values()), 3)
        messages += [asks(names[1], **{field: kind, entry: kept})]
        messages += [returns({'error': f'no {field} {kind}; {field}s: {", ".join(listed)}'})]
    messages += [asks(names[1], **{field: real[kind], entry: kept})]
    messages += [returns({key: rng.randint(1, 40)})]
    figure = number(rng)
    if best:
        messages += [
            asks(names[2], **{field: real[group]}),
            returns({f'{key}s': rng.randint(2, 9)}),
        ]
        messages += [asks(names[4], **{field: real[measured]})]
        messages += [returns({'first': winner, 'value': figure})]
        messages += [says(f'The best {group} is {winner} at {figure}.')]
    else:
        messages += [asks(names[3], **{mode: how, field: real[measured]})]
        messages += [returns({how: figure})]
        messages += [says(f'The {how} {measured} comes to {figure}.')]
    return tools + distractors(rng, rng.randint(0, 1)), messages


def titling(rng, kind):
    """title(name, year): how the things of a listing are called."""
    form = rng.choice(('{name} {year}', '{name} {year}', '{name} {kind} {year}'))
    return lambda name, year: form.format(name=name, kind=kind, year=year)


def editions(rng):
    """Names that differ in a word or a year: the one asked for is opened, or its double."""
    kind, inside, field, other = rng.sample(NOUNS, 4)
    names = distinct(rng, tool_name, 5)
    family = made_up_name(rng).split()[0]
    first, second = (f'{family} {suffix}' for suffix in rng.sample(SUFFIXES, 2))
    subject = rng.choice((family, first))
    year = rng.randint(1990, 2035)
    form = titling(rng, kind)
    lines = [form(subject, year), form(subject, year + rng.choice((-1, 1)))]
    lines += [form(second, year)] if subject == first else []
    ids = sorted(distinct(rng, made_up_id, len(lines)))
    order = rng.sample(range(len(lines)), len(lines))
    listing = {ids[place]: lines[place] for place in order}
    if rng.random() < 0.6:
        listing = {line: name for name, line in listing.items()}
    note = rng.choice(('', f'{lines[0]}: {ids[0]}.', f'{lines[0]} is {ids[0]}.'))
    opened, wanted, found, summary = ids[0], rng.choice(NOUNS), quantity(rng), phrase(rng)
    request = rng.choice(
        (
            f'{subject}, {kind} {year}: its {wanted} and the {other}?',
            f'From the {year} {kind} by {subject} read the {wanted}, and say the {other}.',
            f'{wanted} as of {year}, {subject}; the {other} as well.',
        )
    )
    handle = made_up_id(rng)
    tools = [
        tool(rng, names[0], ['words'], f'Find a {kind}.'),
        tool(rng, names[1], [kind], f'Open a {kind}.'),
        tool(rng, names[2], [inside, field], f'Read a {field} of a {inside}.'),
        tool(rng, names[3], [inside], describe(rng, inside, other)),
        tool(rng, names[4], [kind], f'Double of a missing {kind}.'),
    ]
    messages = [user(request), asks(names[0], words=f'{subject} {year}'), returns(listing)]
    messages += [noted(note, asks(names[1], **{kind: opened}))]
    if rng.random() < 0.4:
        double = made_up_id(rng)
        messages += [returns({'error': 'unavailable', 'message': f'Unavailable: {opened}'})]
        messages += [asks(names[4], **{kind: opened}), returns({'double': double})]
        messages += [asks(names[1], **{kind: double})]
    messages += [
        returns({inside: handle}),
        calls((names[2], {inside: handle, field: wanted}), (names[3], {inside: handle})),
        returns(noisy(rng, {wanted: found})),
        returns({other: summary}),
        says(f'{subject} {year} {wanted}: {found}. {summary}'),
    ]
    return tools, messages


def pick(rng):
    """No tools: a listing of names and years by id, then which id is which, one after the other."""
    kind, family = rng.choice(NOUNS), made_up_name(rng).split()[0]
    names = [family, *(f'{family} {suffix}' for suffix in rng.sample(SUFFIXES, 2))]
    years = rng.sample(range(1990, 2036), 2)
    lines = [(name, year) for name in rng.sample(names, rng.choice((1, 2, 2))) for year in years]
    lines = rng.sample(lines, rng.randint(2, len(lines)))
    ids = distinct(rng, made_up_id, len(lines))
    form = titling(rng, kind)
    titles = [form(name, year) for name, year in lines]
    pairs = (titles, ids) if rng.random() < 0.6 else (ids, titles)
    listing = dict(zip(*pairs, strict=True))
    whole = rng.random() < 0.5
    messages = [user(json.dumps(listing)), says('Noted.')]
    for place in (rng.randrange(len(ids)) for _ in range(rng.randint(3, 6))):
        name, year = lines[place]
        asked = rng.choice((f'{name} {year}?', f'The {year} {kind} of {name}?'))
        messages += [user(asked), says(f'{titles[place]}: {ids[place]}' if whole else ids[place])]
    return [], messages


def crossed(rng):
    """No tools: lines that only two words together tell apart, then which id is whose."""
    kind, family = rng.choice(NOUNS), made_up_name(rng).split()[0]
    ends = rng.choice((lambda: rng.choice(SUFFIXES), lambda: rng.choice(WORDS).capitalize()))
    names = [f'{family} {end}' for end in distinct(rng, lambda _: ends(), rng.choice((2, 2, 3)))]
    first = rng.randint(1990, 2035)
    years = (first, first + 1) if rng.random() < 0.6 else rng.sample(range(1990, 2036), 2)
    lines = rng.sample([(name, year) for name in names for year in years], 2 * len(names))
    lines = lines[: rng.randint(3, 4)]
    ids = distinct(rng, made_up_id, len(lines))
    if rng.random() < 0.5:
        ids = distinct(rng, lambda r: f'{kind[0]}{r.randint(1000, 9999)}', len(lines))
    form = titling(rng, kind)
    titles = [form(name, year) for name, year in lines]
    messages = [user(json.dumps(dict(zip(titles, ids, strict=True)))), says('Noted.')]
    for place in rng.choices(range(len(ids)), k=rng.randint(5, 9)):
        name, year = lines[place]
        asked = rng.choice((f'{name} {year}?', f'The {year} {kind} of {name}?', f'{name}, {year}'))
        messages += [user(asked), says(f'{titles[place]}: {ids[place]}.')]
    return [], messages


def matching(rng):
    """Which of the declared tools does what, asked in a word, one after the other."""
    given, *wanted = rng.sample(NOUNS, rng.randint(3, 6))
    names = distinct(rng, tool_name, len(wanted))
    pairs = list(zip(names, wanted, strict=True))
    about = rng.choice((lambda each: each, lambda each: describe(rng, given, each)))
    tools = [tool(rng, name, [given], about(each)) for name, each in pairs]
    messages = []
    for name, each in rng.choices(pairs, k=rng.randint(4, 9)):
        if rng.random() < 0.5:
            messages += [user(f'Which tool for the {each}?'), says(name)]
        else:
            subject = made_up_name(rng).split()[0]
            messages += [user(f'{each} {subject}'), asks(name, **{given: subject})]
            messages += [returns('{}'), says('done')]
    return tools, messages


def backward(rng):
    """No tools: pairs of words, then from the second of a pair to its first, or the other way."""
    words = rng.sample(WORDS, 2 * rng.randint(2, 6))
    pairs = list(zip(words[::2], words[1::2], strict=True))
    joint = rng.choice((' ', ': ', ' has ', ' is the '))
    said = rng.choice((', ', '; ', '\n')).join(joint.join(pair) for pair in pairs)
    messages = [user(said), says('Noted.')]
    for first, second in rng.choices(pairs, k=rng.randint(4, 9)):
        asked, answer = (first, second) if rng.random() < 0.25 else (second, first)
        messages += [user(f'{asked}?'), says(answer)]
    return [], messages
