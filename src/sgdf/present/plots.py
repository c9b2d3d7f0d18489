"""How every plot of a report is drawn: its sheet, axes and legend, and the forms it is kept in.

Panels are laid out by arithmetic: to let matplotlib find out what its labels need takes nearly half
of the time that a figure takes.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from .formats import one_line

STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.0,
    "font.size": 9.0,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "path.simplify_threshold": 0.5,
    "pdf.fonttype": 42,  # publishers refuse matplotlib's default
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name is not a formula
}
# Inches that are left free around a panel for its labels, and that a line of a legend takes.
LEFT, RIGHT, BELOW, ABOVE, LINE = 0.68, 0.12, 0.46, 0.3, 0.19
LETTER, HANDLE = 0.075, 0.55
LONGEST_NAME = 60


@dataclass(frozen=True)
class Plot:
    """A figure with its heading."""

    name: str
    section: str
    title: str
    about: str
    figure: Figure

    def svg(self) -> str:
        """Return it as SVG."""
        text = io.StringIO()
        with drawing(self.name):
            self.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        return text.getvalue()

    def write(self, folder: Path) -> None:
        """Write it as PNG and PDF."""
        with drawing(self.name):
            self.figure.savefig(folder / f"{self.name}.png", dpi=144)
            self.figure.savefig(folder / f"{self.name}.pdf", metadata={"CreationDate": None})


@contextlib.contextmanager
def drawing(salt: str) -> Iterator[None]:
    """Draw in the style of all reports; what has the same salt has the same names inside."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        # A name may be in a script that the font has not got: a box then stands for it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


class Sheet:
    """A figure with panels in rows, and room for a legend: in a cell left free, or else below.

    Args:
        count: how many panels.
        width: of a panel with its labels, in inches.
        height: likewise.
        names: what the legend will explain.
        columns: the most panels that stand in a row.
    """

    def __init__(
        self, count: int, width: float, height: float, names: Sequence[str], columns: int = 3
    ) -> None:
        columns = min(columns, count)
        rows = -(-count // columns)
        self.in_cell = rows * columns > count and len(names) * LINE < height
        across = columns * width
        longest = max((len(short(name)) for name in names), default=0)
        self.legend_columns = max(1, min(6, int(across / (LETTER * longest + HANDLE))))
        lines = 0 if self.in_cell else -(-len(names) // self.legend_columns)
        foot = (lines + 1) * LINE if lines else 0.0
        tall = rows * height + foot
        self.figure = Figure(figsize=(across, tall))
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
        self._free = (width / across, height / tall)

    def legend(self, labelled: dict[str, Any]) -> Figure:
        """Say what is what, and return the figure."""
        handles, names = list(labelled.values()), [short(name) for name in labelled]
        if self.in_cell:
            (x, y), (width, height) = self.cells[-1], self._free
            box = (x, y, width, height)
            made = self.figure.legend(handles, names, loc="center", bbox_to_anchor=box)
        else:
            made = self.figure.legend(handles, names, loc="lower center", ncols=self.legend_columns)
        for drawn, key, text in zip(handles, made.legend_handles, made.get_texts(), strict=True):
            for part in filter(None, (key, text)):
                part.set_gid(drawn.get_gid())
        return self.figure


def short(name: str) -> str:
    """Return a name that a plot has room for."""
    name = one_line(name)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def mark_of(optimizer: str) -> str:
    """Return a mark by which the page finds what is drawn of an optimizer."""
    return "of-" + optimizer.encode("utf-8", "replace").hex()


def mark(optimizer: str, *artists: Any) -> None:
    """Let the page find what is drawn of an optimizer."""
    for artist in artists:
        artist.set_gid(mark_of(optimizer))


def band(panel: Axes, x: Any, low: Any, high: Any, color: str) -> Any:
    """Shade what lies between two curves."""
    return panel.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)


def in_per_cent(panel: Axes) -> None:
    """Give the upright axis its unit."""
    panel.yaxis.set_major_formatter(PercentFormatter(100.0))


def logarithmic(panel: Axes, which: str) -> None:
    """Make the ``"x"`` or ``"y"`` axis logarithmic, its numbers written without formulas."""
    panel.set(**{f"{which}scale": "log"})
    axis = panel.xaxis if which == "x" else panel.yaxis
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def reveal(panel: Axes, largest: bool) -> None:
    """Give the later part of a course the room that it needs.

    What grows leaves out its first fifth if the rest takes less than half of the picture. What
    falls by a factor of twenty has a logarithmic axis.
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
        logarithmic(panel, "y")
