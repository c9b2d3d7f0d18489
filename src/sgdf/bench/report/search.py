"""The report on a search: its record, the best settings, and a plot of each option's effect."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Plot, Sheet, drawing, show_per_cent, use_log_axis
from ...present.styles import Style
from ..search.results import OptimizerResult, SearchResult
from ..store import files
from ..tasks.metric import shown_as
from .optimizer_styles import optimizer_styles

TITLE = "The effect of each option"
ABOUT = (
    "The {metric} on validation data, the mean over the seeds of the search, for each trial "
    "({direction}). The star is the best trial of the optimizer. A cross at the edge is a trial "
    "that diverged, failed, was pruned as worse than others, or lies beyond the axis."
)
BEST, LOST = "best", "pruned, diverged, failed or beyond the axis"
LEFT_OUT = 0.25
"""The share of finished trials, the worst ones, that may lie beyond the axis."""
WIDTH, HEIGHT, COLUMNS = 2.7, 1.9, 4


def write_search(result: SearchResult, folder: Path) -> list[Path]:
    """Write the record and the plot and, once the search is complete, the best settings."""
    record, experiment = folder / "search.json", folder / f"{result.search.name}-tuned.toml"
    written = [record]
    files.write(record, (json.dumps(result.record(), indent=1) + "\n").encode())
    if any(one.best for one in result.optimizers):
        with files.store_errors(folder):
            sensitivity(result).write(folder)
        written += [folder / "sensitivity.png", folder / "sensitivity.pdf"]
        if result.complete:
            files.write(experiment, result.experiment().encode())
            written.append(experiment)
    return written


def sensitivity(result: SearchResult) -> Plot:
    """Draw the metric against each option that was tried, a panel for each optimizer."""
    shown = [(one, option) for one in result.optimizers for option in one.candidate.space]
    by_name = optimizer_styles([one.candidate.name for one in result.optimizers])
    low, high = _scale(result)
    tried = f"validation {result.metric.name} of a trial"
    metric = result.metric
    scale, unit = shown_as(metric.name, metric.unit, _values(result))
    with drawing("sensitivity"):
        sheet = Sheet(len(shown), WIDTH, HEIGHT, [tried, BEST, LOST], COLUMNS)
        for panel, (optimizer, option) in zip(sheet.panels, shown, strict=True):
            panel.set_ylim(scale * low, scale * high)
            handles = _draw(panel, optimizer, option, by_name[optimizer.candidate.name], scale)
            panel.set_title(optimizer.candidate.name)
            panel.set_xlabel(option)
            if unit == "%":
                show_per_cent(panel)
        figure = sheet.legend({tried: handles.pop("tried"), **handles})
    about = ABOUT.format(metric=metric.name, direction=metric.direction)
    return Plot("sensitivity", "", TITLE, about, figure)


def _values(result: SearchResult) -> list[float]:
    """Return the metric of each finished trial, where it is finite."""
    values = [t.value for f in result.optimizers for t in f.trials if t.value is not None]
    return [value for value in values if math.isfinite(value)]


def _scale(result: SearchResult) -> tuple[float, float]:
    """Return the ends of the y axis, the same for all panels: the worst trials may lie beyond."""
    best = [f.best.value for f in result.optimizers if f.best and f.best.value is not None]
    worst = float(
        np.quantile(_values(result), LEFT_OUT if result.metric.is_maximized else 1.0 - LEFT_OUT)
    )
    low, high = min([worst, *best]), max([worst, *best])
    margin = 0.1 * (high - low) or 0.01 * abs(high) or 0.01
    return low - margin, high + margin


def _draw(
    panel: Axes, optimizer: OptimizerResult, option: str, style: Style, scale: float
) -> dict[str, Any]:
    """Draw one optimizer's trials against one option; return the entries of the legend."""
    low, high = panel.get_ylim()
    places = _places(panel, optimizer, option)
    tried = [(places[t.number], t) for t in optimizer.trials if t.number in places]
    seen = sorted(
        (place, scale * t.value)
        for place, t in tried
        if t.value is not None and low <= scale * t.value <= high
    )
    lost = [place for place, t in tried if t.value is None or not low <= scale * t.value <= high]
    (points,) = panel.plot(
        [place for place, _ in seen],
        [value for _, value in seen],
        marker=style.marker,
        color=style.color,
        markersize=3.5,
        # Trials that differ in another option too are not joined by a line.
        linewidth=0.8 if len(optimizer.candidate.space) == 1 else 0.0,
    )
    best = optimizer.best
    (star,) = panel.plot(
        [places[best.number]] if best else [],
        [scale * best.value] if best and best.value is not None else [],
        "*",
        color=style.color,
        markeredgecolor="black",
        markersize=10,
    )
    (crosses,) = panel.plot(
        lost,
        [0.03 if optimizer.metric.is_maximized else 0.97] * len(lost),
        "x",
        color="gray",
        markersize=4,
        transform=panel.get_xaxis_transform(),
        clip_on=False,
    )
    return {"tried": points, BEST: star, LOST: crosses}


def _places(panel: Axes, optimizer: OptimizerResult, option: str) -> dict[int, float]:
    """Return the place of each trial on the x axis, after setting up that axis."""
    values = {t.number: t.options[option] for t in optimizer.trials if option in t.options}
    if all(type(value) in (int, float) for value in values.values()):
        least, most = min(values.values(), default=0), max(values.values(), default=0)
        if getattr(optimizer.candidate.space[option], "log", least > 0 and most >= 10 * least):
            use_log_axis(panel, "x")
        return {number: float(value) for number, value in values.items()}
    names = list(dict.fromkeys(str(value) for value in values.values()))
    panel.set_xticks(range(len(names)), names)
    return {number: float(names.index(str(value))) for number, value in values.items()}
