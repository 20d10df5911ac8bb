"""The suites that ship."""

from cacherl_jax.tasks.analysis import ANALYSIS
from cacherl_jax.tasks.research import RESEARCH
from cacherl_jax.tasks.trip import TRIP

SUITES = (RESEARCH, TRIP, ANALYSIS)
