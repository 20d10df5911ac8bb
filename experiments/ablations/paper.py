"""The nine rows of the CacheRL paper's ablation, in our small world (arxiv.org/abs/2606.14179).

Without reasoning traces the policy learns demonstrations as experts wrote them; without thinking
each of its turns opens with an empty thought, in what it learns and in what it plays.  Less data is
an eighth of the short demonstrations, where the paper had a thirtieth of its own.
"""

import pathlib

from experiments.ablations.definition import Ablation, short

NO_THINKING = pathlib.Path(__file__).with_name('no_thinking.jinja')
# As in the paper about half of the look-ups are exact, a sixth fuzzy, a third best effort.
THIN = {'collection.thin.exact': 0.5, 'collection.thin.fuzzy': 0.17}

PAPER = Ablation(
    question='What does each part of the method add?',
    baseline='full',
    shared={
        'supervised.thinking': 'rules',
        'supervised.rejection.samples': 2,
        'supervised.rejection.tasks_at_once': 32,
        'hybrid.tier_aware': 'worst',
        **THIN,
    },
    short=short(steps=6),
    rows={
        'full': {},
        'no reasoning traces': {'supervised.thinking': 'none'},
        'no rejection sampling': {'supervised.rejection.samples': 0},
        'less data': {'supervised.demonstrations': 2},
        'no cache tiers': {'tool_cache.tiers.fuzzy': False, 'tool_cache.tiers.best_effort': False},
        'no tier-aware reward': {'hybrid.tier_aware': 'off'},
        'no GRPO': {'steps': 0},
        'no KL': {'update.loss.kl_weight': 0.0},
        'no thinking': {'chat_template': str(NO_THINKING)},
    },
)
