"""Laws of the text that the small base model is made from: well-formed, and no task is in it."""

import functools
import random
import re

import jsonschema
import pytest

from cacherl_jax.chat.parse import HERMES, parse_turn
from cacherl_jax.chat.template import Chat
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE
from cacherl_jax.invented.conversation import DENSE, KINDS, conversation
from cacherl_jax.invented.words import WORDS
from cacherl_jax.tasks.suites import SUITES

MAKERS = list(dict.fromkeys(maker for maker, _ in (*KINDS, *DENSE)))


@functools.cache
def conversations(count=1000):
    chance = random.Random(4)
    return [conversation(chance, dense=0.2) for _ in range(count)]


@functools.cache
def tasks():
    return [
        suite.task(split, level, number)
        for suite in SUITES
        for split in ('train', 'validation', 'test')
        for level in (1, 2, 3)
        for number in range(30)
    ]


def six_words(text):
    words = text.lower().split()
    return {tuple(words[place : place + 6]) for place in range(len(words) - 5)}


@pytest.mark.parametrize('maker', MAKERS, ids=lambda maker: maker.__name__)
def test_turns_follow_each_other_as_in_a_chat(maker):
    """The user opens, the assistant has the last word, and each call is followed by one result."""
    for seed in range(20):
        _, messages = maker(random.Random(seed))
        assert messages[0]['role'] == 'user' and not messages[-1].get('tool_calls')
        asked = sum(len(message.get('tool_calls', ())) for message in messages)
        assert asked == sum(message['role'] == 'tool' for message in messages)
        roles = [message['role'] for message in messages]
        assert roles[-1] == 'assistant' and ('user', 'user') not in zip(
            roles, roles[1:], strict=False
        )


def test_every_call_fits_a_declared_tool():
    for tools, messages in conversations()[:500]:
        schemas = {t['function']['name']: t['function']['parameters'] for t in tools}
        assert len(schemas) == len(tools)
        for message in messages:
            for call in message.get('tool_calls', ()):
                function = call['function']
                schema = schemas[function['name']]
                assert jsonschema.Draft202012Validator(schema).is_valid(function['arguments'])


def test_what_is_rendered_is_read_back():
    tokenizer = load_tokenizer(BASE)
    chat = Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))
    for _, messages in conversations()[:25]:
        for message in (m for m in messages if m['role'] == 'assistant'):
            read = parse_turn(chat.message_text(chat.turn_ids(message)), HERMES)
            made = [call['function'] for call in message.get('tool_calls', ())]
            assert [(c.name, c.arguments) for c in read.calls] == [
                (function['name'], function['arguments']) for function in made
            ]
            assert read.content.strip() == message['content'].strip()


def test_a_seed_gives_the_same_conversations():
    assert [conversation(random.Random(9)) for _ in range(2)][0] == conversation(random.Random(9))
    assert conversation(random.Random(9)) != conversation(random.Random(10))


def test_no_entity_of_any_task_is_in_the_text():
    """But those that are also plain words: made-up names spell one now and then."""
    said = '\n'.join(m['content'] for _, messages in conversations() for m in messages).lower()
    named = {task.entity.lower() for task in tasks()} - set(WORDS)
    assert not named & set(re.findall(r'\w+', said))


def test_no_six_words_of_any_request_are_in_the_text():
    said = [
        m['content'] for _, messages in conversations() for m in messages if m['role'] == 'user'
    ]
    asked = set().union(*(six_words(task.messages[0]['content']) for task in tasks()))
    assert not asked & set().union(*map(six_words, said))


def test_no_conversation_has_the_tools_of_a_suite():
    """Two may meet, because a verb alone is a name too; the smallest task offers four."""
    names = {tool.name for task in tasks() for tool in task.tools}
    declared = [{t['function']['name'] for t in tools} for tools, _ in conversations()]
    assert max(len(names & together) for together in declared) <= 2
