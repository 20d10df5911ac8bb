"""Calls are read exactly or refused with a reason; no text makes the parser raise or guess."""

import dataclasses
import json

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from cacherl_jax.chat.parse import HERMES, LLAMA, CallFormat, parse_turn, render_call
from cacherl_jax.tools.tool import Call, ParseError

FORMATS = pytest.mark.parametrize('form', [HERMES, LLAMA], ids=['hermes', 'llama'])
TRICKY = '</tool_call><tool_call></think><think><|python_tag|>;\n{"name": "x"} é 東京 😀 \\ "'
PARIS = Call('weather', {'city': 'Paris', 'days': 3})
TRICK = Call('écrire', {'text': TRICKY, 'nested': {'a': [1, None, True, 0.5]}})

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=7,
)
some_calls = st.builds(Call, st.text(min_size=1), st.dictionaries(st.text(), values, max_size=3))
marked = st.lists(
    st.sampled_from(
        [
            '<tool_call>',
            '</tool_call>',
            '<think>',
            '</think>',
            '<|python_tag|>',
            ';',
            '\n',
            ' ',
            'é',
        ]
        + [
            render_call(PARIS, LLAMA),
            render_call(TRICK),
            '{',
            '}',
            '"',
            '{"name": "f"',
            '[1]',
            '<tool_c',
        ]
    ),
    max_size=16,
).map(''.join)


def hermes(body):
    return f'<tool_call>\n{body}\n</tool_call>'


def only_error(text, form=HERMES):
    (error,) = parse_turn(text, form).calls
    assert isinstance(error, ParseError)
    return error


@FORMATS
@given(call=some_calls)
@example(call=TRICK)
def test_a_rendered_call_reads_back_as_itself(form, call):
    parsed = parse_turn(render_call(call, form), form)
    assert (parsed.thinking, parsed.content, parsed.calls) == ('', '', (call,))


@given(
    calls=st.lists(some_calls, min_size=1, max_size=3),
    joint=st.sampled_from([';', '\n', ' ; ', '\r\n']),
)
def test_several_llama_calls_come_in_the_order_written(calls, joint):
    text = joint.join(render_call(call, LLAMA) for call in calls)
    assert parse_turn(text, LLAMA).calls == tuple(calls)
    assert parse_turn('Let me look.<|python_tag|>' + text, LLAMA).calls == tuple(calls)


@given(calls=st.lists(some_calls, min_size=1, max_size=3))
def test_several_hermes_calls_come_in_the_order_written_with_the_text_around_them(calls):
    text = '<think>\nhm\n</think>\n\nLet me look. ' + '\n'.join(map(render_call, calls)) + ' Done.'
    parsed = parse_turn(text, HERMES)
    assert parsed.calls == tuple(calls)
    assert parsed.thinking == 'hm'
    assert parsed.content.split() == ['Let', 'me', 'look.', 'Done.']


@FORMATS
@given(text=st.text() | marked)
def test_any_text_gives_a_typed_result_with_short_reasons(form, text):
    parsed = parse_turn(text, form)
    for call in parsed.calls:
        assert isinstance(call, Call) or (0 < len(call.reason) < 200 and call.text in text)
    json.dumps([parsed.content, parsed.thinking, str(parsed.calls)], ensure_ascii=False).encode()


@FORMATS
@pytest.mark.parametrize('call', [PARIS, TRICK])
def test_a_call_cut_at_any_byte_never_runs_and_never_raises(form, call):
    whole = f'{form.opening}{render_call(call, form)}' if form.bare else render_call(call, form)
    for cut in range(len(whole.encode())):
        parsed = parse_turn(whole.encode()[:cut].decode(errors='replace'), form)
        assert not any(isinstance(found, Call) for found in parsed.calls)
        assert bool(parsed.calls) == (cut > 2)  # two characters may begin any text


@FORMATS
@given(call=some_calls, closed=st.booleans())
def test_a_call_inside_thinking_is_no_call(form, call, closed):
    call = Call(call.name.replace('think', ''), {})
    draft = f'maybe {render_call(call, form)}'
    parsed = parse_turn(f'<think>{draft}' + '</think>Done.' * closed, form)
    assert (parsed.content, parsed.calls) == ('Done.' if closed else '', ())
    assert parsed.thinking == draft.strip()


@FORMATS
def test_thinking_that_the_prompt_opened_holds_no_calls_either(form):
    parsed = parse_turn(f'So {render_call(PARIS, form)} </think>\n{render_call(TRICK, form)}', form)
    assert parsed.thinking.startswith('So ')
    assert (parsed.content, parsed.calls) == ('', (TRICK,))


@FORMATS
@pytest.mark.parametrize(
    'text', ['', 'It is 7.', 'a < b; c > d', '{"revenue": 5}', '[1, 2]', 'é\u3000東京']
)
def test_a_message_without_a_marker_is_content(form, text):
    parsed = parse_turn(text, form)
    assert (parsed.thinking, parsed.content, parsed.calls) == ('', text, ())


@pytest.mark.parametrize(
    ('body', 'reason'),
    [
        ('{"name": "f", "arguments": {"a": 1}', 'broken JSON'),
        ("{'name': 'f', 'arguments': {}}", 'broken JSON'),
        ('', 'broken JSON'),
        ('[{"name": "f", "arguments": {}}]', 'got an array'),
        ('null', 'got null'),
        ('{"arguments": {}}', '"name" is missing'),
        ('{"name": 3, "arguments": {}}', '"name" must be a string'),
        ('{"name": "", "arguments": {}}', '"name" must be a string'),
        ('{"name": "f"}', '"arguments" is missing'),
        ('{"name": "f", "parameters": {}}', '"arguments" is missing'),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', 'got a string'),
        ('{"name": "f", "arguments": [1]}', 'got an array'),
        ('{"name": "f", "arguments": null}', 'got null'),
        ('{"name": "f", "arguments": 7}', 'got a number'),
        ('{"name": "f", "arguments": {}, "city": "Rome"}', 'got also {"city": "Rome"}'),
        ('{"name": "f", "arguments": {"a": 1, "a": 2}}', 'a key twice'),
        ('{"name": "f", "arguments": {}, "arguments": {}}', 'a key twice'),
        ('{"name": "f", "arguments": {"a": NaN}}', 'no finite number'),
        ('{"name": "f", "arguments": {"a": -Infinity}}', 'no finite number'),
        ('{"name": "f", "arguments": {"a": 1e999}}', 'no finite number'),
        ('{"name": "f", "arguments": {"a": %s}}' % ('9' * 9999), 'digits'),
        ('{"name": "f", "arguments": {"a": %s}}' % ('[' * 99999), 'nesting'),
        ('{"name": "f", "arguments": {"a": %s}}' % ('[' * 99 + ']' * 99), 'nesting'),
        ('{"name": "f", "arguments": {"a": "\\ud800"}}', 'surrogate'),
        ('{"name": "f", "arguments": {}} and more', 'expected </tool_call>'),
        ('{"name": "f", "arguments": {}}}', 'expected </tool_call>'),
    ],
)
def test_a_broken_call_says_what_came_and_what_is_expected(body, reason):
    error = only_error(hermes(body))
    assert reason in error.reason
    assert error.text.strip() == body


@pytest.mark.parametrize(
    'text',
    [
        '{"name": "f", "arguments": {}}',
        '{"parameters": {}}',
        '{"name": "f", "parameters": {}} then I wait',
        '{"name": "f", "parameters": {}}}',
        '<|python_tag|>',
        '<|python_tag|>search.call(query="x")',
        'I will call:\n{"name": "f", "parameters": {}}',
    ],
)
def test_llama_text_that_means_a_call_and_is_none_is_an_error(text):
    assert only_error(text, LLAMA)


@pytest.mark.parametrize('rest', [';', '\nThat was it.', '; {"name": "g"', ';{"name": "g"}'])
def test_a_broken_second_call_leaves_the_first_as_it_is(rest):
    first, second = parse_turn('{"name": "f", "parameters": {}}' + rest, LLAMA).calls
    assert first == Call('f', {}) and isinstance(second, ParseError)


def test_a_broken_call_does_not_take_the_next_one_with_it():
    error, call = parse_turn(hermes('{broken') + render_call(PARIS), HERMES).calls
    assert isinstance(error, ParseError) and call == PARIS


def test_a_call_inside_the_string_of_a_broken_call_does_not_run():
    inner = render_call(Call('delete', {}))
    calls = parse_turn(
        hermes('{"name": "write", "arguments": {"text": "' + inner + '"}}'), HERMES
    ).calls
    assert calls and all(isinstance(call, ParseError) for call in calls)


def test_a_closing_without_an_opening_is_an_error():
    assert 'without <tool_call>' in only_error('{"name": "f", "arguments": {}}</tool_call>').reason


def test_a_llama_call_may_say_that_it_is_a_function():
    text = '{"type": "function", "name": "f", "parameters": {"a": 1}}'
    assert parse_turn(text, LLAMA).calls == (Call('f', {'a': 1}),)


def test_another_family_is_another_value():
    form = CallFormat(opening='[CALL]', closing='[/CALL]', arguments='input')
    assert parse_turn(render_call(TRICK, form), form).calls == (TRICK,)


@pytest.mark.parametrize(
    'change', [{'opening': ''}, {'arguments': ''}, {'think': ''}, {'bare': True}]
)
def test_a_format_that_cannot_be_read_is_refused(change):
    with pytest.raises(ValueError, match='closing'):
        dataclasses.replace(HERMES, **change)
