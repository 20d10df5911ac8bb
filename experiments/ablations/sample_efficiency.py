"""How many episodes and live tool calls it takes to succeed, with and without each cache.

Every update of every row learns from 18 episodes.  Without the rollout cache all of them are played
anew; with it 6 are, and 12 are drawn from the cache, which starts with the demonstrations.  The
tool cache is filled from the experts' calls on the 24 training tasks, and those calls count.  The
suites are those of thin_cache.py, for its reason.
"""

from cacherl_jax.schedule import Schedule
from experiments.ablations.definition import Ablation, short

LIVE = {'tool_cache.mode': 'live'}
ROLLOUTS = {'groups': 1, 'mix.share': Schedule(start=2 / 3)}
UNCACHED = {'mix.share': Schedule(start=0.0)}

SAMPLE_EFFICIENCY = Ablation(
    question='What do the two caches save until 0.8 of unseen tasks are solved?',
    baseline='plain GRPO, live tools',
    shared={'evaluation.every': 4, 'curriculum.suites': ('research', 'trip')},
    short=short(steps=16)
    | {'groups': 3, 'supervised.demonstrations': 8, 'curriculum.tasks': 6, 'evaluation.unseen': 6},
    target=0.8,
    rows={
        'plain GRPO, live tools': LIVE | UNCACHED,
        'tool cache': UNCACHED,
        'rollout cache': LIVE | ROLLOUTS,
        'both caches': ROLLOUTS,
    },
)
