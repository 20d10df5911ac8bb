"""Laws of thoughts: why this tool now, from the past alone, and nothing else is changed."""

import dataclasses
import functools
import json

import pytest
import tenacity

from cacherl_jax.chat.template import Chat, call_message, tool_message
from cacherl_jax.chat.tokenizer import load_tokenizer
from cacherl_jax.compose.agent import BASE, demonstrations
from cacherl_jax.run.refusal import Refusal
from cacherl_jax.supervised.augment import Budget, Journal, NoAnswer, augment
from cacherl_jax.supervised.conversations import Conversation, calls_of, learned_arrays
from cacherl_jax.supervised.dataset import episode_arrays, episode_messages
from cacherl_jax.supervised.formats import read_conversations
from cacherl_jax.supervised.rules import RULES, rule_teacher
from cacherl_jax.supervised.thinking import (
    Kind,
    Reply,
    UnusableThought,
    checked_thought,
    classify,
    questions,
    think_episode,
    with_thoughts,
)
from cacherl_jax.tasks.suites import SUITES
from cacherl_jax.tasks.trip import DRY, WET
from cacherl_jax.tools.execute import live_sessions
from cacherl_jax.tools.tool import Call, specification
from experiments.think import ThinkSettings, think

LOOK = {'name': 'look', 'description': 'Look.', 'parameters': {'type': 'object', 'properties': {}}}
TOOLS = ({'type': 'function', 'function': LOOK},)
CALL = [('look', {'at': 'sea'})]
AT_ONCE = tenacity.wait_none()


def turns(*said):
    """A conversation of assistant messages, each asked for and each call answered."""
    messages = []
    for number, message in enumerate(said):
        messages += [{'role': 'user', 'content': f'Question {number}?'}, message]
        messages += [tool_message('look', f'{number}') for _ in message.get('tool_calls', ())]
    return Conversation(messages=tuple(messages), tools=TOOLS)


MIXED = turns(
    call_message('', CALL),
    call_message('The sea was not looked at, so that comes next.', CALL),
    call_message('Let me look that up for you!', CALL),
    call_message('', CALL, 'A thought of its own.'),
    {'role': 'assistant', 'content': 'It is wet.'},
)


@functools.cache
def chat() -> Chat:
    tokenizer = load_tokenizer(BASE)
    return Chat(tokenizer=tokenizer, end_ids=(tokenizer.convert_tokens_to_ids('<|im_end|>'),))


@functools.cache
def episodes():
    tasks = [
        suite.task('train', level, n) for suite in SUITES for level in (1, 2, 3) for n in range(4)
    ]
    return demonstrations(tasks, live_sessions())


def of_episode(episode) -> Conversation:
    tools = tuple(specification(tool) for tool in episode.task.tools)
    return Conversation(messages=tuple(episode_messages(episode)), tools=tools)


def thoughts(conversation, teacher=rule_teacher):
    return {place: teacher(asked).thought for place, asked in questions(conversation).items()}


def counting(question) -> Reply:
    """A teacher that says how much it was shown."""
    return Reply(f'{question.kind} after {len(question.past)} messages', 10)


@pytest.mark.parametrize(
    ('content', 'calls', 'kind'),
    [
        ('', CALL, Kind.USER_FACING),
        ('  \n', CALL, Kind.USER_FACING),
        ('Sure, one moment.', CALL, Kind.USER_FACING),
        ('Which day do I look at?', CALL, Kind.USER_FACING),
        ('I check your table.', CALL, Kind.USER_FACING),
        ('The report is open; its revenue comes next.', CALL, Kind.ANALYTICAL),
        ('Young rivers: the column is called river_here.', CALL, Kind.ANALYTICAL),
        ('It is 7.', [], Kind.FINAL),
        ('Which city do you mean?', [], Kind.FINAL),
    ],
)
def test_turns_have_one_of_three_kinds(content, calls, kind):
    assert classify(call_message(content, calls)) is kind


def test_analytical_words_are_wrapped_and_nothing_else_is_changed():
    new = with_thoughts(MIXED, thoughts(MIXED, counting))
    said = [message for message in new.messages if message['role'] == 'assistant']
    assert [(m['reasoning_content'], m['content']) for m in said] == [
        ('user_facing after 1 messages', ''),
        ('The sea was not looked at, so that comes next.', ''),
        ('user_facing after 7 messages', 'Let me look that up for you!'),
        ('A thought of its own.', ''),
        ('final after 13 messages', 'It is wet.'),
    ]
    old = [message for message in MIXED.messages if message['role'] == 'assistant']
    assert list(map(calls_of, said)) == list(map(calls_of, old))
    others = [m for m in MIXED.messages if m['role'] != 'assistant']
    assert [m for m in new.messages if m['role'] != 'assistant'] == others
    assert new.tools == MIXED.tools and thoughts(new) == {}


@pytest.mark.parametrize('teacher', [counting, rule_teacher])
def test_cutting_the_future_off_changes_nothing(teacher):
    """No look-ahead: of each prefix that ends with a turn, the questions and thoughts are equal."""
    told = [MIXED] if teacher is counting else list(map(of_episode, episodes()))
    for whole in told:
        asked, thought = questions(whole), thoughts(whole, teacher)
        for place in asked:
            cut = dataclasses.replace(whole, messages=whole.messages[: place + 1])
            assert questions(cut)[place] == asked[place]
            assert thoughts(cut, teacher) == {p: t for p, t in thought.items() if p <= place}


def test_every_rule_is_of_a_tool_and_every_tool_has_one():
    assert set(RULES) == {tool.name for suite in SUITES for tool in suite.tools[-1]}
    with pytest.raises(ValueError, match=r"no rule for \['look'\]; there are rules for"):
        thoughts(MIXED)


def test_rules_say_what_the_episode_showed():
    """Names and figures of a thought stand in what came before it or in the turn itself."""
    plain = set()
    for episode in episodes():
        whole = of_episode(episode)
        for place, thought in thoughts(whole).items():
            shown = json.dumps(whole.messages[: place + 1], ensure_ascii=False)
            words = {word.strip('.,') for word in thought.split()}
            assert {word for word in words if any(map(str.isdigit, word))} <= {
                word for word in words if word in shown
            }, (thought, shown)
            plain |= {word for word in words if word not in shown}
    assert not plain & {*WET, *DRY} - {'dry'} and len(plain) < 70, sorted(plain)


def trip(*said) -> dict[int, str]:
    """Thoughts of the rules about calls and the results that they got."""
    messages = [{'role': 'user', 'content': 'A day in Balina, Monday?'}]
    for name, arguments, result in said:
        messages += [call_message('', [(name, arguments)]), tool_message(name, result)]
    tools = tuple(specification(tool) for suite in SUITES for tool in suite.tools[-1])
    return list(thoughts(Conversation(messages=tuple(messages), tools=tools)).values())


DAY = {'city': 'Balina', 'day': 'Monday'}
SKY = {sky: ('weather', DAY, json.dumps({'sky': sky})) for sky in WET + DRY}
OUT = '{"error": "unavailable", "message": "Unavailable: Monday"}'


@pytest.mark.parametrize('sky', WET + DRY)
def test_the_sky_that_was_read_decides_what_is_said(sky):
    _, wet, dry = trip(SKY[sky], ('indoor', DAY, '{}'), ('route', DAY, '{}'))
    assert ('is wet' in wet) == (sky in WET) and ('is dry' in dry) == (sky in DRY)
    assert (sky in wet) == (sky in WET) and (sky in dry) == (sky in DRY)


def test_what_was_not_read_is_not_said():
    other = ('weather', DAY | {'city': 'Ravilla'}, '{"sky": "rain"}')
    assert 'wet' not in trip(other, ('indoor', DAY, '{}'))[1]
    assert trip(('forecast', DAY, '{}')) == ['The sky of Monday is not known yet.']
    assert 'is out' in trip(('weather', DAY, OUT), ('forecast', DAY, '{}'))[1]
    assert trip(SKY['rain'], ('weather', DAY, '{}'))[1] == 'I look at the sky of Monday again.'
    assert trip(('outdoor', {'city': 'Balina', 'path': 'hill path'}, '{}')) == [
        'I look for a plan along hill path.'
    ]
    assert trip(('parse_document', {'document': 'd7'}, '{}')) == ['I open d7.']
    assert trip(('top_group', {'column': 'cost'}, '{}')) == ['I look for the largest sum of cost.']
    assert trip(('weather', {'day': 7}, '{}')) == ['I try weather.']


def test_an_old_number_of_groups_is_not_told_after_another_filter():
    group = ('group_rows', {'column': 'area'}, '{"groups": 1}')
    kept = ('filter_rows', {'column': 'item', 'value': 'pen'}, '{"rows": 1}')
    top = ('top_group', {'column': 'cost'}, '{}')
    assert trip(group, top)[1].startswith('There is 1 group, and I look')
    assert trip(group, kept, top)[2].startswith('I look')


def test_an_episode_with_thoughts_teaches_the_same_calls_and_answer():
    for episode in episodes():
        thinking = think_episode(episode, rule_teacher)
        assert all(turn.thinking for turn in thinking.turns)
        for before, after in zip(episode.turns, thinking.turns, strict=True):
            noted = before.content if before.calls else ''  # an expert's note becomes the thought
            added = {'thinking': noted, 'content': ''} if noted else {'thinking': after.thinking}
            assert after == dataclasses.replace(before, **added)
        assert episode.task.score(thinking) == episode.task.score(episode) == 1.0
        arrays = episode_arrays(chat(), thinking)
        learned = chat().decode(arrays['tokens'][arrays['sampled']])
        assert learned.count('<think>') == len(episode.turns)
        learned_arrays(chat(), of_episode(thinking))


@pytest.mark.parametrize(
    'thought',
    ['', ' \n', 'a' * 1001, 'a</think>b', '<think>a', 'a <tool_call>', 'Fine.<|im_end|>'],
)
def test_what_would_not_be_read_as_a_thought_is_refused(thought):
    with pytest.raises(UnusableThought):
        checked_thought(thought)


def test_the_same_question_is_asked_once():
    asked = []
    done = augment([MIXED, MIXED, MIXED], lambda q: asked.append(q.key) or counting(q))
    assert len(asked) == len(set(asked)) == 3 and done.kept == [0, 1, 2]
    assert done.counts['questions'] == 9 and done.counts['asked'] == done.counts['distinct'] == 3
    assert done.conversations == [with_thoughts(MIXED, thoughts(MIXED, counting))] * 3


MANY = [turns(call_message('', [('look', {'at': n})])) for n in range(8)]
ONE_BY_ONE = Budget(workers=1)


def test_a_run_that_was_killed_goes_on_and_asks_nothing_twice(tmp_path):
    asked = []

    def dying(question):
        asked.append(question.key)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return counting(question)

    with pytest.raises(KeyboardInterrupt):
        augment(MANY, dying, journal=Journal(tmp_path / 'j.jsonl'), budget=ONE_BY_ONE)
    with (tmp_path / 'j.jsonl').open('a') as file:
        file.write('{"key": "cut short')
    before = set(asked[:4])
    asked.clear()
    done = augment(
        MANY, lambda q: asked.append(q.key) or counting(q), journal=Journal(tmp_path / 'j.jsonl')
    )
    assert len(asked) == 4 and not before & set(asked) and done.counts['remembered'] == 4
    assert done.conversations == augment(MANY, counting).conversations
    assert len(Journal(tmp_path / 'j.jsonl').thoughts) == 8


@pytest.mark.parametrize(
    ('line', 'why'),
    [
        ('{"key": 1}', 'line 2: a line has key, thought, tokens and teacher'),
        ('[]', 'line 2: a line has key'),
        ('\udcff', 'line 2: a line has key'),
        ('{"key": "b", "thought": "", "tokens": 1, "teacher": "m"}', 'the thought is empty'),
        (
            '{"key": "b", "thought": "b", "tokens": 1, "teacher": "n"}',
            "line 2: a thought of 'n', a",
        ),
    ],
)
def test_a_journal_with_another_line_is_refused(line, why, tmp_path):
    Journal(tmp_path / 'j.jsonl', 'm').add('a', 'A thought.', 1)
    with (tmp_path / 'j.jsonl').open('a', errors='surrogateescape') as file:
        file.write(line + '\n')
    with pytest.raises(ValueError, match=f'j.jsonl, {why}' if 'line' in why else why):
        Journal(tmp_path / 'j.jsonl', 'm')


def seconds():
    """A clock on which every look takes a second."""
    return functools.partial(next, iter(range(10**6)))


@pytest.mark.parametrize(
    ('budget', 'kept', 'reason'),
    [
        (Budget(workers=1, calls=3), 3, 'budget of calls'),
        (Budget(workers=1, tokens=25), 3, 'budget of tokens'),
        (Budget(workers=1, seconds=4), 3, 'budget of seconds'),
        (Budget(workers=1), 8, ''),
    ],
)
def test_a_budget_is_kept_and_what_is_left_out_is_counted(budget, kept, reason):
    done = augment(MANY, counting, budget=budget, clock=seconds())
    assert done.kept == list(range(kept)) and done.counts['left_out'] == 8 - kept
    assert done.counts['asked'] == kept and done.counts['tokens'] == 10 * kept
    assert done.counts.get(f'unthought/{reason}', 0) == 8 - kept


def test_a_conversation_is_never_half_thought():
    done = augment([MIXED, MANY[0]], counting, budget=Budget(workers=1, calls=2))
    assert done.kept == [] and done.counts['left_out'] == 2
    done = augment([MIXED], lambda q: Reply('<think>' if q.kind is Kind.FINAL else 'So.'),
                   budget=Budget(attempts=2), wait=AT_ONCE)  # fmt: skip
    assert done.kept == [] and done.counts['unthought/unusable thought'] == 1
    assert done.counts['asked'] == 2 + 2


def test_trouble_that_passes_is_tried_again_and_trouble_that_stays_ends_the_run():
    troubles = [NoAnswer, NoAnswer]

    def shaky(question):
        if troubles:
            raise troubles.pop()
        return counting(question)

    done = augment(MANY, shaky, budget=ONE_BY_ONE, wait=AT_ONCE)
    assert done.kept == list(range(8)) and done.counts['asked'] == 10

    def dead(question):
        raise NoAnswer

    done = augment(MANY, dead, budget=Budget(workers=1, attempts=2, failures=3), wait=AT_ONCE)
    assert done.counts['asked'] == 6 and done.counts['unthought/no answer'] == 3
    assert done.counts['unthought/teacher does not answer'] == 5 and not done.kept


@pytest.mark.parametrize('workers', [1, 3, 16])
def test_how_many_ask_at_a_time_changes_nothing(workers):
    told = [of_episode(episode) for episode in episodes()]
    one, more = (
        augment(told, rule_teacher, budget=Budget(workers=n)).conversations for n in (1, workers)
    )
    assert one == more


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match='calls must be above 0 and finite, got 0'):
        Budget(calls=0)


def test_keys_tell_questions_apart_and_not_the_order_of_arguments():
    (a,), (b,), (c,) = (
        [q.key for q in questions(turns(call_message('', [('look', arguments)]))).values()]
        for arguments in ({'a': 1, 'b': 2}, {'b': 2, 'a': 1}, {'a': 1, 'b': 3})
    )
    assert a == b != c
    assert Call('look', {'a': 1, 'b': 2}) == Call('look', {'b': 2, 'a': 1})


def test_the_command_writes_what_it_thought_and_thinks_nothing_twice(tmp_path):
    settings = ThinkSettings(source='demonstrations', out=tmp_path / 'a.jsonl', demonstrations=1)
    (first, _), (again, _) = think(settings), think(settings)
    assert first.counts['asked'] == again.counts['remembered'] == again.counts['distinct']
    assert again.counts['asked'] == 0 and again.conversations == first.conversations
    told = read_conversations(settings.out, 'openai').conversations
    assert [c.messages for c in told] == [c.messages for c in first.conversations]
    assert all(questions(each) == {} for each in told) and len(told) == 9


def test_the_command_tells_of_a_file_that_is_not_there(tmp_path):
    settings = ThinkSettings(source=str(tmp_path / 'none.jsonl'), out=tmp_path / 'a.jsonl')
    with pytest.raises(Refusal, match='none.jsonl'):
        think(settings)
    with pytest.raises(ValueError, match="teacher is 'endpoint' and endpoint is None"):
        dataclasses.replace(settings, teacher='endpoint')
