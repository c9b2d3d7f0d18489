"""The gain that would have made the smallest error, over the size of the residual."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .filters import Filtered

Array = NDArray[np.float64]

EDGES = tuple(float(10.0**exponent) for exponent in np.arange(-1.5, 2.01, 0.25))
"""Edges of the bins of |r| / √v, residual over the standard error of the mean."""
BINS = tuple(itertools.pairwise(EDGES))


class GainSums:
    """Sums over elements, by the size of their residual, that make the best gain.

    Among all estimates m̂ + k r with one k for a bin, the one with the smallest squared error has
    k = Σ r (G − m̂) / Σ r², the regression of G − m̂ on r; G is the full-batch gradient.
    SGDF's gain is that of its own estimate: Σ r (ĝ − m̂) / Σ r². Elements below the first edge, or
    above the last, are in the first and last bin.
    """

    def __init__(self) -> None:
        self.sums = torch.zeros(4, len(BINS), dtype=torch.float64)

    def add(self, filtered: Filtered, target: Tensor) -> None:
        """Take all elements of a tensor."""
        mean, residual = filtered.corrected_mean.double(), filtered.residual.double()
        sizes = residual.abs() / filtered.mean_variance.double().sqrt()
        known = sizes.isfinite()  # 0/0 where there was never a gradient
        inner = torch.tensor(EDGES[1:-1], dtype=torch.float64)
        bins = torch.bucketize(sizes[known].cpu(), inner)
        columns = (
            torch.ones_like(residual),
            residual.square(),
            residual * (target.double() - mean),
            residual * (filtered.estimate.double() - mean),
        )
        for row, values in zip(self.sums, columns, strict=True):
            row += torch.bincount(bins, values[known].cpu(), minlength=len(row))

    def rows(self) -> list[list[float]]:
        """Return the sums as plain lists: counts, Σ r², Σ r (G − m̂), Σ r (ĝ − m̂)."""
        rows: list[list[float]] = self.sums.tolist()
        return rows


@dataclass(frozen=True)
class GainBin:
    """The gains of elements with residuals of one size.

    Attributes:
        low: the lower edge of |r| / √v.
        high: its upper edge.
        share: of all elements.
        best: the gain with the smallest error.
        best_error: its standard error, by the jackknife over the measured steps; NaN if fewer
            than three of them have such residuals.
        used: SGDF's.
    """

    low: float
    high: float
    share: float
    best: float
    best_error: float
    used: float

    @property
    def middle(self) -> float:
        """The middle of the edges on a logarithmic axis."""
        return math.sqrt(self.low * self.high)


def gain_curve(steps: Sequence[Any], sizes: Sequence[tuple[float, float]] = BINS) -> list[GainBin]:
    """Return the gains over all measured steps; without sizes that no residual has.

    Args:
        steps: the rows of ``GainSums`` at each step.
        sizes: the ranges of |r| / √v that are kept apart. A bin of the sums belongs to the range
            that its middle is in.
    """
    sums = np.asarray(steps, dtype=np.float64)  # steps × sums × bins
    middles = np.array([math.sqrt(low * high) for low, high in BINS])
    found = []
    for low, high in sizes:
        own = sums[:, :, (low <= middles) & (middles < high)].sum(2)
        total = own.sum(0)
        count, squares, wanted, used = map(float, total)
        if squares <= 0.0:
            continue
        found.append(
            GainBin(
                low=low,
                high=high,
                share=count / float(sums[:, 0].sum()),
                best=wanted / squares,
                best_error=_jackknife(own[:, 2], own[:, 1]),
                used=used / squares,
            )
        )
    return found


def _jackknife(numerators: Array, denominators: Array) -> float:
    """Return the standard error of a ratio of sums: its spread when each part is left out."""
    if np.count_nonzero(denominators) < 3:
        return math.nan
    ratios = (numerators.sum() - numerators) / (denominators.sum() - denominators)
    return math.sqrt((len(ratios) - 1) * ratios.var())
