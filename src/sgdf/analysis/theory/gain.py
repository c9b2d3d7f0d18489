"""``sgdf theory gain``: the law of the gain, and what the filter responds to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, drawing, legend_within, use_log_axis
from ...present.styles import HUES
from ...present.table import Cell, Table, number_cell
from ...theory import (
    drift_response,
    expected_running_variance,
    gain_law,
    influence,
    influence_bound,
    noise_change_response,
    noise_response,
    running_mean_moments,
    steady_gain,
    steady_kalman,
)
from ...theory.filter_response import DriftResponse, NoiseChangeResponse, NoiseResponse
from .settling import check_settling
from .study import Study, name_powered_gain

NAME = "gain"
DRIFTS = (0.0, 1e-4, 1e-3, 0.01, 0.05, 0.1, 1.0, 10.0)
NO_DRIFT = "0.00003"
"""Where the picture has the point without drift."""
FACTORS = (0.1, 10.0)
"""What the standard deviation of the noise is multiplied by."""
NOISES = {
    "two-point": "two-point",
    "uniform": "uniform",
    "normal": "normal",
    "laplace": "Laplace",
    "student-3": "Student, 3 degrees",
    "exponential": "exponential",
    "rare": "rare: 3 in 1 of 10, else −1/3",
}
MEANS = (0.0, 1.0, 5.0)
"""Means of the gradient, in standard deviations."""
ORANGE, BLUE, GREEN, PINK, YELLOW, SKY = HUES[:6]


class Measured(NamedTuple):
    """All that is simulated, by drift, factor and law of the noise."""

    betas: tuple[float, float]
    gamma: float
    drift: DriftResponse
    changes: dict[float, NoiseChangeResponse]
    noises: dict[str, NoiseResponse]


def study_gain(
    betas: tuple[float, float] = (0.9, 0.999), gamma: float = 0.5, seed: int = 0
) -> Study:
    """Return the law of the gain beside simulations of the library's filter.

    Args:
        betas: of the filter.
        gamma: of the filter.
        seed: of all simulations.

    Raises:
        ValueError: if the simulations are too short for the filter to settle.
    """
    check_settling(betas)
    options: dict[str, Any] = {"betas": betas, "gamma": gamma, "seed": seed}
    measured = Measured(
        betas,
        gamma,
        drift_response(DRIFTS, **options),
        {factor: noise_change_response(factor, **options) for factor in FACTORS},
        {name: noise_response(name, **options) for name in NOISES},
    )
    law = gain_law(betas[0])
    with drawing(NAME):
        figure = _figure(measured)
    return Study(
        name=NAME,
        findings=_findings(measured),
        tables=(_laws(measured), _on_drift(measured), _after_change(measured), _on_noise(measured)),
        figure=figure,
        numbers={
            "betas": betas,
            "gamma": gamma,
            "seed": seed,
            "law": {**law._asdict(), "mean_power": law.mean_power(gamma)},
            "steady_gain": steady_gain(betas=betas, gamma=gamma)._asdict(),
            "drift": {"drift": DRIFTS, **measured.drift._asdict()},
            "noise_change": {str(f): one._asdict() for f, one in measured.changes.items()},
            "noise": {name: one._asdict() for name, one in measured.noises.items()},
        },
    )


def _findings(measured: Measured) -> tuple[str, ...]:
    (beta1, beta2), gamma = measured.betas, measured.gamma
    law, drift = gain_law(beta1), measured.drift
    fallen, risen = (
        gain_law(beta1, variance_ratio=factor**-2.0).mean_power(gamma) for factor in FACTORS
    )
    skewed = measured.noises["rare"]
    return (
        f"On steady normal noise the mean gain is {law.mean:.4f} by the law c/(c + z²), and "
        f"{measured.noises['normal'].gain:.4f} in the filter. The derivation has c/(1 + c) = "
        f"{law.derived:.4f}: one squared residual stands where it has a variance.",
        f"Drift does not move it: from no drift to ten times the noise it stays within "
        f"{drift.gain.min():.4f} and {drift.gain.max():.4f}.",
        f"A change of the noise does, until s forgets it within some {1 / (1 - beta2):,.0f} steps: "
        f"the mean of {name_powered_gain(gamma)} is {law.mean_power(gamma):.2f} on steady noise, "
        f"{fallen:.2f} after the noise fell to a tenth, {risen:.2f} after it rose to ten times.",
        f"Skewed noise of mean 0 makes an estimate of mean {skewed.bias:.3f} ± "
        f"{skewed.bias_error:.3f} standard deviations (3 in one of ten steps, else −1/3).",
    )


def _laws(measured: Measured) -> Table:
    (beta1, _), gamma = measured.betas, measured.gamma
    rows = []
    for beta in sorted({0.5, 0.8, 0.9, 0.95, 0.99, beta1}):
        law = gain_law(beta)
        low, median, high = law.quantile([0.05, 0.5, 0.95])
        powers = () if gamma in (0.5, 1.0) else (law.mean_power(gamma),)
        values = (law.derived, law.mean, law.mean_root, *powers, low, median, high)
        rows.append((number_cell(beta), *(number_cell(value) for value in values)))
    powered = () if gamma in (0.5, 1.0) else (f"E {name_powered_gain(gamma)}",)
    return Table(
        "law",
        "",
        "The gain on steady normal noise, K = c/(c + z²)",
        "",
        ("β₁", "derived", "E K", "E √K", *powered, "5 %", "median", "95 %"),
        tuple(rows),
        caption="c = (1−β₁)/(1+β₁), derived = c/(1 + c); quantiles of K.",
    )


def _on_drift(measured: Measured) -> Table:
    found = measured.drift
    best = steady_kalman(process_noise=DRIFTS, observation_noise=1.0)
    rows = []
    for i, drift in enumerate(DRIFTS):
        rows.append(
            (
                number_cell(drift),
                Cell(f"{found.gain[i]:.4f} ± {found.gain_error[i]:.4f}", float(found.gain[i])),
                number_cell(float(found.powered_gain[i]), 3),
                number_cell(float(best.gain[i]), 3),
                number_cell(float(found.mean_error[i]), 3),
                number_cell(float(found.estimate_error[i]), 3),
                number_cell(float(best.signal_variance[i]), 3),
            )
        )
    return Table(
        "drift",
        "",
        "A gradient whose mean is a random walk, in noise of variance 1",
        "",
        (
            "drift q",
            "E K",
            f"E {name_powered_gain(measured.gamma)}",
            "Kalman gain",
            "error of m̂",
            "error of ĝ",
            "Kalman error",
        ),
        tuple(rows),
        caption="Mean squared errors; the gradient's own is 1. The Kalman filter is the best one.",
    )


def _after_change(measured: Measured) -> Table:
    steps = (0, 1, 10, 30, 100, 300, 1000, 3000, 5000)
    rows = []
    for step in steps:
        cells = [Cell(f"{step:,}", step)]
        for found in measured.changes.values():
            predicted = found.predicted[step]
            near = slice(step, step + 1) if step < 10 else slice(round(0.9 * step), step + 1)
            cells.append(number_cell(float(found.powered_gain[near].mean()), 3))
            cells.append(number_cell(None if np.isnan(predicted) else float(predicted), 3))
        rows.append(tuple(cells))
    return Table(
        "noise-change",
        "",
        f"The mean of {name_powered_gain(measured.gamma)} after a change of the noise",
        "",
        ("steps after", "to a tenth", "by the law", "to ten times", "by the law"),
        tuple(rows),
        caption="Measured over the last tenth of the steps; 0 is before the change. By the law: "
        "with s/Var(r) = 1 + (f⁻² − 1)w, where w is the weight of the old noise in s.",
    )


def _on_noise(measured: Measured) -> Table:
    rows = []
    for name, shown in NOISES.items():
        found = measured.noises[name]
        rows.append(
            (
                Cell(shown),
                number_cell(found.gain, 3),
                number_cell(found.root_gain, 3),
                Cell(f"{found.bias:+.4f} ± {found.bias_error:.4f}", found.bias),
                number_cell(found.mean_error, 3),
                number_cell(found.estimate_error, 3),
            )
        )
    return Table(
        "noise",
        "",
        "Noise of mean 0 and variance 1, of several laws",
        "",
        ("law", "E K", "E √K", "mean of ĝ", "error of m̂", "error of ĝ"),
        tuple(rows),
        caption="The mean of ĝ is its bias, with its standard error.",
    )


def _figure(measured: Measured) -> Drawing:
    sheet = Sheet(6, 4.1, 3.1, [], columns=3)
    for panel, draw in zip(
        sheet.panels,
        (_draw_law, _draw_influence, _draw_drift, _draw_change, _draw_noise, _draw_correction),
        strict=True,
    ):
        draw(panel, measured)
    return sheet.figure


def _draw_law(panel: Axes, measured: Measured) -> None:
    betas = np.linspace(0.01, 0.995, 120)
    laws = [gain_law(float(beta)) for beta in betas]
    panel.plot(betas, [law.mean_root for law in laws], color=ORANGE, label="E √K")
    panel.plot(betas, [law.mean for law in laws], color=BLUE, label="E K")
    panel.plot(
        betas, [law.derived for law in laws], color="0.4", ls="--", label="derived: (1−β₁)/2"
    )
    normal, beta1 = measured.noises["normal"], measured.betas[0]
    for value, color in ((normal.root_gain, ORANGE), (normal.gain, BLUE)):
        panel.plot(beta1, value, "o", color=color, mec="white", ms=7)
    panel.plot([], [], "o", color="0.4", label="the filter, simulated")
    panel.set(xlabel="β₁", ylabel="mean of K = c/(c + z²), and of √K", ylim=(0, 1))
    panel.set_title("The gain on steady noise")
    legend_within(panel, "upper right")


def _draw_influence(panel: Axes, measured: Measured) -> None:
    residuals = np.linspace(-6.0, 6.0, 481)
    shown = {0.25: SKY, 0.5: ORANGE, 1.0: BLUE}
    if measured.gamma not in shown:
        shown[measured.gamma] = GREEN
    for gamma, color in shown.items():
        values = influence(residuals, 1.0, gamma=gamma)
        panel.plot(residuals, values, color=color, label=f"γ = {gamma:g}")
        bound = float(influence_bound(1.0, gamma=gamma))
        if np.isfinite(bound):
            for side in (-bound, bound):
                panel.axhline(side, color=color, lw=0.8, ls=":")
    panel.plot(residuals, residuals, color="0.4", lw=0.8, ls="--", label="γ = 0: the gradient")
    panel.set(
        xlabel="r/√ŝ, the residual", ylabel="(ĝ − m̂)/√ŝ = K^γ r/√ŝ", ylim=(-2.9, 2), xlim=(-6, 6)
    )
    panel.set_title("What a residual adds to m̂ (dotted: the bounds)")
    legend_within(panel, "lower right")


def _draw_drift(panel: Axes, measured: Measured) -> None:
    drifts = np.geomspace(float(NO_DRIFT), 20.0, 60)  # a logarithmic axis has no 0
    best = steady_kalman(process_noise=drifts, observation_noise=1.0)
    panel.plot(drifts, best.gain, color=GREEN, label="Kalman: the best gain")
    steady = steady_gain(betas=measured.betas)
    panel.axhline(steady.mean, color=BLUE, label="E K by the law")
    found = measured.drift
    panel.errorbar(
        np.maximum(DRIFTS, drifts[0]),
        found.gain,
        yerr=4.0 * found.gain_error,
        fmt="o",
        color=BLUE,
        mec="white",
        ms=6,
        label="E K, simulated (4 standard errors)",
    )
    use_log_axis(panel, "x")
    panel.set_xticks([drifts[0], 1e-3, 0.1, 10.0], [NO_DRIFT, "0.001", "0.1", "10"])
    panel.set(
        xlabel="q, variance of the drift (first point: q = 0)",
        ylabel="gain",
        ylim=(0, 1),
    )
    panel.set_title("The gain does not see drift")
    legend_within(panel, "upper left")


def _draw_change(panel: Axes, measured: Measured) -> None:
    words = ("noise falls to a tenth", "noise rises to ten times")
    for found, color, name in zip(measured.changes.values(), (ORANGE, BLUE), words, strict=True):
        panel.plot(found.steps, found.powered_gain, color=color, alpha=0.35, lw=0.6)
        panel.plot(found.steps, found.predicted, color=color, lw=1.8, label=name)
    level = gain_law(measured.betas[0]).mean_power(measured.gamma)
    panel.axhline(level, color="0.4", lw=0.8, ls="--", label="steady noise")
    panel.set(
        xlabel="steps after the change",
        ylabel=f"E {name_powered_gain(measured.gamma)}",
        ylim=(0, 1),
    )
    panel.set_title("After a change of the noise (bold: by the law)")
    legend_within(panel, "upper right")


def _draw_noise(panel: Axes, measured: Measured) -> None:
    names = list(NOISES)
    biases = [measured.noises[name].bias for name in names]
    errors = [4.0 * measured.noises[name].bias_error for name in names]
    places = np.arange(len(names))[::-1]
    colors = [
        PINK if abs(bias) > error else "0.65" for bias, error in zip(biases, errors, strict=True)
    ]
    panel.barh(places, biases, xerr=errors, color=colors, ecolor="0.3", height=0.6)
    panel.set_yticks(places, [NOISES[name].partition(":")[0].partition(",")[0] for name in names])
    panel.tick_params(axis="y", labelsize=8)
    panel.locator_params(axis="x", nbins=5)
    panel.axvline(0.0, color="0.3", lw=0.8)
    panel.grid(visible=False, axis="y")
    panel.set(xlabel="E ĝ, in standard deviations of the noise (E g = 0)")
    panel.set_title("Skewed noise biases the estimate")


def _draw_correction(panel: Axes, measured: Measured) -> None:
    steps = np.unique(np.geomspace(2, 10_000, 200).astype(int))
    moments = running_mean_moments(measured.betas[0], steps)
    for mean, color in zip(MEANS, (BLUE, GREEN, ORANGE), strict=True):
        running = expected_running_variance(measured.betas, steps, mean=mean)
        estimated = moments.variance * running / (1.0 - measured.betas[1] ** steps)
        panel.plot(
            steps, estimated / moments.corrected_variance, color=color, label=f"mean {mean:g} σ"
        )
    panel.axhline(1.0, color="0.4", lw=0.8, ls="--")
    use_log_axis(panel, "x")
    panel.set(xlabel="t, steps", ylabel="E ŝ / Var m̂")
    panel.set_title("The variance that the filter takes m̂ to have")
    legend_within(panel, "upper right")
