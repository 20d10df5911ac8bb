"""One look-up: exact, then fuzzy, then best effort.  Reads the index, changes nothing.

Which of several recorded draws answers is a function of the task and the sample, so that the
samples of a group do not share one draw.
"""

from typing import Any, NamedTuple

from cacherl_jax.tool_cache.entry import Entry
from cacherl_jax.tool_cache.index import Index
from cacherl_jax.tool_cache.key import CallKey, short_hash
from cacherl_jax.tool_cache.tiers import TierSettings, text_comparison
from cacherl_jax.tools.tool import Status, Tier, Tool


class Seat(NamedTuple):
    """Who is asking: an attempt at a task."""

    task: str
    sample: int


class Found(NamedTuple):
    """A recorded answer that may stand in."""

    entry: Entry
    tier: Tier
    similarity: float


class Question(NamedTuple):
    """A call that looks for its answer."""

    tool: Tool
    fitted: dict[str, Any]
    key: CallKey
    seat: Seat


def place(key: CallKey, seat: Seat, draws: int) -> int:
    """Which of so many draws this attempt gets; neighbours in a group get different ones."""
    if draws == 1:
        return 0
    return (int(short_hash(seat.task, *key)[:8], 16) + seat.sample) % draws


def find_exact(index: Index, key: CallKey, seat: Seat) -> Found | None:
    """The recorded answer to this very call."""
    draws = index.draws(key)
    return Found(draws[place(key, seat, len(draws))], Tier.EXACT, 1.0) if draws else None


def find_draw(index: Index, key: CallKey, seat: Seat, draws: int) -> Found | None:
    """The one of so many draws that this attempt gets, if it is recorded."""
    mine = place(key, seat, draws)
    kept = [entry for entry in index.draws(key) if entry.draw == mine]
    return Found(kept[0], Tier.EXACT, 1.0) if kept else None


def find_fuzzy(index: Index, question: Question, settings: TierSettings) -> Found | None:
    """The answer to the most alike call that differs in free text only; reading calls only."""
    tool, fitted, key, seat = question
    if tool.changes_state or not settings.fuzzy:
        return None
    for similarity, spelling in index.shelf(key).like(tool, fitted, settings.fuzzy_threshold):
        if spelling != key.arguments:
            found = find_exact(index, key._replace(arguments=spelling), seat)
            return found._replace(tier=Tier.FUZZY, similarity=similarity)
    return None


class Nearest(NamedTuple):
    """The best-effort answer, and whether the task's own demonstration would have been nearest."""

    found: Found | None
    own_gold_nearest: bool


def find_nearest(index: Index, question: Question, settings: TierSettings) -> Nearest:
    """The proper answer to the nearest call of the same tool in the same state."""
    tool, fitted, key, seat = question
    if tool.changes_state or not settings.best_effort:
        return Nearest(None, False)
    nearest_is_own = None
    compare = text_comparison(tool, settings)
    for similarity, spelling in index.shelf(key).near(
        fitted, key.arguments, settings.best_effort_floor, compare
    ):
        found = find_exact(index, key._replace(arguments=spelling), seat)
        if found.entry.result.status is not Status.OK:
            continue
        own = seat.task in found.entry.gold
        nearest_is_own = own if nearest_is_own is None else nearest_is_own
        if settings.own_gold or not own:
            found = found._replace(tier=Tier.BEST_EFFORT, similarity=similarity)
            return Nearest(found, nearest_is_own)
    return Nearest(None, bool(nearest_is_own))
