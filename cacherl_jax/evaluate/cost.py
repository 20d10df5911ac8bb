"""What an evaluation took, and a mark of what was asked.  Episodes and tasks in, numbers out."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from cacherl_jax.tasks.task import Episode, Task
from cacherl_jax.tools.tool import Tier, specification


def cost_of(episodes: Sequence[Episode]) -> dict[str, float]:
    """What was asked of the policy and of tools; `calls_saved` are those that a cache answered."""
    turns = [turn for episode in episodes for turn in episode.turns]
    results = [result for turn in turns for result in turn.results]
    live = [result for result in results if result.tier is Tier.LIVE]
    missed = sum(result.tier is Tier.MISS for result in results)
    return {
        'episodes': len(episodes),
        'messages': len(turns),
        'sampled_tokens': sum(turn.stop - turn.start for turn in turns),  # 0 behind an endpoint
        'live_calls': len(live),
        'live_seconds': round(sum(result.seconds for result in live), 3),
        'calls_saved': len(results) - len(live) - missed,
    }


def priced(usage: Mapping[str, float], price: tuple[float, float]) -> float:
    """What a million prompt and a million completion tokens cost, for those that were used."""
    asked, written = (usage[f'{kind}_tokens'] for kind in ('prompt', 'completion'))
    return (asked * price[0] + written * price[1]) / 1e6


def tasks_hash(tasks: Sequence[Task]) -> str:
    """Equal where the same was asked with the same tools."""
    asked = [
        [task.id, task.messages, task.follow_ups, [specification(tool) for tool in task.tools]]
        for task in tasks
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
