"""A table, the same for every format: the text of its cells, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

NOTHING = "–"
OVERALL = "Overall"


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: the text that people read.
        order: the number that its column is sorted by, if there is one.
        parts: the numbers that the text shows, by name; a CSV file has them.
        key: the key of the setting that it names, as a link to its details.
        optimizer: the optimizer that it names, for its colour.
        mark: a word that sets it apart from the other rows, such as "leader".
    """

    text: str
    order: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    optimizer: str = ""
    mark: str = ""

    @property
    def marked_text(self) -> str:
        """The text with its mark, for formats without badges."""
        return f"{self.text} ({self.mark})" if self.mark else self.text


@dataclass(frozen=True)
class Table:
    """A table with its heading.

    Attributes:
        name: the name of its file and of links to it: letters, digits and dashes.
        section: the name of the problem it belongs to, or ``OVERALL``.
        title: its heading.
        about: how to read it.
        columns: the titles of its columns.
        rows: its rows, each with one cell for each column.
        measure: the metric and its unit, with which the titles of some columns end.
        better: for a column of the metric by its title, which values are better, in words.
        caption: what has to be said of the rows where there is no room for ``about``.
    """

    name: str
    section: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    measure: str = ""
    better: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""

    def without_empty_columns(self) -> Table:
        """Return the table without columns in which no row has anything.

        >>> rows = ((Cell("a"), Cell(NOTHING)), (Cell("b"), Cell(NOTHING)))
        >>> Table("t", "", "", "", ("x", "y"), rows).without_empty_columns().columns
        ('x',)
        """
        texts = [[row[i].text for row in self.rows] for i in range(len(self.columns))]
        kept = [i for i, column in enumerate(texts) if set(column) != {NOTHING}]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )


def number_cell(value: float | None, digits: int = 4) -> Cell:
    """Return a number to this many significant digits.

    >>> number_cell(0.0123456).text, number_cell(float("nan")).text, number_cell(None).text
    ('0.01235', 'nan', '–')
    """
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{value:.{digits}g}", value, {"": value})


def share_cell(value: float, text: str = "") -> Cell:
    """Return a share of a whole, written in per cent unless a text is given for it."""
    return Cell(text or f"{100 * value:.0f} %", value, {"": value})
