"""A table before it is written out: what its cells say, what they are sorted by, what they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .statistics import Sample

NOTHING = "–"
OVERALL = "Overall"
_ANY = (-math.inf, math.inf)


@dataclass(frozen=True)
class Cell:
    """One entry.

    Attributes:
        text: as people read it.
        order: what its column is sorted by, if that is a number.
        parts: the numbers that it was made of, for those who compute with them.
        key: the setting it tells of, whose details are elsewhere.
        optimizer: the optimizer it tells of, which has a colour.
    """

    text: str
    order: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    optimizer: str = ""


@dataclass(frozen=True)
class Table:
    """A table with its heading.

    Attributes:
        name: for a file or a link; letters, digits and dashes.
        section: the problem it belongs to, or ``OVERALL``.
        title: what it shows.
        about: what one has to know to read it.
        columns: their titles.
        rows: as many cells each as there are columns.
    """

    name: str
    section: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def number(value: float | None, digits: int = 4) -> Cell:
    """Return a number to so many digits.

    >>> number(0.0123456).text, number(float("nan")).text, number(None).text
    ('0.01235', 'nan', '–')
    """
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{value:.{digits}g}", value, {"": value})


def share(value: float, text: str = "") -> Cell:
    """Return a share of a whole, in per cent unless other words are given for it."""
    return Cell(text or f"{100 * value:.0f} %", value, {"": value})


def figure(sample: Sample, scale: float = 1.0) -> Cell:
    """Return mean and standard deviation; a single value says that it is one.

    >>> figure(Sample((0.98, 0.99, 0.985)), scale=100).text
    '98.50 ± 0.50'
    >>> figure(Sample((0.98,)), scale=100).text
    '98.00 (one seed)'
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
    text = f"{_decimals(sample.mean, sample.sd)} ± {_decimals(sample.sd, sample.sd)}"
    return Cell(text, sample.mean, {**parts, "sd": sample.sd})


def interval(sample: Sample, scale: float = 1.0, within: tuple[float, float] = _ANY) -> Cell:
    """Return the 95 % interval of the mean, if there is one, as far as it lies within bounds.

    >>> interval(Sample((1.0, 2.0, 3.0))).text
    '-0.5 to 4.5'
    """
    if sample.interval is None or sample.sd is None:
        return Cell(NOTHING)
    low, high = (min(max(scale * end, within[0]), within[1]) for end in sample.interval)
    text = f"{_decimals(low, scale * sample.sd)} to {_decimals(high, scale * sample.sd)}"
    return Cell(text, low, {"low": low, "high": high})


def _decimals(value: float, sd: float | None) -> str:
    """Write a value with the decimals that two digits of its spread have."""
    if not math.isfinite(value):
        return str(value)
    size = sd if sd else abs(value) / 100.0
    if not size:
        return f"{value:g}"
    decimals = 1 - math.floor(math.log10(size))
    if decimals > 8:
        return f"{value:.3g}"
    return f"{value:.{max(0, decimals)}f}"
