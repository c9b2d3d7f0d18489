"""A curve over the runs of a setting: their mean, with a band from the lowest to the highest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...present.plots import Sheet, band, mark
from ...present.styles import Style
from .findings import Setting

T = TypeVar("T")
POINTS = 64
"""The most points of a curve: a panel of a few centimetres hardly shows more."""


class Curve(NamedTuple):
    """The values on the x axis; then the lowest, the mean and the highest of the runs there."""

    x: np.ndarray
    low: np.ndarray
    middle: np.ndarray
    high: np.ndarray


def thin(items: Sequence[T]) -> Sequence[T]:
    """Return as many items as a curve has points, the first and the last among them."""
    if len(items) <= POINTS:
        return items
    return [items[round(i * (len(items) - 1) / (POINTS - 1))] for i in range(POINTS)]


def curve_over_runs(points: Iterable[tuple[float, Sequence[float]]]) -> Curve:
    """Return the curve of the values of runs at each x, with gaps where one is not finite."""
    columns = []
    for x, found in points:
        values = found if all(map(math.isfinite, found)) else [math.nan]
        columns.append((x, min(values), sum(values) / len(values), max(values)))
    return Curve(*np.array(columns).T)


def draw_curve(
    sheet: Sheet,
    panel: Axes,
    setting: Setting,
    style: Style,
    curve: Curve,
    readings: Sequence[str],
    scale: float = 1.0,
) -> Line2D:
    """Draw the curve of a setting into a panel, and return its line.

    Args:
        sheet: the figure of the panel.
        panel: where to draw.
        setting: whose runs it is about.
        style: the style of the setting.
        curve: the curve.
        readings: each point in words.
        scale: what all values are multiplied by.
    """
    # A metric that only one epoch has would be a line without length: nothing to see.
    marker = style.marker if len(curve.x) == 1 else ""
    (line,) = panel.plot(
        curve.x, scale * curve.middle, linewidth=1.4, marker=marker, markersize=4, **style.line
    )
    shade = band(panel, curve.x, scale * curve.low, scale * curve.high, style.color)
    mark(setting.optimizer, line, shade)
    sheet.figure.explain(line, setting.name, readings)
    return line
