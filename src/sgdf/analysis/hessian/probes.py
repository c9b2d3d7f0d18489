"""Random vectors of which each is drawn by itself, so that more of them can be added later."""

from __future__ import annotations

import numpy as np

from .arrays import Array


def rademacher(size: int, seed: int, index: int) -> Array:
    """Return a vector of ones and minus ones; other seeds and indices give independent ones."""
    return np.random.default_rng([seed, index]).choice((-1.0, 1.0), size)
