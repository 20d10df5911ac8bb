"""Thinking and rejection sampling: the rows of the paper that are about what comes before RL."""

import dataclasses

from experiments.ablations.paper import PAPER

THINKING = dataclasses.replace(
    PAPER,
    question='What do thoughts and rejection sampling add to demonstrations?',
    rows={
        name: PAPER.rows[name]
        for name in (
            'full', 'no reasoning traces', 'no rejection sampling', 'less data', 'no GRPO', 'no KL',
        )
    },
)  # fmt: skip
