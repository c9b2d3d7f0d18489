"""How every plot of a report is drawn and written: its panels, axes and legend.

The place of each panel is computed here: matplotlib's automatic layout would take nearly half of
the time of a figure.
"""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, PercentFormatter

from .formats import one_line

STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.0,
    "font.size": 9.0,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.handlelength": 3.2,  # a shorter sample does not show a dash pattern
    "path.simplify_threshold": 0.5,
    "pdf.fonttype": 42,  # publishers reject the Type 3 fonts of matplotlib's default
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is not a formula
}
# In inches: the margins of a panel, which hold its labels, and the height of a legend's line.
LEFT, RIGHT, BELOW, ABOVE, LINE = 0.68, 0.12, 0.46, 0.3, 0.19
LETTER, HANDLE = 0.075, 0.7  # in inches too: the width of a letter, and of a legend's sample line
LONGEST_NAME = 60
LONGEST_TITLE = 40
"""Letters over a panel of the usual width."""
READING = "-reading-"
"""What comes between an optimizer's mark and the number of a reading in the id of a line."""


@dataclass(frozen=True)
class Reading:
    """The points of a line in words, for the page to show under the pointer."""

    line: Line2D
    name: str
    texts: tuple[str, ...]

    def places(self, height: float) -> np.ndarray:
        """Return where the points are in an SVG file of this height; a row for each."""
        figure = self.line.get_figure(root=True)
        assert figure is not None, "a line that was never drawn has no place"
        pixels = self.line.get_transform().transform(self.line.get_xydata())
        points = 72.0 / figure.dpi * np.asarray(pixels)
        points[:, 1] = height - points[:, 1]
        return points


class Drawing(Figure):
    """A figure that knows its points in words."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.readings: list[Reading] = []

    def explain(self, line: Line2D, name: str, texts: Sequence[str]) -> None:
        """Let the page show a name and a text for each point of a line."""
        self.readings.append(Reading(line, one_line(name), tuple(map(one_line, texts))))


@dataclass(frozen=True)
class Plot:
    """A figure with its heading."""

    name: str
    section: str
    title: str
    about: str
    figure: Drawing

    def svg(self) -> str:
        """Return the figure as SVG; the id of a line that can be read ends in its number."""
        for number, reading in enumerate(self.figure.readings):
            owner = str(reading.line.get_gid() or "").partition(READING)[0]
            reading.line.set_gid(f"{owner}{READING}{number}")
        text = io.StringIO()
        with drawing(self.name):
            self.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        return text.getvalue()

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in the units of its SVG, which are points."""
        width, height = self.figure.get_size_inches()
        return 72.0 * width, 72.0 * height

    def write(self, folder: Path) -> None:
        """Write the figure as PNG and PDF."""
        with drawing(self.name):
            self.figure.savefig(folder / f"{self.name}.png", dpi=144)
            self.figure.savefig(folder / f"{self.name}.pdf", metadata={"CreationDate": None})


@contextlib.contextmanager
def drawing(salt: str) -> Iterator[None]:
    """Draw in the style of all reports.

    Args:
        salt: makes the ids within an SVG file; with the same salt they are the same each time.
    """
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        # A name may be in a script that the font does not have: boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


class Sheet:
    """A figure with panels in rows, and a legend in the free cells of the grid, or else below.

    Args:
        count: the number of panels.
        width: the width of a panel with its labels, in inches.
        height: the height of a panel with its labels, in inches.
        names: the entries of the legend.
        columns: the largest number of panels in a row.
        beside: inches to the right of all panels, for an upright bar beside the first row:
            the attribute ``beside``, which is None without them.
    """

    def __init__(
        self,
        count: int,
        width: float,
        height: float,
        names: Sequence[str],
        columns: int = 3,
        beside: float = 0.0,
    ) -> None:
        columns = min(columns, count)
        rows = -(-count // columns)
        across = columns * width + beside
        entry = LETTER * max((len(shorten(name)) for name in names), default=0) + HANDLE
        free = rows * columns - count
        self.in_cells = free * width >= entry and len(names) * LINE < height
        self.legend_columns = max(1, min(6, int(across / entry)))
        lines = 0 if self.in_cells else -(-len(names) // self.legend_columns)
        foot = (lines + 1) * LINE if lines else 0.0
        tall = rows * height + foot
        self.figure = Drawing(figsize=(across, tall))
        FigureCanvasAgg(self.figure)
        self.cells = [
            (column * width / across, (tall - (row + 1) * height) / tall)
            for row in range(rows)
            for column in range(columns)
        ]
        self.panels = [
            self.figure.add_axes(
                (
                    x + LEFT / across,
                    y + BELOW / tall,
                    (width - LEFT - RIGHT) / across,
                    (height - BELOW - ABOVE) / tall,
                )
            )
            for x, y in self.cells[:count]
        ]
        self._free = (free * width / across, height / tall)
        self.beside: Axes | None = None
        if beside:
            _, y, _, upright = self.panels[0].get_position().bounds
            self.beside = self.figure.add_axes(
                ((columns * width + 0.05) / across, y, 0.14 / across, upright)
            )

    def legend(self, labelled: dict[str, Any]) -> Drawing:
        """Draw the legend, given the lines by their names, and return the figure."""
        handles, names = list(labelled.values()), [shorten(name) for name in labelled]
        if self.in_cells:
            box = (*self.cells[len(self.panels)], *self._free)
            legend = self.figure.legend(handles, names, loc="center", bbox_to_anchor=box)
        else:
            columns = self.legend_columns
            legend = self.figure.legend(handles, names, loc="lower center", ncols=columns)
        entries = zip(handles, legend.legend_handles, legend.get_texts(), strict=True)
        for line, key, text in entries:
            for part in filter(None, (key, text)):
                part.set_gid(line.get_gid())
        return self.figure


def shorten(name: str, most: int = LONGEST_NAME) -> str:
    """Return a name of at most so many letters: its beginning and its end.

    >>> shorten("sgdf lr=0.5 weight_decay=0.0005 betas=(0.9, 0.99)", most=25)
    'sgdf lr=0.5 w…(0.9, 0.99)'
    """
    name, end = one_line(name), most * 2 // 5 + 1
    return name if len(name) <= most else f"{name[: most - end - 1]}…{name[-end:]}"


def legend_within(
    panel: Axes,
    place: Literal[
        "upper left", "upper center", "upper right", "lower left", "lower right", "center right"
    ],
) -> None:
    """Draw a small legend inside a panel, where its lines are not those of other panels.

    Args:
        panel: whose lines have labels.
        place: where the panel is free.
    """
    panel.legend(fontsize=7.5, loc=place, handlelength=2.0, borderaxespad=0.3)


def set_title(panel: Any, name: str) -> None:
    """Write a name above its panel; a long one in two small lines."""
    room = 2 * LONGEST_TITLE - 8
    lines = textwrap.wrap(shorten(name, room), LONGEST_TITLE, max_lines=2, placeholder=" …")
    panel.set_title("\n".join(lines), fontsize=9 if len(name) <= 30 else 7, pad=4)


def mark_of(optimizer: str) -> str:
    """Return the CSS class by which the page finds all that is drawn for an optimizer."""
    return "of-" + optimizer.encode("utf-8", "replace").hex()


def mark(optimizer: str, *artists: Any) -> None:
    """Mark parts of a drawing as belonging to an optimizer, so that the page can hide them."""
    for artist in artists:
        artist.set_gid(mark_of(optimizer))


def band(panel: Axes, x: Any, low: Any, high: Any, color: str) -> Any:
    """Shade the area between two curves, and return it."""
    return panel.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)


def show_per_cent(panel: Axes, which: str = "y") -> None:
    """Write a per cent sign after each number of the ``"x"`` or ``"y"`` axis."""
    axis = panel.xaxis if which == "x" else panel.yaxis
    axis.set_major_formatter(PercentFormatter(100.0))


def log_ticks(low: float, high: float, numbers: int = 3) -> list[float]:
    """Return what a logarithmic axis names between two values: few numbers, but several.

    >>> log_ticks(0.3, 4.0), log_ticks(1e-3, 10.0)
    ([0.3, 1.0, 3.0], [0.001, 0.01, 0.1, 1.0, 10.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= numbers:
            break
    return ticks


def use_log_axis(panel: Axes, which: str, numbers: int = 0) -> None:
    """Make the ``"x"`` or ``"y"`` axis logarithmic, its numbers written without formulas.

    Args:
        panel: what is drawn is in it already.
        which: the axis.
        numbers: how many are written along it at least, if its range is less than some powers of
            ten; by default only the powers are.
    """
    panel.set(**{f"{which}scale": "log"})
    axis = panel.xaxis if which == "x" else panel.yaxis
    if numbers:
        axis.set_major_locator(FixedLocator(log_ticks(*axis.get_view_interval(), numbers)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def reveal(panel: Axes, largest: bool) -> None:
    """Choose the upright axis such that the later part of the curves can be read.

    A metric that should grow has the first fifth of its curves cut off, if the rest would fill
    less than half of the panel. One that should fall gets a logarithmic axis, if it falls by a
    factor of twenty.
    """
    curves = [np.asarray(line.get_ydata(), float) for line in panel.get_lines()]
    values = np.concatenate(curves)
    late = np.concatenate([curve[len(curve) // 5 :] for curve in curves])
    values, late = values[np.isfinite(values)], late[np.isfinite(late)]
    if not len(late):
        return
    low, high = late.min(), values.max()
    if largest and high - low < 0.5 * (high - values.min()):
        margin = 0.1 * (high - low)
        panel.set_ylim(low - 5.0 * margin, high + margin)
    elif not largest and values.min() > 0.0 and high > 20.0 * values.min():
        use_log_axis(panel, "y")
