"""What tiers, and rewards that know them, are worth where the tool cache has little to offer.

On the suites whose tools are pure: in a session there is hardly another answer to stand in.
"""

from experiments.ablations.definition import Ablation, short
from experiments.ablations.paper import THIN

THIN_CACHE = Ablation(
    question='Half of the calls are recorded, a sixth in other words: what do tiers change?',
    baseline='worst tier',
    shared={
        'curriculum.suites': ('research', 'trip'),
        'hybrid.tier_aware': 'worst',
        **THIN,
    },
    short=short(steps=12) | {'evaluation.unseen': 12},
    rows={
        'worst tier': {},
        'per turn': {'hybrid.tier_aware': 'per_turn'},
        'stratified': {'advantage.stratified': True},
        'tiers, reward not aware': {'hybrid.tier_aware': 'off'},
        'no tiers': {'tool_cache.tiers.fuzzy': False, 'tool_cache.tiers.best_effort': False},
    },
)
