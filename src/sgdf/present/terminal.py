"""The table that every list in the terminal is shown in: a line for each row, never more.

A table that is wider than the terminal loses its least important columns, and says which; if that
is not enough, the longest texts are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from .visible import visible

GAP = 2
"""The spaces between two columns."""
COMFORTABLE, SHORTEST = 28, 8
"""Longer texts are cut before a column of rank 1 is left out, and no text below the second."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading.
        justify: where its texts are: numbers on the right.
        rank: how soon it is left out where there is no room: the highest first, 0 never.
        prose: whether its texts are sentences, of which the start is kept, not start and end.
    """

    title: str
    justify: Literal["left", "right"] = "left"
    rank: int = 0
    prose: bool = False


@dataclass
class Table:
    """A table for the terminal.

    Attributes:
        columns: its columns.
        title: a line above it.
        caption: a text below it.
        rows: the texts of each row.
        styles: how each row is shown, in rich's words.
    """

    columns: Sequence[Column]
    title: str = ""
    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)

    def add_row(self, *texts: str, style: str = "") -> None:
        """Add a row, given a text for each column."""
        self.rows.append([visible(text) for text in texts])
        self.styles.append(style)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterable[RenderableType]:
        """Yield the table line by line, no wider than the console."""
        width = options.max_width
        kept, widths = self._fit(width)
        if self.title:
            yield _line(_cut(visible(self.title), width), "italic")
        yield _line(self._join([visible(c.title) for c in self.columns], kept, widths), "bold")
        for row, style in zip(self.rows, self.styles, strict=True):
            yield _line(self._join(row, kept, widths), style)
        left_out = [column.title for i, column in enumerate(self.columns) if i not in kept]
        if left_out:
            note = f"A wider terminal also shows: {', '.join(map(visible, left_out))}."
            yield Text(note, style="dim")
        if self.caption:
            yield Text(visible(self.caption), style="dim")

    def _fit(self, width: int) -> tuple[list[int], dict[int, int]]:
        """Return the columns that there is room for, and the width of each."""
        texts = [[visible(c.title) for c in self.columns], *self.rows]
        widths = {i: max(cell_len(row[i]) for row in texts) for i in range(len(self.columns))}

        def excess() -> int:
            return sum(widths.values()) + GAP * (len(widths) - 1) - width

        for least_rank, narrowest in ((2, COMFORTABLE), (1, SHORTEST)):
            while excess() > 0:
                spare = [i for i in widths if self.columns[i].rank >= least_rank]
                if not spare:
                    break
                del widths[max(spare, key=lambda i: self.columns[i].rank)]
            if (much := excess()) > 0:
                widths = _cut_longest(widths, much, narrowest)
        return list(widths), widths

    def _join(self, texts: Sequence[str], kept: Sequence[int], widths: dict[int, int]) -> str:
        parts = [_pad(texts[i], widths[i], self.columns[i]) for i in kept]
        return (" " * GAP).join(parts).rstrip()


def _cut_longest(widths: dict[int, int], excess: int, narrowest: int) -> dict[int, int]:
    """Return widths that are smaller by ``excess``, the largest first, none below ``narrowest``.

    >>> _cut_longest({0: 10, 1: 40, 2: 30}, 21, 8), _cut_longest({0: 10, 1: 12}, 9, 8)
    ({0: 10, 1: 24, 2: 25}, {0: 8, 1: 8})
    """
    room, most, spare = sum(widths.values()) - excess, 0, 0
    for i, width in enumerate(sorted(widths.values())):
        most, spare = divmod(room, len(widths) - i)  # for each of those that are not narrower
        if width > most:
            break
        room -= width
    if most < narrowest:
        most, spare = narrowest, 0
    longer = [i for i, width in widths.items() if width > most]
    wider = longer[len(longer) - spare :]  # what cannot be shared evenly is given to the last
    return {i: min(width, most + (i in wider)) for i, width in widths.items()}


def _pad(text: str, width: int, column: Column) -> str:
    text = _cut(text, width, column.prose)
    space = " " * (width - cell_len(text))
    return text + space if column.justify == "left" else space + text


def _cut(text: str, width: int, prose: bool = False) -> str:
    """Return a text of this width at most: its start and its end, if it is longer.

    >>> _cut("sgdf lr=0.1 betas=(0.9, 0.999)", 21), _cut("of prose the start", 10, prose=True)
    ('sgdf lr=0.1 …, 0.999)', 'of prose …')
    """
    if cell_len(text) <= width:
        return text
    end = 0 if prose else (width - 1) * 2 // 5
    last = set_cell_size(text[::-1], end)[::-1].lstrip()
    return set_cell_size(text, width - 1 - cell_len(last)) + "…" + last


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="crop")
