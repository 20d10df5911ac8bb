"""What conversations are built of: messages, tool declarations, results with noise."""

import json

from cacherl_jax.invented.words import NOUNS, VERBS, phrase, value


def user(text) -> dict:
    """A user message."""
    return {'role': 'user', 'content': text}


def says(text) -> dict:
    """An assistant message with text alone."""
    return {'role': 'assistant', 'content': text}


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


def noted(note: str, message: dict) -> dict:
    """A message with calls that says first what it goes by."""
    return message | {'content': note}


def returns(content) -> dict:
    """A tool result: text, or JSON."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {'role': 'tool', 'content': text}


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


def describe(rng, given, wanted) -> str:
    """What a tool that finds one thing by another says of itself."""
    return rng.choice(
        (
            f'{wanted.capitalize()} of a {given}.',
            f'Gives the {wanted} of a {given}.',
            f'Look up the {wanted} for a {given}.',
        )
    )


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
