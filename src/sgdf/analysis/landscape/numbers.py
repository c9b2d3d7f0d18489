"""The numbers that stand for a plane: how much of it has a low loss, and how it curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

PARTS = 16
"""Each cell of the grid is divided into this many parts along each side."""


def own_level(centre: float) -> float:
    """Return the loss that counts as low around a network with this loss.

    >>> own_level(1.5)
    3.1
    """
    return 2.0 * centre + 0.1


def common_level(centres: Iterable[float]) -> float:
    """Return a loss at which networks with these losses can be compared.

    It is a little above the largest of them, so that no network is above it, and networks that
    have learnt little are not compared where they would do worse than by chance.

    >>> common_level([0.25, 1.5])
    2.0
    """
    return max(filter(math.isfinite, centres), default=math.nan) + 0.5


def share_below(losses: Sequence[Sequence[float]], level: float) -> float:
    """Return the share of a plane's area with a loss below a level.

    Between the points of the grid the loss is interpolated linearly along both directions. A loss
    that is not finite is above every level.

    >>> share_below([[0.0, 4.0], [0.0, 4.0]], 1.0)
    0.25
    """
    grid = np.asarray(losses, float)
    grid = np.where(np.isfinite(grid), grid, 1e30)
    weights = _interpolation(len(grid))
    return float(np.mean(weights @ grid @ weights.T < level))


def _interpolation(points: int) -> np.ndarray:
    """Return the matrix that takes values at points of a grid to the middles of all parts."""
    places = (np.arange((points - 1) * PARTS) + 0.5) / PARTS
    return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(points)[None, :]))
