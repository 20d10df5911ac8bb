"""Laws of trajectories from files: exactly what was said is learned, or the file is refused."""

import functools
import json
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacherl_jax.chat.parse import HERMES, parse_turn, render_call
from cacherl_jax.chat.template import Chat, call_message, tool_message
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.supervised.conversations import (
    Conversation,
    calls_of,
    conversation_rows,
    learned_arrays,
)
from cacherl_jax.supervised.formats import openai_lines, read_conversations
from cacherl_jax.tools.tool import Call

BASE = pathlib.Path(__file__).parent.parent / 'cacherl_jax' / 'base'
LOOK = {'name': 'look', 'description': 'Look.', 'parameters': {'type': 'object', 'properties': {}}}
TOOLS = ({'type': 'function', 'function': LOOK},)
AT = [('look', {'at': 'Zürich "x"'}), ('look', {'at': 'sea'})]
WHOLE = Conversation(
    messages=(
        {'role': 'system', 'content': 'Be brief.'},
        {'role': 'user', 'content': 'What is where?'},
        call_message('Let me see.', AT, 'Two places.'),
        tool_message('look', '{"found": 1}'),
        tool_message('look', '{"found": 2}'),
        {'role': 'assistant', 'content': 'One and two.'},
        {'role': 'user', 'content': 'And here?'},
        call_message('', [('look', {})]),
        tool_message('look', 'nothing'),
        {'role': 'assistant', 'content': 'Nothing.'},
    ),
    tools=TOOLS,
)


def openai_form():
    return json.loads(openai_lines([WHOLE]))


def sharegpt_form():
    calls = [{'name': name, 'arguments': arguments} for name, arguments in AT]
    turns = [
        ('human', 'What is where?'), ('function_call', json.dumps(calls)),
        ('observation', '{"found": 1}'), ('observation', '{"found": 2}'), ('gpt', 'One and two.'),
        ('human', 'And here?'), ('function_call', '{"name": "look", "arguments": "{}"}'),
        ('observation', 'nothing'), ('gpt', 'Nothing.'),
    ]  # fmt: skip
    said = [{'from': role, 'value': text} for role, text in turns]
    return {'conversations': said, 'system': 'Be brief.', 'tools': json.dumps([LOOK])}


def hermes_form():
    calls = '\n'.join(render_call(Call(*call)) for call in AT)
    prompt = f'Be brief.\n\n# Tools\n\nOf these:\n<tools>\n{json.dumps(TOOLS[0])}\n</tools>\nCall.'
    results = ''.join(f'<tool_response>\n{{"found": {n}}}\n</tool_response>\n' for n in (1, 2))
    turns = [
        ('system', prompt), ('user', 'What is where?'),
        ('assistant', f'<think>\nTwo places.\n</think>\nLet me see.\n{calls}'),
        ('user', results), ('assistant', 'One and two.'), ('user', 'And here?'),
        ('assistant', render_call(Call('look', {}))),
        ('tool', '<tool_response>\nnothing\n</tool_response>'), ('assistant', 'Nothing.'),
    ]  # fmt: skip
    return {'messages': [{'role': role, 'content': text} for role, text in turns]}


FORMS = {'openai': openai_form, 'sharegpt': sharegpt_form, 'hermes': hermes_form}


@functools.cache
def chat(template: str = '') -> Chat:
    tokenizer = load_tokenizer(BASE)
    tokenizer.chat_template = template or tokenizer.chat_template
    return Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))


def read(tmp_path, form, *records, name='some.jsonl', **settings):
    path = tmp_path / name
    written = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
    path.write_text('\n'.join(written) + '\n', encoding='utf-8')
    return read_conversations(path, form, **settings)


def spans(arrays) -> list[str]:
    """Texts of the stretches of learned tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], arrays['sampled'].astype(int), [0]])))
    return [chat().decode(arrays['tokens'][a:b]) for a, b in edges.reshape(-1, 2)]


@pytest.mark.parametrize('form', FORMS)
def test_every_format_tells_the_same_conversation(form, tmp_path):
    (found,), refused = read(tmp_path, form, FORMS[form]())
    expected = list(WHOLE.messages)
    if form == 'sharegpt':  # a call has a turn of its own there, without a word beside it
        expected[2] = call_message('', AT)
    assert list(found.messages) == expected and found.tools == TOOLS and not refused
    assert found.source.endswith('some.jsonl, line 1')


@pytest.mark.parametrize('form', FORMS)
def test_learned_spans_read_back_as_what_the_assistant_said(form, tmp_path):
    (found,), _ = read(tmp_path, form, FORMS[form]())
    texts = spans(learned_arrays(chat(), found))
    said = [message for message in found.messages if message['role'] == 'assistant']
    assert all(text.endswith('<|im_end|>') for text in texts)
    turns = [parse_turn(text.removesuffix('<|im_end|>'), HERMES) for text in texts]
    assert [turn.calls for turn in turns] == [calls_of(message) for message in said]
    assert [turn.content for turn in turns] == [message['content'] for message in said]
    assert [turn.thinking for turn in turns] == [m.get('reasoning_content', '') for m in said]


def test_the_mask_holds_the_turns_ids_and_no_other():
    arrays = learned_arrays(chat(), WHOLE)
    said = [message for message in WHOLE.messages if message['role'] == 'assistant']
    ids = [token for message in said for token in chat().turn_ids(message)]
    assert arrays['tokens'][arrays['sampled']].tolist() == ids
    whole = chat().render(WHOLE.messages, WHOLE.tools)
    assert chat().decode(arrays['tokens']) == whole.removesuffix('\n')


def test_messages_of_weight_0_are_read_and_not_learned(tmp_path):
    record = openai_form()
    record['messages'][5]['weight'] = 0
    (found,), _ = read(tmp_path, 'openai', record)
    some, whole = learned_arrays(chat(), found), learned_arrays(chat(), WHOLE)
    np.testing.assert_array_equal(some['tokens'], whole['tokens'])
    assert spans(some) == [text for n, text in enumerate(spans(whole)) if n != 1]
    assert json.loads(openai_lines([found])) == record


TEXT = st.text(st.characters(codec='utf-8', exclude_characters='<>'), min_size=1, max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
CALLS = st.lists(st.tuples(st.just('look'), st.dictionaries(TEXT, JSON, max_size=3)), max_size=3)


@settings(max_examples=25)
@given(st.lists(st.tuples(TEXT, TEXT, CALLS), min_size=1, max_size=3))
def test_what_is_written_is_read_back(tmp_path_factory, turns):
    messages = []
    for asked, said, calls in turns:
        messages += [{'role': 'user', 'content': asked}, call_message(said, calls)]
        messages += [tool_message('look', asked) for _ in calls]
    made = Conversation(messages=tuple(messages), tools=TOOLS)
    path = tmp_path_factory.mktemp('written') / 'some.jsonl'
    path.write_text(openai_lines([made, made]), encoding='utf-8', newline='')
    first, second = read_conversations(path, 'openai').conversations
    assert first.messages == second.messages == made.messages and first.tools == made.tools
    learned_arrays(chat(), first)


def test_results_stand_in_the_order_of_their_calls(tmp_path):
    record = openai_form()
    record['messages'][3:5] = record['messages'][4:2:-1]
    assert read(tmp_path, 'openai', record).conversations[0].messages == WHOLE.messages


def test_an_array_is_read_like_lines(tmp_path):
    one = json.dumps([openai_form()] * 2, indent=1)
    found = read(tmp_path, 'openai', one, name='some.json').conversations
    assert [c.messages for c in found] == [WHOLE.messages] * 2
    assert [c.source.split(', ')[1] for c in found] == [
        'line 2',
        f'line {one.count(chr(10)) // 2 + 2}',
    ]


def changed(place, **fields):
    """The OpenAI record with fields of one message changed."""
    record = openai_form()
    record['messages'][place] |= fields
    return json.dumps(record)


def called(arguments):
    return [{'id': 'a', 'type': 'function', 'function': {'name': 'look', 'arguments': arguments}}]


def turn(role, text):
    return {'conversations': [{'from': 'human', 'value': 'Hi'}, {'from': role, 'value': text}]}


@pytest.mark.parametrize(
    ('form', 'record', 'why'),
    [
        ('openai', '{"messages": [', 'line 2: broken JSON'),
        ('openai', '{} {}', 'line 2: more text after the record'),
        ('openai', '[]', 'line 2: a record must be an object, got an array'),
        ('openai', '{"messages": [], "messages": []}', 'line 2: an object with a key twice'),
        ('openai', {'messages': []}, 'line 2: messages must be an array, got an empty one'),
        ('openai', {'messages': [], 'score': 1}, r"the fields \['score'\]; allowed: .'messages'"),
        ('openai', changed(1, role='robot'), r'message 2, role must be one of .*got "robot"'),
        ('openai', changed(1, content=7), 'message 2, content must be text, got a number'),
        ('openai', changed(1, content=None), r"message 2 lacks \['content'\]"),
        ('openai', changed(1, content=[{'type': 'image_url'}]), 'part 1 must be of type "text"'),
        ('openai', changed(1, role='system'), 'message 2 is from system, which may only come fir'),
        ('openai', changed(6, role='assistant'), 'messages 6 and 7 are both from assistant'),
        ('openai', changed(7, tool_calls=called('{"a":')), 'message 8, call 1, arguments: broken'),
        ('openai', changed(7, tool_calls=called('[1]')), 'arguments must be an object or its JSON'),
        ('openai', changed(7, tool_calls=called('"{}"')), 'arguments must be an object or its JS'),
        ('openai', changed(7, tool_calls=called('{} {}')), 'arguments: more text after the JSON'),
        ('openai', changed(7, tool_calls=called('{"a": NaN}')), 'no finite number'),
        ('openai', changed(7, tool_calls=called('{}')), "for call id 'call_7_0'; calls that"),
        ('openai', changed(7, tool_calls=[]), 'message 8 says nothing'),
        ('openai', changed(8, role='user', tool_call_id=None), r"of the calls of \['look'\]"),
        ('openai', changed(8, name='leap'), "result of 'leap', and the call it an"),
        ('openai', changed(9, weight=0.5), 'message 10, weight must be 0 or 1, got 0.5'),
        ('openai', changed(9, function_call={}), r"message 10 has the fields \['function_call'\]"),
        ('openai', {**openai_form(), 'tools': []}, r"calls of \['look'\], and the tools"),
        ('openai', {**openai_form(), 'tools': [{'type': 'web'}]}, r"tool 1 has the fields"),
        ('sharegpt', turn('bot', 'Hi'), 'turn 2, from must be one of'),
        ('sharegpt', turn('gpt', ''), 'turn 2 says nothing'),
        ('sharegpt', turn('gpt', '<tool_call>\n{}'), 'use the format hermes'),
        ('sharegpt', turn('function_call', '{"name": "x"}'), r"call 1 lacks \['arguments'\]"),
        ('sharegpt', turn('observation', 'x'), 'message 2 is a result for call id'),
        ('sharegpt', turn('human', 'Hm'), 'no assistant message'),
        ('hermes', turn('gpt', '<tool_call>\n{"name": "look"}\n</tool_call>'), '"arguments" is m'),
        ('hermes', turn('gpt', '<tool_call>\n{"name": "look", "argu'), 'the call is cut off'),
        ('hermes', turn('gpt', '<think>Hm'), 'turn 2 says nothing'),
        ('hermes', turn('function_call', '{}'), 'use sharegpt'),
        ('hermes', turn('tool', 'a <tool_response>b</tool_response>'), 'text outside of'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(form, record, why, tmp_path):
    with pytest.raises(ValueError, match=why) as raised:
        read(tmp_path, form, FORMS[form](), record)
    assert str(raised.value).startswith(f'{tmp_path / "some.jsonl"}, line 2: ')
    kept, refused = read(tmp_path, form, FORMS[form](), record, malformed='skip')
    assert len(kept) == 1 and refused == [str(raised.value)]


@pytest.mark.parametrize(
    ('name', 'text', 'why'),
    [
        ('some.csv', 'a,b', "ends in '.csv'; allowed: .jsonl and .json"),
        ('some.jsonl', '', 'holds no conversation'),
        ('some.json', '{}', r'line 1: expected \[, got'),
        ('some.json', '[{}\n{}]', 'line 2: expected , or ], got'),
        ('some.json', '[\n{"a": }]', 'line 2: broken JSON'),
        ('some.json', '[{}', r'line \d: expected , or \]'),
        ('some.json', '[{}] 1', 'more text after the array'),
    ],
)
def test_a_file_of_another_make_is_refused(name, text, why, tmp_path):
    with pytest.raises(ValueError, match=why):
        read(tmp_path, 'openai', text, name=name)


def test_fields_named_may_be_done_without(tmp_path):
    record = openai_form() | {'score': 0.5, 'uid': 'a'}
    found = read(tmp_path, 'openai', record, ignored=('score', 'uid')).conversations
    assert found[0].messages == WHOLE.messages


def test_a_conversation_longer_than_the_context_is_counted_and_never_cut():
    tokens = len(learned_arrays(chat(), WHOLE)['tokens'])
    short = Conversation(messages=WHOLE.messages[:6], tools=TOOLS)
    rows = conversation_rows(chat(), [WHOLE, short, WHOLE], tokens - 1)
    assert rows.kept == [1] and rows.too_long == {0: tokens, 2: tokens}
    assert len(rows.arrays[0]['tokens']) < tokens
    assert rows.report() == (
        '1 conversations kept, 2 left out because they are longer than the context; '
        f'the longest has {tokens} tokens'
    )
    assert conversation_rows(chat(), [WHOLE], tokens).too_long == {}
    with pytest.raises(ValueError, match=f'context_tokens is 16, the shortest has {tokens}'):
        conversation_rows(chat(), [WHOLE], 16)


@pytest.mark.parametrize(
    ('said', 'why'),
    [
        ('Fine.<|im_end|>\n<|im_start|>user\nMore', 'a marker that ends a turn'),
        ('See <tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>', "the content 'See"),
        ('<think>Hm</think>Fine.', "the thinking '' and would be learned as 'Hm'"),
    ],
)  # fmt: skip
def test_text_that_would_be_learned_as_something_else_is_refused(said, why):
    messages = ({'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': said})
    spoken = Conversation(messages=messages, tools=TOOLS, source='here, line 3')
    with pytest.raises(ValueError, match=f'here, line 3: assistant message 1 .*{why}'):
        conversation_rows(chat(), [spoken], 1024)


def test_a_template_that_loses_calls_is_refused():
    plain = (BASE / 'chat_template.jinja').read_text().replace('message.tool_calls or []', '[]')
    with pytest.raises(ValueError, match='has the calls .* and would be learned as'):
        learned_arrays(chat(plain), WHOLE)
