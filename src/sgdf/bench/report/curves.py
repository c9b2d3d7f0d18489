"""The plots of a report: courses of training, learning rates, and the performance profile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ...present.plots import Plot, Sheet, band, drawing, in_per_cent, logarithmic, mark, reveal
from ...present.styles import Style
from ...present.table import OVERALL
from ..spec.labels import Table, settings_label
from ..store.records import Row, figures_on
from .findings import Findings, Problem, Setting
from .optimizer_styles import optimizer_styles
from .seed_plot import dots
from .tables import MOST_COMPARED
from .targets import Target, profiles, training_seconds

Curve = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Abscissa, least, mean and most."""
POINTS = 64
"""More than these a curve of a few centimetres hardly shows."""


def plots(findings: Findings, targets: Sequence[Target]) -> list[Plot]:
    """Return every plot that the runs have something for."""
    by_name = optimizer_styles(findings.optimizers)
    found: list[tuple[str, str, str, str, Figure | None]] = []
    with drawing("plots"):
        for index, problem in enumerate(findings.problems):
            name, steps = problem.name, _courses(problem, by_name, "steps", all_metrics=True)
            time = _courses(problem, by_name, "seconds of training", all_metrics=False)
            rates = _rates(problem, by_name)
            found += [
                (f"results-{index}", name, "Every seed", _DOTS, dots(problem, by_name)),
                (f"curves-steps-{index}", name, "Curves against steps", _BANDS, steps),
                (f"curves-seconds-{index}", name, "Curves against time", _BANDS, time),
                (f"rates-{index}", name, "What the learning rate does", _RATES, rates),
            ]
        profile = _profile(targets, by_name)
        found.append(
            ("profile", OVERALL, "How often each is nearly the fastest", _PROFILE, profile)
        )
    return [
        Plot(name, section, title, about, figure)
        for name, section, title, about, figure in found
        if figure is not None
    ]


_DOTS = (
    "The test metric of each finished run, the mean, and its 95 % interval, in the order of the "
    "validation data. A triangle at an edge: a seed lies beyond it."
)
_BANDS = "Means over the finished runs; bands reach from the least to the most."
_RATES = (
    "The metric that settings are chosen by: mean over the seeds, with a band from the least to "
    "the most. A cross at the edge: a run was lost there."
)
_PROFILE = (
    "For each factor: the share of instances (a problem with a seed) on which the target was "
    "reached within so many times the steps of the fastest."
)


def _courses(
    problem: Problem, by_name: dict[str, Style], against: str, all_metrics: bool
) -> Figure | None:
    """Draw how the metrics went, on each split that has them.

    Args:
        problem: whose headline to draw.
        by_name: the look of each optimizer.
        against: what the abscissa is.
        all_metrics: show the loss beside the metric on the splits that have both.
    """
    looked = list(_looked(problem, by_name))
    panels: dict[tuple[str, str], list[tuple[Setting, Style, Curve]]] = {}
    for split in problem.splits:
        for metric in dict.fromkeys((problem.metric, "loss")):
            curves = [
                (setting, style, curve)
                for setting, style in looked
                if (curve := _curve(setting, split, metric, against)) is not None
            ]
            if curves and (all_metrics or not any(split == other for _, other in panels)):
                panels[metric, split] = curves
    if not panels:
        return None
    names = dict.fromkeys(s.name for curves in panels.values() for s, _, _ in curves)
    sheet = Sheet(len(panels), 3.4, 2.6, list(names))
    labelled: dict[str, Any] = {}
    ordered = sorted(panels, key=lambda panel: panel[0] != problem.metric)
    for panel, (metric, split) in zip(sheet.panels, ordered, strict=True):
        scale, _ = problem.units[metric]
        for setting, style, (x, low, middle, high) in panels[metric, split]:
            (line,) = panel.plot(x, scale * middle, linewidth=1.4, **style.line)
            shade = band(panel, x, scale * low, scale * high, style.color)
            mark(setting.optimizer, line, shade)
            labelled.setdefault(setting.name, line)
        if scale == 100.0:
            in_per_cent(panel)
        reveal(panel, largest=problem.larger_is_better if metric == problem.metric else False)
        panel.set_title(f"training {metric}" if split == "train" else f"{split} {metric}")
        panel.set_xlabel(against)
    return sheet.legend(labelled)


def _looked(problem: Problem, by_name: dict[str, Style]) -> Iterator[tuple[Setting, Style]]:
    """Yield each setting of the headline with its look, unless they are too many to tell."""
    if len(problem.headline) > MOST_COMPARED:
        return
    seen: dict[str, int] = {}
    for setting in problem.headline:
        index = seen.setdefault(setting.optimizer, 0)
        seen[setting.optimizer] += 1
        yield setting, by_name[setting.optimizer].variant(index)


def _curve(setting: Setting, split: str, metric: str, against: str) -> Curve | None:
    """Return how a metric went in the finished runs; what is not finite is left out."""
    course = setting.course(split, metric)
    if not course:
        return None
    if len(course) > POINTS:
        course = [course[round(i * (len(course) - 1) / (POINTS - 1))] for i in range(POINTS)]
    columns = []
    for rows in course:
        values = [figures_on(row, split)[metric] for row in rows]
        values = values if all(map(math.isfinite, values)) else [math.nan]
        x = sum(_abscissa(row, against) for row in rows) / len(rows)
        columns.append((x, min(values), sum(values) / len(values), max(values)))
    x, low, middle, high = np.array(columns).T
    return x, low, middle, high


def _abscissa(row: Row, against: str) -> float:
    return float(row["step"]) if against == "steps" else training_seconds(row)


def _rates(problem: Problem, by_name: dict[str, Style]) -> Figure | None:
    """Draw the metric against the learning rate, for optimizers that had several."""
    series: dict[tuple[str, str], dict[float, Setting]] = {}
    rateless = {setting.key: _without_rate(setting) for setting in problem.settings}
    for setting in problem.settings:
        if setting.rate:
            rest = ", ".join(settings_label(rateless[setting.key], rateless)[1:])
            series.setdefault((setting.optimizer, rest), {})[setting.rate] = setting
    several = {name: found for name, found in series.items() if len(found) > 1}
    if not several:
        return None
    sheet = Sheet(1, 7.0, 3.4, [rest for _, rest in several])
    (panel,) = sheet.panels
    scale, _ = problem.units[problem.metric]
    labelled: dict[str, Any] = {}
    count: dict[str, int] = {}
    for (optimizer, rest), found in several.items():
        style = by_name[optimizer].variant(count.setdefault(optimizer, 0))
        count[optimizer] += 1
        samples = {r: found[r].sample(problem.judged_on, problem.metric) for r in sorted(found)}
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
        lost = [rate for rate in found if any(run.lost for run in found[rate].runs)]
        (crosses,) = panel.plot(
            lost,
            [0.02 if problem.larger_is_better else 0.98] * len(lost),
            "x",
            color=style.color,
            transform=panel.get_xaxis_transform(),
        )
        mark(optimizer, line, shade, crosses)
        labelled[rest] = line
    logarithmic(panel, "x")
    panel.set_xlabel("learning rate")
    panel.set_ylabel(f"{problem.judged_on} {problem.metric}")
    if scale == 100.0:
        in_per_cent(panel)
    return sheet.legend(labelled)


def _without_rate(setting: Setting) -> Table:
    options = {key: value for key, value in setting.table["optimizer"].items() if key != "lr"}
    return {**setting.table, "optimizer": options}


def _profile(targets: Sequence[Target], by_name: dict[str, Style]) -> Figure | None:
    ratios = profiles(targets)
    finite = [ratio for found in ratios.values() for ratio in found if math.isfinite(ratio)]
    if len(ratios) < 2 or not finite:
        return None
    sheet = Sheet(1, 7.0, 3.2, list(ratios))
    (panel,) = sheet.panels
    end = max(2.0, 1.1 * max(finite))
    labelled = {}
    for name, found in ratios.items():
        reached = [ratio for ratio in found if math.isfinite(ratio)]
        shares = [(i + 1) / len(found) for i in range(len(reached))]
        style = by_name[name]
        (labelled[name],) = panel.step(
            [1.0, *reached, end],
            [0.0, *shares, len(reached) / len(found)],
            where="post",
            linewidth=1.6,
            **style.line,
        )
        mark(name, labelled[name])
    panel.set(xlabel="times the steps of the fastest", ylim=(-0.02, 1.04))
    if end > 20.0:
        logarithmic(panel, "x")
    panel.set_ylabel("share of instances")
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return sheet.legend(labelled)
