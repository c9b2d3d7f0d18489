"""The plot of the results: every seed as a dot, and the mean with its interval.

At the edge, two chevrons stand for seeds that lie beyond it, and one for the end of an interval. No
optimizer has a chevron as its marker.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path

from ...present.plots import ABOVE, BELOW, LETTER, Drawing, Sheet, mark, shorten, show_per_cent
from ...present.styles import Style
from ...present.words import quantity
from .findings import Problem
from .pairs import MOST_COMPARED
from .sample_cells import mean_cell

ROW = 0.2
"""The height of a row in inches."""
CHEVRON = 6.0
"""The height of a chevron in points."""


def seed_plot(problem: Problem, by_name: dict[str, Style]) -> Drawing | None:
    """Draw the test metric of each finished run, a row for each setting, the best first."""
    shown = [s for s in problem.headline if s.values("test", problem.metric)]
    if not 2 <= len(shown) <= MOST_COMPARED:
        return None
    scale, unit = problem.units[problem.metric]
    sheet = Sheet(1, 6.5, BELOW + ABOVE + ROW * len(shown), [])
    (panel,) = sheet.panels
    samples = [setting.sample("test", problem.metric) for setting in shown]
    low, high = _limits([scale * value for sample in samples for value in sample.values])
    panel.set_xlim(low, high)
    for row, (setting, sample) in enumerate(zip(shown, samples, strict=True)):
        style = by_name[setting.optimizer]
        by_seed = setting.values("test", problem.metric)
        seeds = {seed: scale * v for seed, v in by_seed.items() if math.isfinite(v)}
        values, rows = list(seeds.values()), [row] * len(seeds)
        drawn = panel.plot(values, rows, style.marker, color=style.color, alpha=0.6, ms=5)
        texts = [f"seed {seed}: {quantity(value, unit)}" for seed, value in seeds.items()]
        sheet.figure.explain(drawn[0], setting.name, texts)
        for side, beyond in (
            (-1, any(value < low for value in values)),
            (1, any(value > high for value in values)),
        ):
            if beyond:
                drawn += _edge_mark(panel, row, side, 2, style.color)
        drawn += panel.plot([scale * sample.mean], [row], "|", color=style.color, ms=11, mew=2)
        sheet.figure.explain(drawn[-1], setting.name, [f"mean: {mean_cell(sample, scale).text}"])
        if sample.interval is not None:
            ends = [scale * end for end in sample.interval]
            drawn += panel.plot(ends, [row, row], color=style.color, linewidth=1.2)
            for side, beyond in ((-1, ends[0] < low), (1, ends[1] > high)):
                if beyond:
                    drawn += _edge_mark(panel, row, side, 1, style.color)
        mark(setting.optimizer, *drawn)
    names = [shorten(setting.name) for setting in shown]
    panel.set_yticks(range(len(shown)), names)
    for setting, label in zip(shown, panel.get_yticklabels(), strict=True):
        mark(setting.optimizer, label)
    panel.set_ylim(len(shown) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)
    if unit == "%":
        show_per_cent(panel, "x")
        unit = ""  # it is beside every number
    notes = [unit, problem.direction] if unit else [problem.direction]
    panel.set_xlabel(f"test {problem.metric} ({', '.join(notes)})")
    _make_room(sheet, max(map(len, names)))
    return sheet.figure


def _edge_mark(panel: Axes, row: int, side: int, count: int, color: str) -> list[Line2D]:
    """Draw chevrons that point out of the panel, at its left edge if ``side`` is -1, else right.

    The first one touches the edge, so that two of seeds cover the one of an interval.
    """
    corners = [(-side * (i + x), y) for i in range(count) for x, y in ((1, 1), (0, 0), (1, -1))]
    return panel.plot(
        panel.get_xlim()[side > 0],
        row,
        marker=Path(corners, [Path.MOVETO, Path.LINETO, Path.LINETO] * count),
        markersize=CHEVRON * count,
        markeredgewidth=1.3,
        fillstyle="none",
        color=color,
        clip_on=False,
    )


def _limits(values: list[float]) -> tuple[float, float]:
    """Return the ends of the axis: all values lie within, unless a few are far from the others."""
    finite = np.array([value for value in values if math.isfinite(value)])
    first, last = np.quantile(finite, (0.05, 0.95))
    room = 0.5 * (last - first) or 0.05 * abs(last) or 1.0
    low, high = max(finite.min(), first - room), min(finite.max(), last + room)
    margin = 0.03 * (high - low) or room
    return float(low - margin), float(high + margin)


def _make_room(sheet: Sheet, letters: int) -> None:
    """Move the left edge of the panel to where the names end."""
    (panel,) = sheet.panels
    box, across = panel.get_position(), sheet.figure.get_figwidth()
    left = min(0.6, (letters * LETTER + 0.25) / across)
    panel.set_position((left, box.y0, box.x1 - left, box.height))
