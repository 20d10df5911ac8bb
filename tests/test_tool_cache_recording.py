"""An outage is stored where the tool says that it lasts, and only there."""

import pytest

from cacherl_jax.tool_cache.cache import ToolCacheSettings, make_tool_cache
from cacherl_jax.tools.tool import Call, Status, Tier, Unavailable, tool


def closed(day: str) -> str:
    """Says nothing today."""
    raise Unavailable(day)


@pytest.mark.parametrize('lasts', [True, False])
def test_an_outage_is_recorded_only_where_it_lasts(tmp_path, lasts):
    shop, call = tool(closed, outage_lasts=lasts), Call('closed', {'day': 'Sunday'})
    with_miss = make_tool_cache(tmp_path / 'cache.sqlite', ToolCacheSettings(mode='read_through'))
    (live,) = with_miss.open_session('task', (shop,), lambda: None).answer([call])
    with_miss.commit()
    with_miss.close()
    replay = make_tool_cache(tmp_path / 'cache.sqlite', ToolCacheSettings(mode='replay'))
    (again,) = replay.open_session('task', (shop,), lambda: None).answer([call])
    assert live.status is again.status is Status.UNAVAILABLE
    assert again.tier is (Tier.EXACT if lasts else Tier.MISS)
    assert (again.text == live.text) is lasts
    assert replay.live_calls == 0
