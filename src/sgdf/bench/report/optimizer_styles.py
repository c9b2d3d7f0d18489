"""A style for each optimizer, the same in every plot and every report."""

from __future__ import annotations

from collections.abc import Collection

from ...present.styles import Style, styles
from ..catalog.optimizers import OPTIMIZERS

COMMON = ("sgdf", "sgd", "adam", "filter-adam", "adamw", "radam", "sgd-vanilla", "sgd-ema")
"""The optimizers that are compared most often; each has its own hue."""


def optimizer_styles(names: Collection[str]) -> dict[str, Style]:
    """Return a style for each optimizer; a bundled optimizer has the same one in every report.

    >>> optimizer_styles(["sgd", "mine:Own"])["sgd"] == optimizer_styles(["sgd"])["sgd"]
    True
    """
    order = [*COMMON, *(name for name in OPTIMIZERS if name not in COMMON)]
    return styles(names, order, len(COMMON))
