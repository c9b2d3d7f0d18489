"""Curves over T that grow or fall like a power of T."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from ...present.plots import use_log_axis

GUIDE_LINE: dict[str, Any] = {"color": "gray", "linestyle": "-", "linewidth": 0.8}


def slope(steps: Any, values: Any) -> float:
    """Return by which power of T values grow over the last decade, by least squares.

    >>> round(slope([10, 100, 1000], [1.0, 0.1, 0.01]), 6)
    -1.0
    """
    late = np.asarray(steps) >= 0.1 * np.asarray(steps)[-1]
    logs = np.log(np.asarray(steps)[late]), np.log(np.abs(np.asarray(values)[late]))
    return float(np.polyfit(*logs, 1)[0])


def draw_power(panel: Axes, steps: Any, power: float) -> Line2D:
    """Draw a power of T over the last decade, below the end of all curves of a panel."""
    below = 0.5 * min(float(np.asarray(line.get_ydata())[-1]) for line in panel.get_lines())
    near = np.asarray(steps) / steps[-1]
    (line,) = panel.plot(steps, np.where(near < 0.1, np.nan, below * near**power), **GUIDE_LINE)
    return line


def use_log_axes(panel: Axes) -> None:
    """Make both axes logarithmic; a short upright one has more numbers than powers of ten."""
    for which in ("x", "y"):
        use_log_axis(panel, which)
    low, high = panel.get_ylim()
    if high < 100.0 * low:
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
