"""A table before it is written out: what its cells say, what they are sorted by, what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOTHING = "–"
OVERALL = "Overall"


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


def number_cell(value: float | None, digits: int = 4) -> Cell:
    """Return a number to so many digits.

    >>> number_cell(0.0123456).text, number_cell(float("nan")).text, number_cell(None).text
    ('0.01235', 'nan', '–')
    """
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{value:.{digits}g}", value, {"": value})


def share_cell(value: float, text: str = "") -> Cell:
    """Return a share of a whole, in per cent unless other words are given for it."""
    return Cell(text or f"{100 * value:.0f} %", value, {"": value})
