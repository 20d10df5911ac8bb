"""The ablations that have a name."""

from experiments.ablations.paper import PAPER
from experiments.ablations.sample_efficiency import SAMPLE_EFFICIENCY
from experiments.ablations.thin_cache import THIN_CACHE
from experiments.ablations.thinking import THINKING

ABLATIONS = {
    'paper': PAPER,
    'thinking': THINKING,
    'thin-cache': THIN_CACHE,
    'sample-efficiency': SAMPLE_EFFICIENCY,
}
