"""The plots of a report: training curves, learning rates, and the performance profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import PercentFormatter

from ...present.plots import (
    Drawing,
    Plot,
    Sheet,
    drawing,
    mark,
    reveal,
    show_per_cent,
    use_log_axis,
)
from ...present.styles import Style
from ...present.words import quantity
from ..store.records import Row, figures_on
from ..tasks.metric import direction_in_words
from .curve import Curve, curve_over_runs, draw_curve, thin
from .findings import Findings, Problem, Setting
from .optimizer_styles import optimizer_styles
from .probe_curves import probe_curves
from .rate_plot import ABOUT, RANGES, overall_rate_plot, rate_plot
from .rate_windows import GridWindows
from .samples import sample_pictures
from .seed_plot import seed_plot
from .styled_settings import styled_settings
from .tables import overall_section
from .targets import Target, profiles, training_seconds


def plots(
    findings: Findings, targets: Sequence[Target], windows: Sequence[GridWindows]
) -> list[Plot]:
    """Return every plot that the runs can fill."""
    by_name = optimizer_styles(findings.optimizers)
    drawn: list[tuple[str, str, str, str, Drawing | None]] = []
    with drawing("plots"):
        for index, problem in enumerate(findings.problems):
            name, seeds = problem.name, seed_plot(problem, by_name)
            steps = time = None
            if not problem.returned_once:
                steps = _training_curves(problem, by_name, "steps", all_metrics=True)
            if not problem.by_function:
                time = _training_curves(problem, by_name, "seconds of training", all_metrics=False)
            judged = f"{problem.metric} ({problem.direction})"
            drawn += [
                (f"results-{index}", name, "Every seed", _SEEDS.format(judged), seeds),
                (f"curves-steps-{index}", name, "Curves against steps", _CURVES, steps),
                (f"curves-seconds-{index}", name, "Curves against time", _CURVES, time),
                (f"rates-{index}", name, _RATES, *rate_plot(problem, by_name)),
                (f"probes-{index}", name, "Probes", *probe_curves(problem, by_name)),
                (f"samples-{index}", name, "Samples", *sample_pictures(problem, by_name)),
            ]
        profile = _profile(targets, by_name)
        section, ranges = overall_section(findings), overall_rate_plot(windows, by_name)
        drawn += [
            ("profile", section, "How often each is nearly the fastest", _PROFILE, profile),
            ("windows", section, "Ranges of good learning rates", _WINDOWS, ranges),
        ]
    return [
        Plot(name, section, title, about, figure)
        for name, section, title, about, figure in drawn
        if figure is not None
    ]


_RATES = "The effect of the learning rate"
_SEEDS = (
    "The test {} of each finished run is a dot. A bar marks the mean, a line its 95 % confidence "
    "interval. The rows are in the order of the table of results. At the edge, two chevrons stand "
    "for seeds beyond it, where the mean may be, too, and one for an interval that ends beyond it."
)
_CURVES = "Means over the finished runs; bands reach from the lowest run to the highest."
_WINDOWS = ABOUT.format("metric") + RANGES
_PROFILE = (
    "For each factor, the share of instances (a problem with a seed) on which the optimizer "
    "reached the target within this factor times the steps of the fastest."
)


def _training_curves(
    problem: Problem, by_name: dict[str, Style], against: str, all_metrics: bool
) -> Drawing | None:
    """Draw the metrics during training, a panel for each split that has them.

    Args:
        problem: the problem whose best settings are drawn.
        by_name: the style of each optimizer.
        against: the quantity on the x axis.
        all_metrics: draw the loss beside the metric on the splits that have both.
    """
    styled = list(styled_settings(problem, by_name))
    panels: dict[tuple[str, str], list[tuple[Setting, Style, Curve]]] = {}
    for split in problem.splits:
        for metric in dict.fromkeys((problem.metric, "loss")):
            curves = [
                (setting, style, curve)
                for setting, style in styled
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
        scale, unit = problem.units[metric]
        for setting, style, curve in panels[metric, split]:
            texts = [
                f"{_position_in_words(at, against)}: {quantity(scale * value, unit)}"
                for at, value in zip(curve.x, curve.middle, strict=True)
            ]
            line = draw_curve(sheet, panel, setting, style, curve, texts, scale)
            labelled.setdefault(setting.name, line)
        if unit == "%":
            show_per_cent(panel)
        largest = problem.larger_is_better if metric == problem.metric else False
        reveal(panel, largest)
        panel.set_title(f"training {metric}" if split == "train" else f"{split} {metric}")
        panel.set_xlabel(against)
        panel.set_ylabel(direction_in_words(largest))
    return sheet.legend(labelled)


def _curve(setting: Setting, split: str, metric: str, against: str) -> Curve | None:
    """Return the curve of a metric over the finished runs, with gaps where it is not finite."""
    epochs = setting.rows_by_epoch(split, metric)
    if not epochs:
        return None
    return curve_over_runs(
        (
            sum(_position(row, against) for row in rows) / len(rows),
            [figures_on(row, split)[metric] for row in rows],
        )
        for rows in thin(epochs)
    )


def _position(row: Row, against: str) -> float:
    """Return where a row lies on the x axis."""
    return float(row["step"]) if against == "steps" else training_seconds(row)


def _position_in_words(at: float, against: str) -> str:
    return f"step {at:,.0f}" if against == "steps" else f"{at:.3g} s"


def _profile(targets: Sequence[Target], by_name: dict[str, Style]) -> Drawing | None:
    ratios = profiles(targets)
    finite = [ratio for values in ratios.values() for ratio in values if math.isfinite(ratio)]
    if len(ratios) < 2 or not finite:
        return None
    sheet = Sheet(1, 7.0, 3.2, list(ratios))
    (panel,) = sheet.panels
    end = max(2.0, 1.1 * max(finite))
    labelled = {}
    for name, values in ratios.items():
        reached = [ratio for ratio in values if math.isfinite(ratio)]
        last = len(reached) / len(values)
        factors = [1.0, *reached, end]
        shares = [*(i / len(values) for i in range(len(reached) + 1)), last]
        (line,) = panel.step(factors, shares, where="post", linewidth=1.6, **by_name[name].line)
        mark(name, line)
        texts = [f"within {f:.3g} ×: {s:.0%}" for f, s in zip(factors, shares, strict=True)]
        sheet.figure.explain(line, name, texts)
        labelled[name] = line
    panel.set(xlabel="times the steps of the fastest", ylim=(-0.02, 1.04))
    if end > 20.0:
        use_log_axis(panel, "x")
    panel.set_ylabel("share of instances")
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return sheet.legend(labelled)
