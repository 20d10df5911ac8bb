"""Conversations in which the class of a word decides: rain is wet, gold is a metal."""

from cacherl_jax.invented.messages import (
    asks,
    calls,
    distractors,
    noted,
    returns,
    says,
    tool,
    tool_name,
    user,
)
from cacherl_jax.invented.words import (
    CALENDAR,
    CLASSES,
    NOUNS,
    OPPOSED,
    WORDS,
    distinct,
    few_words,
    made_up_name,
    title,
)

REQUESTS = (
    'See to {items} of {subject}, each as its {state} asks.',
    '{subject}: {items}. Decide by {state}.',
    'For {items} at {subject}, what fits the {state}?',
    'Handle {subject}, {items}, going by {state}.',
    'I have {items} with {subject}. What goes with the {state}?',
    'Whatever the {state}, get me something for {subject} and {items}.',
)
ANSWERS = (
    '{item}: {state}, so {found}.',
    '{item} is {state}: {found}.',
    '{item} ({state}) {found}.',
)

REASONS = (
    '{item}: {word} is {kind}, so {way}.',
    '{item} {word}: {kind}, {way}.',
    '{word} means {kind}, so {way} for {item}.',
    '{item} is {word}, which is {kind}: {way}.',
    '{item}, {word}, {kind}, {way}.',
)

QUOTES = ('{item}: {word}, a {kind} {what}: {way}.', '{word}, so {kind} {what}: {way}.')


def two_ways(rng, fields, what, kinds, wanted):
    """Two tools, one for each class of a thing, and how a choice between them is put in words.

    Half the time they are called after what they give, and the choice quotes what they say of
    themselves.  Returns tools, names, and reason(side, item, word) -> text.
    """
    forms = ('{want} for a {kind} {what}.', '{want} if {kind}.', 'The {want} when {kind}.')
    form, reasons, names = rng.choice(forms), ('', *REASONS), distinct(rng, tool_name, 2)
    if rng.random() < 0.5:
        form, reasons = (
            rng.choice(('{kind} {what}: {want}.', 'For a {kind} {what}: {want}.')),
            QUOTES,
        )
        names = wanted if rng.random() < 0.7 else [tool_name(rng, want) for want in wanted]
    reason, ways = rng.choice(reasons), rng.choice((names, wanted, wanted))
    tools = [
        tool(rng, name, fields, form.format(want=want, kind=kind, what=what).capitalize())
        for name, want, kind in zip(names, wanted, kinds, strict=True)
    ]

    def put(side, item, word):
        return reason.format(item=item, word=word, kind=kinds[side], what=what, way=ways[side])

    return tools, names, put


def classed(rng):
    """No tools: which of two classes a word belongs to, or other words of its class."""
    messages = []
    for _ in range(rng.randint(2, 6)):
        right, wrong = rng.sample(rng.choice(OPPOSED), 2)
        word, sister = rng.sample(CLASSES[right], 2)
        first, second = rng.sample((right, wrong), 2)
        style = rng.randrange(3)
        if style == 0:
            messages += [user(f'Is {word} {first} or {second}?'), says(right)]
        elif style == 1:
            odd = rng.choice(CLASSES[wrong])
            first, second = rng.sample((sister, odd), 2)
            messages += [user(f'What goes with {word}: {first} or {second}?'), says(sister)]
        else:
            messages += [user(f'{word}, {sister}?'), says(f'both {right}')]
    return [], messages


def glossary(rng):
    """No tools: many words, and the class of each."""
    classes = {word: name for name, words in CLASSES.items() for word in words}
    words = rng.sample(sorted(classes), rng.randint(5, 12))
    return [], [user(', '.join(words)), says(', '.join(classes[word] for word in words))]


def states(rng):
    """Of each item the state is looked up, by a backup where need be; its class picks the way.

    One class needs one more call, the other two; the items are done side by side.
    """
    where, what, state, first, second, inner = rng.sample(NOUNS, 6)
    look, spare, deeper = distinct(rng, tool_name, 3)
    classes = rng.sample(rng.choice(OPPOSED), 2)
    subject = made_up_name(rng)
    make = rng.choice((lambda r: r.choice(CALENDAR), lambda r: r.choice(WORDS), made_up_name))
    items = distinct(rng, make, rng.choice((1, 2, 2, 2, 3)))
    tools, names, reason = two_ways(rng, [where, what], what, classes, [first, inner])
    tools += [
        tool(rng, look, [where, what], f'{state.capitalize()} of a {what}.'),
        tool(rng, deeper, [where, inner], f'{first.capitalize()} of the {inner}.'),
    ]
    spared = rng.random() < 0.6
    if spared:
        about = rng.choice((f'Backup when {look} fails.', f'{state.capitalize()}, when missing.'))
        tools.append(tool(rng, spare, [where, what], about))
    else:
        tools += distractors(rng, rng.randint(0, 2))

    def call(name, field, given):
        return name, {where: subject, field: given}

    side = {item: rng.randrange(2) for item in items}
    found_state = {item: rng.choice(CLASSES[classes[side[item]]]) for item in items}
    request = rng.choice(REQUESTS).format(
        items=' and '.join(map(str, items)), subject=subject, state=state
    )
    messages = [user(request), calls(*(call(look, what, item) for item in items))]
    missing = [item for item in items if spared and rng.random() < 0.4]
    told = rng.random() < 0.5
    unknown = rng.choice(('unknown', 'missing', 'not known'))
    known = [f'{i}: {unknown if i in missing else found_state[i]}.' for i in items]
    reasons = ' '.join(reason(side[item], item, found_state[item]) for item in items).strip()
    for item in items:
        failed = {'error': 'unavailable', 'message': f'Unavailable: {item}'}
        messages.append(returns(failed if item in missing else {state: found_state[item]}))
    if missing:
        asked = calls(*(call(spare, what, item) for item in missing))
        messages.append(noted(' '.join(known) if told else '', asked))
        messages += [returns({state: found_state[item]}) for item in missing]
    asked = calls(*(call(names[side[item]], what, item) for item in items))
    messages.append(noted(reasons, asked))
    made = {item: rng.choice((few_words, title))(rng) for item in items}
    way = {item: few_words(rng) for item in items}
    messages += [returns({inner: way[i]} if side[i] else {first: made[i]}) for i in items]
    longer = [item for item in items if side[item]]
    if longer:
        messages.append(calls(*(call(deeper, inner, way[item]) for item in longer)))
        messages += [returns({first: made[item]}) for item in longer]
    form = rng.choice(ANSWERS)
    told = {i: f'{way[i]} and {made[i]}' if side[i] else made[i] for i in items}
    parts = [form.format(item=i, state=found_state[i], found=told[i]) for i in items]
    return tools, [*messages, says(' '.join(parts))]


def sorted_out(rng):
    """The class of one word, looked up, picks one of two tools; its name is not in the request.

    Half the time one of the two only leads to a third.
    """
    thing, kind, first, second, inner = rng.sample(NOUNS, 5)
    look, deeper = distinct(rng, tool_name, 2)
    classes, leads = rng.sample(rng.choice(OPPOSED), 2), rng.random() < 0.5
    wanted = (first, inner if leads else second)
    which, subject, found = rng.randrange(2), made_up_name(rng), few_words(rng)
    word = rng.choice(CLASSES[classes[which]])
    tools, ways, reason = two_ways(rng, [thing], thing, classes, wanted)
    tools.append(tool(rng, look, [thing], f'{kind.capitalize()} of a {thing}.'))
    if leads:
        tools.append(tool(rng, deeper, [inner], f'{second.capitalize()} of the {inner}.'))
    messages = [
        user(f'What suits the {kind} of {thing} {subject}, {first} or {second}?'),
        asks(look, **{thing: subject}),
        returns({kind: word}),
        noted(reason(which, subject, word), asks(ways[which], **{thing: subject})),
        returns({wanted[which]: found}),
    ]
    if leads and which:
        more = title(rng)
        messages += [asks(deeper, **{inner: found}), returns({second: more})]
        found = f'{found} and {more}'
    messages.append(says(f'{subject} is {word}, {(first, second)[which]}: {found}'))
    return tools + distractors(rng, rng.randint(0, 2)), messages


def sorting(rng):
    """One word after the other goes to the tool of its class, which only descriptions name."""
    given, *wanted = rng.sample(NOUNS, 3)
    classes = rng.sample(rng.choice(OPPOSED), 2)
    tools, ways, reason = two_ways(rng, [given], given, classes, wanted)
    messages = []
    for _ in range(rng.randint(3, 6)):
        side = rng.randrange(2)
        word, found = rng.choice(CLASSES[classes[side]]), few_words(rng)
        messages += [
            user(word),
            noted(reason(side, word, word), asks(ways[side], **{given: word})),
            returns({wanted[side]: found}),
            says(found),
        ]
    return tools, messages


def looked_up(rng):
    """Many subjects, each looked up first: its state, which nobody names before, picks the tool.

    Half the time one of the two tools only leads to a third.
    """
    given, state, first, second, inner = rng.sample(NOUNS, 5)
    look, deeper = distinct(rng, tool_name, 2)
    classes, leads = rng.sample(rng.choice(OPPOSED), 2), rng.random() < 0.5
    wanted = (first, inner if leads else second)
    tools, ways, reason = two_ways(rng, [given], given, classes, wanted)
    tools.append(tool(rng, look, [given], f'{state.capitalize()} of a {given}.'))
    if leads:
        tools.append(tool(rng, deeper, [inner], f'{second.capitalize()} of the {inner}.'))
    messages = []
    for subject in distinct(rng, made_up_name, rng.randint(2, 4)):
        side = rng.randrange(2)
        word, found = rng.choice(CLASSES[classes[side]]), few_words(rng)
        messages += [
            user(subject),
            asks(look, **{given: subject}),
            returns({state: word}),
            noted(reason(side, subject, word), asks(ways[side], **{given: subject})),
            returns({wanted[side]: found}),
        ]
        if leads and side:
            more = title(rng)
            messages += [asks(deeper, **{inner: found}), returns({second: more})]
            found = f'{found} and {more}'
        messages.append(says(f'{word}: {found}'))
    return tools, messages


def followed(rng):
    """Two things side by side, again and again; one way leads to one more call, the other does not.

    Only what came back says so, and not always what came back last.
    """
    where, what, first, second, inner = rng.sample(NOUNS, 5)
    short, long, deeper = distinct(rng, tool_name, 3)
    subject = made_up_name(rng)
    make = rng.choice((lambda r: r.choice(CALENDAR), lambda r: r.choice(WORDS), made_up_name))
    tools = [
        tool(rng, short, [where, what], f'{second.capitalize()} of a {what}.'),
        tool(rng, long, [where, what], f'{inner.capitalize()} of a {what}.'),
        tool(rng, deeper, [where, inner], f'{first.capitalize()} of the {inner}.'),
    ]
    messages = []
    for _ in range(rng.randint(2, 4)):
        items = distinct(rng, make, rng.choice((1, 2, 2, 2)))
        leads = {item: rng.random() < 0.5 for item in items}
        asked = {item: long if leads[item] else short for item in items}
        found = {item: few_words(rng) for item in items}
        more = {item: title(rng) for item in items if leads[item]}
        listed = ' and '.join(f'{item} by {asked[item]}' for item in items)
        form = rng.choice(
            ('{listed} for {subject}.', '{subject}: {listed}.', '{listed}, {subject}?')
        )
        messages += [
            user(form.format(listed=listed, subject=subject)),
            calls(*((asked[item], {where: subject, what: item}) for item in items)),
            *(returns({inner if leads[item] else second: found[item]}) for item in items),
        ]
        if more:
            messages.append(
                calls(*((deeper, {where: subject, inner: found[item]}) for item in more))
            )
            messages += [returns({first: more[item]}) for item in more]
        told = {
            item: f'{found[item]} and {more[item]}' if item in more else found[item]
            for item in items
        }
        messages.append(says(' '.join(f'{item}: {told[item]}.' for item in items)))
    return tools, messages
