"""The cells of a table for a sample over seeds: mean with standard deviation, and interval."""

from __future__ import annotations

import math

from ...present.table import NOTHING, Cell
from .statistics import Sample, has_no_spread

NO_SPREAD = "no spread"
"""Beside a mean whose values are all equal: their standard deviation is smaller than any digit."""
_ANY = (-math.inf, math.inf)


def mean_cell(sample: Sample, scale: float = 1.0) -> Cell:
    """Return mean and standard deviation; a single value and equal values are marked as such.

    Equal values are no sign of precision: they may differ by less than one example of the data.

    >>> mean_cell(Sample((0.98, 0.99, 0.985)), scale=100).text
    '98.50 ± 0.50'
    >>> mean_cell(Sample((0.98,)), scale=100).text
    '98.00 (one seed)'
    >>> mean_cell(Sample((0.98, 0.98)), scale=100).text
    '98.00 (no spread)'
    """
    values = tuple(scale * value for value in sample.values)
    sample = Sample(values)
    if not values:
        return Cell(NOTHING)
    parts = {"mean": sample.mean, "seeds": float(len(values))}
    if sample.sd is None:
        text = _decimals(sample.mean, None)
        alone = " (one seed)" if len(values) == 1 else ""
        return Cell(text + alone, sample.mean, parts)
    if has_no_spread(sample):
        text = f"{_decimals(sample.mean, None)} ({NO_SPREAD})"
    else:
        text = f"{_decimals(sample.mean, sample.sd)} ± {_decimals(sample.sd, sample.sd)}"
    return Cell(text, sample.mean, {**parts, "sd": sample.sd})


def interval_cell(sample: Sample, scale: float = 1.0, within: tuple[float, float] = _ANY) -> Cell:
    """Return the 95 % confidence interval of the mean, if there is one, cut at the bounds.

    >>> interval_cell(Sample((1.0, 2.0, 3.0))).text
    '-0.5 to 4.5'
    """
    if sample.interval is None or sample.sd is None or has_no_spread(sample):
        return Cell(NOTHING)
    low, high = (min(max(scale * end, within[0]), within[1]) for end in sample.interval)
    text = f"{_decimals(low, scale * sample.sd)} to {_decimals(high, scale * sample.sd)}"
    return Cell(text, low, {"low": low, "high": high})


def _decimals(value: float, sd: float | None) -> str:
    """Return a value with as many decimals as its standard deviation needs for two digits."""
    if not math.isfinite(value):
        return str(value)
    size = sd if sd else abs(value) / 100.0
    if not size:
        return f"{value:g}"
    decimals = 1 - math.floor(math.log10(size))
    if decimals > 8 or decimals < -4:
        return f"{value:.3g}"
    # Adding zero turns a negative zero into a positive one.
    return f"{round(value, max(0, decimals)) + 0.0:.{max(0, decimals)}f}"
