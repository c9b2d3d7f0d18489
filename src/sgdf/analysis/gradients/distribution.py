"""The distribution of the elements of a tensor: moments, quantiles, histogram and density.

All histograms have the same bins, whatever the run, the step and the tensor, so that any two can
be compared and any view can be made of them: symmetric about 0, their widths a fixed share of
their distance from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

SMALLEST, LARGEST, PER_DECADE = -10, 2, 20
"""The bins reach from 10^-10 to 10^2 on either side of 0, with twenty for each power of ten."""
_SIDE = np.logspace(SMALLEST, LARGEST, (LARGEST - SMALLEST) * PER_DECADE + 1)
EDGES = np.concatenate([-_SIDE[::-1], _SIDE])
"""What separates the bins; the first and the last bin have no end and hold all outliers."""
BINS = len(EDGES) + 1
QUANTILES = (0.0, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
BANDWIDTH = 0.2
"""The deviation of the kernel, in robust deviations of the distribution."""
_DIGITS = 9

Series = dict[str, list[Any]]
"""Distributions at several steps: for each property the list of its values, and the steps."""


def describe(values: Tensor) -> dict[str, Any]:
    """Return the moments, the quantiles and the histogram of a tensor's elements, in float64.

    The deviation divides by the number of elements; the kurtosis is that in excess of a normal
    distribution's. Both and the skew are NaN where all elements are equal.
    """
    ordered = np.sort(values.detach().double().cpu().numpy(), axis=None)
    mean = np.clip(ordered.mean(), ordered[0], ordered[-1])  # which rounding can put it beyond
    centred = ordered - mean
    squares = centred * centred
    variance = squares.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        skew = (squares * centred).mean() / variance**1.5
        kurtosis = (squares * squares).mean() / variance**2 - 3.0
    places = np.array(QUANTILES) * (len(ordered) - 1)
    below = ordered[np.floor(places).astype(int)]
    above = ordered[np.ceil(places).astype(int)]
    quantiles = below + (places % 1.0) * (above - below)
    return {
        "mean": _rounded(mean),
        "deviation": _rounded(variance**0.5),
        "skew": _rounded(skew),
        "kurtosis": _rounded(kurtosis),
        "quantiles": [_rounded(quantile) for quantile in quantiles],
        "counts": counts_as_text(_count(ordered)),
    }


def _count(ordered: np.ndarray) -> np.ndarray:
    """Return how many elements are in each bin, given the elements in order."""
    below = np.searchsorted(ordered, EDGES)
    return np.diff(below, prepend=0, append=len(ordered))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def counts_as_text(counts: np.ndarray) -> str:
    """Return a histogram as text: its first bin that is not empty, and all counts from there.

    >>> counts = np.zeros(BINS, int)
    >>> counts[[3, 5]] = 7, 9
    >>> counts_as_text(counts)
    '3: 7 0 9'
    """
    (filled,) = counts.nonzero()
    first, last = (filled[0], filled[-1]) if len(filled) else (0, -1)
    return f"{first}: {' '.join(map(str, counts[first : last + 1]))}"


def counts_from_text(text: str) -> np.ndarray:
    """Return the counts of all bins.

    >>> counts_from_text("3: 7 0 9")[2:7]
    array([0, 7, 0, 9, 0])
    """
    first, _, listed = text.partition(":")
    filled = np.array(listed.split(), int)
    counts = np.zeros(BINS, int)
    counts[int(first) : int(first) + len(filled)] = filled
    return counts


def robust_deviation(quantiles: Sequence[float]) -> float:
    """Return what the deviation would be if the middle half were that of a normal distribution."""
    return (quantiles[QUANTILES.index(0.75)] - quantiles[QUANTILES.index(0.25)]) / 1.349


def density(counts: np.ndarray, bandwidth: float, at: np.ndarray) -> np.ndarray:
    """Return a kernel density estimate, made of a histogram.

    Every bin is taken as evenly filled, and smoothed with a normal kernel. Outliers in the two
    bins without an end count in the whole, but are drawn nowhere.

    Args:
        counts: how many elements each bin has.
        bandwidth: the deviation of the kernel.
        at: where the density is wanted.
    """
    from scipy.special import ndtr

    (filled,) = counts[1:-1].nonzero()
    low, high = EDGES[filled], EDGES[filled + 1]
    share = counts[1:-1][filled] / counts.sum()
    reached = ndtr((at[:, None] - low) / bandwidth) - ndtr((at[:, None] - high) / bandwidth)
    estimate: np.ndarray = reached @ (share / (high - low))
    return estimate
