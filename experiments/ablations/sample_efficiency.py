"""How many episodes and live tool calls it takes to succeed, with and without each cache."""

from cacherl_jax.schedule import Schedule
from experiments.ablations.definition import Ablation, short

LIVE = {'tool_cache.mode': 'live'}
ROLLOUTS = {'mix.share': Schedule(start=0.5, end=0.1, steps=18, shape='linear')}
UNCACHED = {'mix.share': Schedule(start=0.0)}

SAMPLE_EFFICIENCY = Ablation(
    question='What do the two caches save until 0.8 of unseen tasks are solved?',
    baseline='plain GRPO, live tools',
    shared={'evaluation.every': 4},
    short=short(steps=18) | {'supervised.demonstrations': 8},
    target=0.8,
    rows={
        'plain GRPO, live tools': LIVE | UNCACHED,
        'tool cache': UNCACHED,
        'rollout cache': LIVE | ROLLOUTS,
        'both caches': ROLLOUTS,
    },
)
