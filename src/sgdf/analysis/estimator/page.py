"""The tables and figures about the filters' estimates."""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...bench.report.optimizer_styles import optimizer_styles
from ...bench.report.pairs import SIGNIFICANT
from ...bench.report.sample_cells import mean_cell
from ...bench.report.statistics import FEWEST_SEEDS, Sample, holm, p_value
from ...present.plots import Drawing, Plot, Sheet, drawing, set_title, use_log_axis
from ...present.table import NOTHING, Cell, Table, number_cell
from ...present.words import listed, plural
from ..conduct import Contents, Measured
from ..settings import MeasuredSetting, by_setting
from .compared_filters import comparable_filters, filters_of
from .filters import FixedGain, Momentum, RawGradient, RunningMean, SGDFEstimate
from .gain import gain_curve
from .half_batch_kalman import HalfBatchKalman
from .relative_errors import measured_steps, relative_curve, relative_errors, tensors
from .shadow_filter import ShadowFilter
from .signals import SIGNALS, measure_signal

ERRORS, GAIN, SYNTHETIC = "Errors along the training", "Gain", "Synthetic signals"
OWN_STYLES: dict[str, dict[str, Any]] = {
    HalfBatchKalman.name: {"color": "black", "linestyle": ":"},
    "": {"color": "gray", "linestyle": "--"},
}
"""Of filters without the colour of an optimizer, by name; that of any other one is the last."""
LARGEST_ERROR = 0.3
"""A gain with a larger standard error says nothing, and its bar would hide the others."""
CLASSES = ((0.0, 1.0), (1.0, 10**0.5), (10**0.5, 10.0), (10.0, 1e9))
"""Sizes of the residual, in standard errors of the mean, that the table of gains tells apart."""


def contents(
    measured: Sequence[Measured], beta1: Sequence[float], method: Sequence[str]
) -> Contents:
    """Return what the page shows.

    Args:
        measured: the runs with their records.
        beta1: the decay rates of the filters; those of the first are shown in detail.
        method: sentences that say what was measured.
    """
    settings = by_setting([one for one in measured if one.record.values])
    if not settings:
        return Contents(["No run has a step that was measured; choose a smaller --every."], [], [])
    beta = beta1[0]
    tables = [
        *(_errors_table(one, settings) for one in beta1),
        _parts_table(beta, settings),
        _tensor_table(beta, settings),
        _gain_table(settings),
        _signal_table(beta),
    ]
    plots = [
        Plot(
            "estimator-training",
            ERRORS,
            "Mean squared error over the training, relative to that of the raw gradient",
            f"β is {beta:g}. Below 1 the estimate is closer to the full-batch gradient than the "
            "gradient of one mini-batch is. The median over seeds. CM times 1 − β is left out: "
            "after a few steps it is EMA.",
            _training_figure(beta, settings),
        ),
        Plot(
            "estimator-gain",
            GAIN,
            "The gain with the smallest error, and SGDF's",
            "Over the size of the residual, in standard errors of the mean. The bars are one "
            f"standard error to either side; gains with one above {LARGEST_ERROR:g} are left out.",
            _gain_figure(settings),
        ),
    ]
    notes = {ERRORS: method, GAIN: _how_gain(beta), SYNTHETIC: _how_signals()}
    return Contents(_summary(beta, settings), tables, plots, notes)


def _gains(setting: MeasuredSetting) -> list[Any]:
    """Return the sums behind the gains at the steps of all seeds."""
    return [step["gain"] for one in setting.runs for step in measured_steps(one.record)]


def _with_error(value: float, error: float) -> Cell:
    if math.isnan(error):
        return Cell(f"{value:.3f} ± {NOTHING}", value, {"": value})
    return Cell(f"{value:.3f} ± {error:.3f}", value, {"": value, "error": error})


def _mse(setting: MeasuredSetting, name: str) -> Sample:
    """Return the relative mean squared error of a filter, as a sample over seeds."""
    return setting.sample(lambda one: relative_errors(measured_steps(one.record))[name].mse)


def _summary(beta: float, settings: Sequence[MeasuredSetting]) -> list[str]:
    sgdf, *others = (
        one.name
        for one in (
            SGDFEstimate((beta, 0.999)),
            RawGradient(),
            RunningMean(beta),
            FixedGain(beta),
            HalfBatchKalman(),
        )
    )
    pairs = [(name, setting) for name in others for setting in settings]
    differences = [
        Sample(tuple(map(operator.sub, _mse(one, sgdf).values, _mse(one, name).values)))
        for name, one in pairs
    ]
    tests = holm(
        [p_value(each) if len(each.values) >= FEWEST_SEEDS else None for each in differences]
    )
    closer, tested, significant = Counter[str](), Counter[str](), Counter[str]()
    for (name, _), difference, p in zip(pairs, differences, tests, strict=True):
        closer[name] += difference.mean < 0.0
        tested[name] += p is not None
        significant[name] += difference.mean < 0.0 and p is not None and p < SIGNIFICANT
    counts = [
        f"than {name} in {closer[name]}"
        + (f" (significantly in {significant[name]} of {tested[name]} tested)" * bool(tested[name]))
        for name in others
    ]
    lines = [
        f"Of {plural(len(settings), 'setting')}, the estimate of {sgdf} is closer to the "
        f"full-batch gradient {listed(counts)}."
    ]
    if all(p is None for p in tests):
        lines.append(
            f"Whether a difference is significant needs at least {FEWEST_SEEDS} seeds of a setting."
        )
    for size, words in (
        (CLASSES[0], "below one standard error"),
        (CLASSES[-1], "above ten standard errors"),
    ):
        gains = [one for setting in settings for one in gain_curve(_gains(setting), (size,))]
        if gains:
            lines.append(
                f"For residuals {words} of the mean, the best gain is "
                f"{_range([one.best for one in gains])}, and SGDF's "
                f"{_range([one.used for one in gains])}."
            )
    return lines


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _how_gain(beta: float) -> list[str]:
    return [
        f"β is {beta:g}. With the residual r = g − m̂ and the variance v of the running mean m̂, as "
        "the filter estimates it, SGDF's estimate is m̂ + r / √(1 + r²/v): a soft clamp of the "
        "gradient to the mean ± one standard error √v. The gain depends on |r|/√v alone: it falls "
        "with the residual whether that is noise or drift.",
        "The best gain is the regression of G − m̂ on r over all elements with residuals of one "
        "size, where G is the full-batch gradient. Its standard error is by the jackknife over "
        "the measured steps.",
    ]


def _how_signals() -> list[str]:
    return [
        "Mean squared errors in units of the noise's variance, or its mean if it is unequal: 400 "
        "elements, the last 500 of 1,000 steps. Kalman's column is the exact Kalman filter that "
        "knows all laws of the signal. It has the smallest possible error where they are normal; "
        "of jumps and heavy-tailed noise it is the best linear filter, marked with *.",
    ]


def _errors_table(beta: float, settings: Sequence[MeasuredSetting]) -> Table:
    names = [one.name for one in filters_of(beta) if one.name != RawGradient.name]
    return Table(
        f"estimator-errors-{beta:g}".replace(".", "-"),
        ERRORS,
        f"Mean squared error relative to that of the raw gradient, β {beta:g}",
        "Means over the measured steps, divided; then mean and standard deviation over seeds.",
        ("setting", *names),
        tuple(
            (setting.cell, *(mean_cell(_mse(setting, name)) for name in names))
            for setting in settings
        ),
    )


def _parts_table(beta: float, settings: Sequence[MeasuredSetting]) -> Table:
    rows = []
    for setting in settings:
        by_run = [relative_errors(measured_steps(one.record)) for one in setting.runs]
        for one in comparable_filters(beta):
            parts = [errors[one.name] for errors in by_run]
            means = (statistics.fmean(values) for values in zip(*parts, strict=True))
            rows.append((setting.cell, Cell(one.name), *map(number_cell, means)))
    return Table(
        "estimator-parts",
        ERRORS,
        "Squared bias and variance, relative to the mean squared error of the raw gradient",
        "Means over seeds.",
        ("setting", "filter", "squared bias", "variance", "mean squared error"),
        tuple(rows),
    )


def _tensor_table(beta: float, settings: Sequence[MeasuredSetting]) -> Table:
    shown = [one.name for one in comparable_filters(beta) if one.name != RawGradient.name]
    rows = []
    for setting in settings:
        by_run = [measured_steps(one.record) for one in setting.runs]
        for tensor in tensors(by_run[0]):
            found = [relative_errors(steps, tensor) for steps in by_run]
            means = (statistics.fmean(errors[name].mse for errors in found) for name in shown)
            rows.append((setting.cell, Cell(tensor), *map(number_cell, means)))
    return Table(
        "estimator-tensors",
        ERRORS,
        "The same for each tensor",
        "Mean squared error relative to that of the raw gradient; means over seeds.",
        ("setting", "tensor", *shown),
        tuple(rows),
    )


def _gain_table(settings: Sequence[MeasuredSetting]) -> Table:
    titles = ("below 1", "1 to 3.2", "3.2 to 10", "above 10")
    rows = []
    for setting in settings:
        cells = []
        for size in CLASSES:
            found = gain_curve(_gains(setting), (size,))
            cells += [_with_error(one.best, one.best_error) for one in found]
            cells += [number_cell(one.used, 2) for one in found] or [Cell(NOTHING)] * 2
        rows.append((setting.cell, *cells))
    return Table(
        "estimator-gain-classes",
        GAIN,
        "The best gain and SGDF's, by the size of the residual",
        "The size is |r|/√v, in standard errors of the mean. ± is one standard error, by the "
        f"jackknife over the measured steps; ± {NOTHING} where fewer than three of them have such "
        "residuals, which is too few for it.",
        ("setting", *(f"{what}, {title}" for title in titles for what in ("best", "SGDF"))),
        tuple(rows),
    )


def _signal_table(beta: float) -> Table:
    filters = comparable_filters(beta)
    rows = []
    for signal in SIGNALS:
        found = measure_signal(signal, filters)
        best = number_cell(found.best, 3)
        if not signal.is_gaussian:
            best = Cell(f"{best.text} *", best.order, best.parts)
        errors = (
            _with_error(found.errors[one.name], found.standard_errors[one.name]) for one in filters
        )
        rows.append((Cell(signal.name), best, *errors))
    return Table(
        "estimator-signals",
        SYNTHETIC,
        "Mean squared errors on signals whose laws are known",
        "± is one standard error.",
        ("signal", "Kalman", *(one.name for one in filters)),
        tuple(rows),
    )


def _style(one: ShadowFilter) -> dict[str, Any]:
    if not one.optimizer:
        return OWN_STYLES.get(one.name, OWN_STYLES[""])
    return optimizer_styles([one.optimizer])[one.optimizer].line


def _training_figure(beta: float, settings: Sequence[MeasuredSetting]) -> Drawing:
    scaled = Momentum(beta, 1.0 - beta).name  # after a few steps it is the running mean
    filters = [one for one in comparable_filters(beta) if one.name != scaled]
    with drawing("estimator-training"):
        sheet = Sheet(len(settings), 3.2, 2.4, [one.name for one in filters])
        handles: dict[str, Any] = {}
        for panel, setting in zip(sheet.panels, settings, strict=True):
            runs = [measured_steps(one.record) for one in setting.runs]
            steps = [step["step"] for step in min(runs, key=len)]
            for one in filters:
                curves = [relative_curve(run, one.name) for run in runs]
                medians = [statistics.median(values) for values in zip(*curves, strict=False)]
                (handles[one.name],) = panel.plot(steps, medians, linewidth=1.3, **_style(one))
            use_log_axis(panel, "y", numbers=3)
            set_title(panel, setting.name)
            panel.set(xlabel="step", ylabel="relative error")
        return sheet.legend(handles)


def _gain_figure(settings: Sequence[MeasuredSetting]) -> Drawing:
    names = ("smallest error", "SGDF")
    color = optimizer_styles(["sgdf"])["sgdf"].color
    with drawing("estimator-gain"):
        sheet = Sheet(len(settings), 3.2, 2.4, names)
        handles: dict[str, Any] = {}
        for panel, setting in zip(sheet.panels, settings, strict=True):
            curve = gain_curve(_gains(setting))
            known = [one for one in curve if one.best_error < LARGEST_ERROR]
            bars = panel.errorbar(
                [one.middle for one in known],
                [one.best for one in known],
                [one.best_error for one in known],
                color="black",
                linewidth=1.3,
                capsize=2,
            )
            handles[names[0]] = bars.lines[0]
            (handles[names[1]],) = panel.plot(
                [one.middle for one in curve], [one.used for one in curve], color=color
            )
            use_log_axis(panel, "x")
            set_title(panel, setting.name)
            panel.set(xlabel="|r| / √v", ylabel="gain")
        return sheet.legend(handles)
