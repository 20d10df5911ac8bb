"""The nine rows of the CacheRL paper's ablation, in our small world (arxiv.org/abs/2606.14179).

Reasoning traces are what the experts of the suites write beside a call, what they go by ("Monday:
rain, a wet day: indoor."): words that the model which ships has read before, as a large one has
read thoughts.  Without them the policy learns calls and answers alone, and is free to write what it
likes; without thinking each of its turns opens with an empty thought as well, in what it learns and
in what it plays.  Less data is a sixteenth of the short demonstrations, where the paper had a
thirtieth of its own.  The suites are those of thin_cache.py, for its reason.
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
        'curriculum.suites': ('research', 'trip'),
        'supervised.rejection.samples': 2,
        'supervised.rejection.tasks_at_once': 32,
        'hybrid.tier_aware': 'worst',
        **THIN,
    },
    # 45 runs from 20 starts: a group less here is ten minutes less.
    short=short(steps=6) | {'groups': 4, 'evaluation.unseen': 8},
    rows={
        'full': {},
        'no reasoning traces': {'supervised.thinking': 'silent'},
        'no rejection sampling': {'supervised.rejection.samples': 0},
        'less data': {'supervised.demonstrations': 2},
        'no cache tiers': {'tool_cache.tiers.fuzzy': False, 'tool_cache.tiers.best_effort': False},
        'no tier-aware reward': {'hybrid.tier_aware': 'off'},
        'no GRPO': {'steps': 0},
        'no KL': {'update.loss.kl_weight': 0.0},
        'no thinking': {'supervised.thinking': 'silent', 'chat_template': str(NO_THINKING)},
    },
)
