"""The plot of the metric against the learning rate, with the ranges of good rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from ...present.plots import (
    Drawing,
    Sheet,
    band,
    mark,
    set_title,
    show_per_cent,
    use_log_axis,
)
from ...present.styles import Style
from ...present.words import plural, quantity
from .findings import Problem, Setting
from .rate_curves import RateCurve, RateGrid, rate_grids
from .rate_windows import NATS, SMALLEST_LOSS, GridWindows, has_enough_rates, windows_of

ABOUT = (
    "The {} by which settings are judged: the mean over the seeds, with a band from the lowest "
    "seed to the highest. A cross at the edge marks a learning rate at which a run diverged, "
    "failed or had no finite value."
)
TOLERANCES_SHOWN = 12
"""How far below the best mean the axis reaches; half as far above it there is room for bars."""
RANGES = (
    " The dotted line is the level of a good result, and a bar the optimizer's range of good rates."
    f" Worse results are cut off: from the best mean of all, the axis reaches {TOLERANCES_SHOWN} "
    "times as far as the dotted line, and further only to show the best mean of each optimizer."
)
NO_RANGES = (
    f" A loss has ranges of good rates only if its best mean is {SMALLEST_LOSS:g} or more: the "
    f"tolerance of {NATS:g} is meant for a cross-entropy in nats."
)


def rate_plot(problem: Problem, by_name: dict[str, Style]) -> tuple[str, Drawing | None]:
    """Draw the metric against the learning rate, a panel for each batch size.

    Returns:
        what the plot shows, and the plot; None if no optimizer has several rates.
    """
    # A curve of one rate is not drawn, but its result may be the best, which sets the level.
    whole = [grid for grid in rate_grids(problem) if _drawable(grid).curves]
    grids, windows = [_drawable(grid) for grid in whole], [windows_of(grid) for grid in whole]
    about = ABOUT.format(f"{problem.judged_on} {problem.metric} ({problem.direction}),")
    about += RANGES if any(windows) else ""
    if problem.metric == "loss" and any(
        found is None and has_enough_rates(grid) for grid, found in zip(grids, windows, strict=True)
    ):
        about += NO_RANGES
    titles = [grid.batches for grid in grids] if len(grids) > 1 else [""]
    return about, _draw(grids, windows, titles, by_name) if grids else None


def overall_rate_plot(found: Sequence[GridWindows], by_name: dict[str, Style]) -> Drawing | None:
    """Draw the ranges on all problems, a panel for each; None if they are of one problem."""
    if len({windows.grid.problem.name for windows in found}) < 2:
        return None
    grids = [_drawable(windows.grid) for windows in found]
    return _draw(grids, found, [windows.grid.name for windows in found], by_name)


def _drawable(grid: RateGrid) -> RateGrid:
    """Return the curves of a grid with several rates, one of which has a result."""
    several = (
        curve
        for curve in grid.curves
        if len(curve.by_rate) > 1
        and any(setting.finished or _is_lost(setting) for setting in curve.by_rate.values())
    )
    return RateGrid(grid.problem, grid.batch_size, tuple(several))


def _draw(
    grids: Sequence[RateGrid],
    windows: Sequence[GridWindows | None],
    titles: Sequence[str],
    by_name: dict[str, Style],
) -> Drawing:
    styles = _styles(grids, by_name)
    size = (7.0, 3.4) if len(grids) == 1 else (3.4, 2.8)
    sheet = Sheet(len(grids), *size, list(styles))
    labelled: dict[str, Any] = {}
    for panel, grid, found, title in zip(sheet.panels, grids, windows, titles, strict=True):
        problem = grid.problem
        for curve in grid.curves:
            line = _draw_curve(sheet, panel, grid, curve, styles)
            labelled.setdefault(curve.name, line)
        use_log_axis(panel, "x")
        panel.set_xlabel("learning rate")
        better = f" ({problem.direction})" if len(grids) == 1 else ""  # a small panel has no room
        panel.set_ylabel(f"{problem.judged_on} {problem.metric}{better}")
        if found is not None:
            _draw_ranges(sheet, panel, found, styles)
        if problem.units[problem.metric][1] == "%":
            show_per_cent(panel)
        if title:
            set_title(panel, title)
    return sheet.legend(labelled)


def _styles(grids: Sequence[RateGrid], by_name: dict[str, Style]) -> dict[str, Style]:
    """Return the style of each curve by its name, the same in all panels."""
    styles: dict[str, Style] = {}
    count: dict[str, int] = {}
    for curve in (curve for grid in grids for curve in grid.curves):
        if curve.name not in styles:
            index = count.setdefault(curve.optimizer, 0)
            count[curve.optimizer] += 1
            styles[curve.name] = by_name[curve.optimizer].variant(index)
    return styles


def _draw_curve(
    sheet: Sheet, panel: Axes, grid: RateGrid, curve: RateCurve, styles: dict[str, Style]
) -> Any:
    """Draw a curve with its band and the rates at which a run was lost, and return its line."""
    problem, style = grid.problem, styles[curve.name]
    scale, unit = problem.units[problem.metric]
    samples = {
        rate: setting.sample(problem.judged_on, problem.metric)
        for rate, setting in curve.by_rate.items()
    }
    shown = {rate: s for rate, s in samples.items() if math.isfinite(s.mean)}
    (line,) = panel.plot(
        list(shown),
        [scale * sample.mean for sample in shown.values()],
        marker=style.marker,
        markersize=4,
        **style.line,
    )
    shade = band(
        panel,
        list(shown),
        [scale * min(sample.values) for sample in shown.values()],
        [scale * max(sample.values) for sample in shown.values()],
        style.color,
    )
    lost = [rate for rate, setting in curve.by_rate.items() if _is_lost(setting)]
    # A line of its own for each, so that no cross hides another.
    height = 0.03 + 0.9 * list(styles).index(curve.name) / max(20, len(styles))
    (crosses,) = panel.plot(
        lost,
        [height if problem.larger_is_better else 1.0 - height] * len(lost),
        "x",
        color=style.color,
        transform=panel.get_xaxis_transform(),
    )
    mark(curve.optimizer, line, shade, crosses)
    means = [
        f"lr {rate:g}: {quantity(scale * sample.mean, unit)}, {plural(len(sample.values), 'seed')}"
        for rate, sample in shown.items()
    ]
    sheet.figure.explain(line, curve.name, means)
    losses = [f"lr {rate:g}: {_lost_in_words(curve.by_rate[rate])}" for rate in lost]
    sheet.figure.explain(crosses, curve.name, losses)
    return line


def _draw_ranges(sheet: Sheet, panel: Axes, windows: GridWindows, styles: dict[str, Style]) -> None:
    """Draw the level, and a bar for each range above the best mean, over the bands of seeds.

    Where smaller is better, the bars are below it.
    """
    problem = windows.grid.problem
    scale, _ = problem.units[problem.metric]
    best, tolerance = scale * windows.best, scale * (windows.best - windows.level)  # with a sign
    panel.axhline(scale * windows.level, color="0.5", linestyle=":", linewidth=1.2)
    shown = max(TOLERANCES_SHOWN, 1.0 + (best - scale * _worst_top(windows)) / tolerance)
    step = tolerance * shown / TOLERANCES_SHOWN
    edges = best - TOLERANCES_SHOWN * step, best + TOLERANCES_SHOWN / 2 * step
    panel.set_ylim(min(edges), max(edges))
    # Where the bars are, no metric has values: an accuracy would be above 100 %.
    reached = [tick for tick in panel.get_yticks() if (tick - best) / tolerance <= 1.0]
    panel.set_yticks([tick for tick in reached if min(edges) <= tick <= max(edges)])
    for index, one in enumerate(windows.curves):
        if one.common is None:
            continue
        height = best + step * (1.0 + 4.5 * index / len(windows.curves))
        style = styles[one.curve.name]
        (bar,) = panel.plot(
            (one.common.low, one.common.high),
            [height] * 2,
            color=style.color,
            linewidth=3.0,
            marker=style.marker,
            markersize=5,
            zorder=3,  # above every curve and band
        )
        mark(one.curve.optimizer, bar)
        text = f"good from {one.common.ends_in_words}: {one.common.width_in_words} decades"
        sheet.figure.explain(bar, one.curve.name, [text] * 2)


def _worst_top(windows: GridWindows) -> float:
    """Return the best mean of the drawn curve whose best mean is the worst."""
    problem = windows.grid.problem
    better, worse = (max, min) if problem.larger_is_better else (min, max)
    by_curve = (
        [setting.sample(problem.judged_on, problem.metric).mean for setting in c.by_rate.values()]
        for c in _drawable(windows.grid).curves
    )
    finite = (list(filter(math.isfinite, means)) for means in by_curve)
    return worse((better(means) for means in finite if means), default=windows.best)


def _is_lost(setting: Setting) -> bool:
    """Return whether a run of a setting is lost."""
    return any(run.lost for run in setting.runs)


def _lost_in_words(setting: Setting) -> str:
    lost = sum(run.lost for run in setting.runs)
    return f"{lost} of {plural(len(setting.runs), 'run')} lost"
