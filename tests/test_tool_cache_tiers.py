"""Free text may differ in its words' clothes, never in what it asks for."""

import pytest

from cacherl_jax.tool_cache.alike import alike
from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.lookup import Seat
from cacherl_jax.tool_cache.tiers import TierSettings
from cacherl_jax.tools.tool import Call, Result, Scope, Status, Tier, Tool

THRESHOLD = TierSettings().fuzzy_threshold
SAME = """
What is the weather in Paris?|weather in paris
Apple revenue 2023|Apple's 2023 revenue
annual report of Apple|Apple annual report
Find hotels in London|hotels in London
indoor activity|indoor activities
summarise the report|Summarize the report
São Paulo|Sao Paulo
New-York|new york
best restaurants near Times Square|best restaurant near Times Square
the goverment budget of France|government budget of France
Paris, Texas|Paris Texas
Microsoft annual revenue for 2023|Microsoft 2023 annual revenue
Search for cheap hotels|cheap hotels
R&D spending|R and D spending
favorite colours|favourite colors
things to do in Rome when it rains|Things to do in Rome, when it rains!
please show me museums in Vienna|museums in Vienna
an  overview   of the market|overview of market
INDOOR ACTIVITIES|indoor activities
accomodation near the airport|accommodation near the airport
"""
OTHER = """
turn on the lights|turn off the lights
Paris, Texas|Paris, France
Paris|Paris, Texas
Springfield, IL|Springfield, MA
Springfield, IN|Springfield
flights from Paris to London|flights from London to Paris
dog bites man|man bites dog
USD EUR|EUR USD
USD in EUR|EUR in USD
order 1001|order 1002
order A-17|order A-71
hotels with parking|hotels without parking
vegan|not vegan
open|do not open
he does eat|he doesn't eat
include taxes|exclude taxes
Vitamin A|Vitamin
7am|7pm
-5 degrees|5 degrees
2 + 3|2 - 3
10%|10
3 adults 1 child|1 adults 3 child
5 apples pears|apples 5 pears
Iran|Iraq
Austria|Australia
country|county
New York|Newark
increase the rate|decrease the rate
minimum wage|maximum wage
hypertension|hypotension
employer|employee
Williams|William
report.txt|report.csv
a/b|a b
C|C++
C#|C
Apple revenue 2022|Apple revenue 2023
is open|was open
north of York|south of York
London|London Bridge
who is president|who was president
before March|after March
cats and dogs|cats or dogs
first quarter|third quarter
Monday|Tuesday
user@a.com|user@b.com
"""


def pairs(text):
    return [tuple(line.split('|')) for line in text.strip().splitlines()]


@pytest.mark.parametrize(('one', 'other'), pairs(OTHER))
def test_texts_that_ask_for_different_things_are_not_alike(one, other):
    assert alike(one, other) == alike(other, one) == 0


def test_texts_that_ask_for_the_same_are_alike_nine_times_in_ten():
    found = [min(alike(*pair), alike(*pair[::-1])) >= THRESHOLD for pair in pairs(SAME)]
    assert sum(found) >= 0.9 * len(found)


def test_every_text_is_like_itself():
    assert {alike(text, text) for pair in pairs(SAME + OTHER) for text in pair} == {1.0}


def test_a_long_text_forgives_a_light_word_but_no_word_that_says_something():
    long = 'the quarterly letter describes how our cloud business grew while margins fell sharply'
    assert alike(long, long.replace('grew', 'really grew')) > THRESHOLD
    for word in ('never', 'public', 'again'):
        assert alike(long, long.replace('grew', f'{word} grew')) == 0


SCHEMA = {
    'type': 'object',
    'properties': {
        'query': {'type': 'string'},
        'origin': {'type': 'string'},
        'city': {'type': 'string', 'default': ''},
        'kind': {'type': 'string', 'enum': ['in', 'out']},
        'date': {'type': 'string'},
        'order_id': {'type': 'string'},
        'count': {'type': 'number'},
        'flag': {'type': 'boolean'},
        'tags': {'type': 'array', 'items': {'type': 'string'}},
    },
}
RECORDED = {
    'query': 'cheap hotels', 'origin': 'Rome', 'city': 'Oslo', 'kind': 'in', 'date': 'May 4',
    'order_id': 'ab', 'count': 2, 'flag': True, 'tags': ['quiet', 'near the sea'],
}  # fmt: skip


def made(**changes):
    fields = {'name': 'look', 'description': 'Looks.', 'function': lambda *a, **k: k}
    return Tool(parameters=SCHEMA, **(fields | changes))


def replaying(tool, *recorded, task='gold', **tiers):
    cache = make_tool_cache(
        ':memory:', ToolCacheSettings(mode='replay', tiers=TierSettings(**tiers))
    )
    given = [(Call(tool.name, each), Result(status=Status.OK, text=str(each))) for each in recorded]
    cache.record_results(task, [tool], given)
    return cache


@pytest.mark.parametrize(
    ('change', 'tier'),
    [
        ({}, Tier.EXACT),
        ({'query': 'Find cheap hotels'}, Tier.FUZZY),
        ({'tags': ['Quiet', 'near sea']}, Tier.FUZZY),
        ({'query': 'dear hotels'}, None),
        ({'origin': 'Oslo', 'city': 'Rome'}, None),
        ({'kind': 'out'}, None),
        ({'date': 'may 4'}, None),
        ({'order_id': 'AB'}, None),
        ({'count': 3}, None),
        ({'flag': False}, None),
        ({'tags': ['near the sea', 'quiet']}, None),
        ({'tags': ['quiet']}, None),
    ],
)
def test_arguments_are_compared_one_by_one(change, tier):
    tool = made()
    found = replaying(tool, RECORDED, best_effort=False).find(tool, RECORDED | change)
    assert (found and found.tier) == tier


@pytest.mark.parametrize('texts', [3, 40])
def test_the_most_alike_call_answers_however_many_there_are(texts):
    tool = made()
    cache = replaying(tool, *({'query': f'cheap hotel number {n}'} for n in range(texts)))
    found = cache.find(tool, {'query': 'the cheap hotels, number 2'})
    assert found.entry.result.text == "{'query': 'cheap hotel number 2'}"


def test_a_state_changing_call_is_answered_by_itself_only():
    tool = made(scope=Scope.SESSION, changes_state=True)
    cache = replaying(tool, {'query': 'cheap hotels'})
    session = cache.open_session('gold', [tool], dict, 0)
    (result,) = session.answer([Call('look', {'query': 'the cheap hotels'})])
    assert (result.status, result.tier) == (Status.UNAVAILABLE, Tier.MISS)


def test_another_tasks_state_answers_nothing():
    tool = made(scope=Scope.SESSION)
    cache = replaying(tool, {'query': 'cheap hotels'})
    call = [Call('look', {'query': 'the cheap hotels'})]
    tiers = [cache.open_session(task, [tool], dict, 0).answer(call)[0].tier for task in 'ab']
    assert tiers == [Tier.MISS, Tier.MISS]
    assert cache.open_session('gold', [tool], dict, 0).answer(call)[0].tier is Tier.FUZZY


def test_best_effort_leaves_out_the_tasks_own_gold_unless_asked_and_counts_it():
    tool, asked = made(), {'query': 'cheap hostels'}
    for own_gold, tier in ((False, Tier.MISS), (True, Tier.BEST_EFFORT)):
        cache = replaying(tool, {'query': 'cheap hotels'}, own_gold=own_gold)
        ask = [Call('look', asked)]
        assert cache.open_session('gold', [tool], dict, 0).answer(ask)[0].tier is tier
        assert cache.open_session('other', [tool], dict, 0).answer(ask)[0].tier is Tier.BEST_EFFORT
        told = cache.commit()
        assert told['tool_cache/own_gold_nearest'] == 1
        assert told['tool_cache/leak_fraction'] == 0.5
        assert told['tool_cache/own_gold_answers'] == own_gold


def test_best_effort_needs_its_floor_and_a_proper_answer():
    tool = made()
    cache = replaying(tool, {'query': 'cheap hotels'}, best_effort_floor=0.7)
    error = Result(status=Status.TOOL_ERROR, text='no')
    cache.record_results('gold', [tool], [(Call('look', {'query': 'zzzz'}), error)])
    assert cache.find(tool, {'query': 'zzzx'}) is None
    assert cache.find(tool, {'query': 'cheap hostel'}, seat=Seat('other', 0)).similarity > 0.9


def test_a_threshold_outside_its_range_is_refused():
    with pytest.raises(ValueError, match='fuzzy_threshold must be in 0..1, got 2'):
        TierSettings(fuzzy_threshold=2)
