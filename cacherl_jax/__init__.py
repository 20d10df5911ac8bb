"""Reinforcement learning in JAX for small language models that call tools."""

import os

# transformers advises to install PyTorch, which nothing here needs; it reads this when imported.
os.environ.setdefault('TRANSFORMERS_NO_ADVISORY_WARNINGS', '1')
