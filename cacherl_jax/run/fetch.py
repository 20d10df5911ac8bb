"""Reading the device outside of the rollout: one transfer for all that is needed, numpy out."""

from typing import Any

import jax

from cacherl_jax.processes import whole


def fetch(tree: Any) -> Any:
    """The same tree with numpy arrays in place of device arrays; asked of all processes or none."""
    return jax.device_get(whole(tree))
