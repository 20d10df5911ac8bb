"""Look-ups are fast at the size of a real cache: 41,000 answers of 1,185 tools."""

import random
import statistics
import time

import pytest

from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tool_cache.entry import make_entry
from cacherl_jax.tool_cache.key import call_key
from cacherl_jax.tool_cache.store import Store
from cacherl_jax.tools.tool import Result, Status, Tier, Tool

SCHEMA = {
    'type': 'object',
    'properties': {
        'query': {'type': 'string'},
        'place': {'type': 'string'},
        'count': {'type': 'integer', 'default': 3},
    },
}


def filled(entries, tools=1185):
    """A cache of random calls, and some of these calls."""
    draw = random.Random(0)
    letters = 'abcdefghijklmnopqrst'
    words = [''.join(draw.choices(letters, k=draw.randint(3, 9))) for _ in range(2000)]
    fields = {'description': 'x', 'parameters': SCHEMA, 'function': lambda **k: k}
    named = [Tool(name=f'tool_{number}', **fields) for number in range(tools)]
    calls = [
        (named[n % tools], {'query': ' '.join(draw.choices(words, k=5)), 'place': words[n % 2000]})
        for n in range(entries)
    ]
    store, result = Store(':memory:'), Result(status=Status.OK, text='x' * 200)
    store.write(make_entry(call_key(*call), 0, result, task='t', recorded=0.0) for call in calls)
    return make_tool_cache(store, ToolCacheSettings(mode='replay')), calls[:: entries // 2000]


def median_seconds(cache, calls, tier):
    taken = []
    for tool, arguments in calls:
        started = time.perf_counter()
        found = cache.find(tool, arguments)
        taken.append(time.perf_counter() - started)
        assert found.tier is tier
    return statistics.median(taken)


@pytest.mark.slow
@pytest.mark.parametrize(('entries', 'allowance'), [(41_000, 1), (1_000_000, 3)])
def test_a_look_up_does_not_walk_through_the_cache(entries, allowance):
    cache, calls = filled(entries)
    asked = [(tool, given | {'query': f'The {given["query"].upper()}'}) for tool, given in calls]
    median_seconds(cache, calls, Tier.EXACT)
    assert median_seconds(cache, calls, Tier.EXACT) < allowance * 10e-6
    assert median_seconds(cache, asked, Tier.FUZZY) < allowance * 1e-3
