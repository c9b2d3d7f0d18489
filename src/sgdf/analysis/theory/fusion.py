"""``sgdf theory fusion``: the fusion of running mean and gradient, as derived and as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, drawing, legend_within, use_log_axis
from ...present.styles import HUES
from ...present.table import Cell, Table, number_cell
from ...theory import (
    drift_response,
    effective_variance,
    fuse,
    jump_response,
    mmse_gain,
    running_mean_moments,
    steady_kalman,
)
from ...theory.filter_response import JumpResponse
from ...theory.fusion import Fusion
from .settling import check_settling
from .study import Study, name_powered_gain, with_minus

NAME = "fusion"
STEPS = (2, 5, 10, 100, np.inf)
JUMPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Of the gradient's mean, in standard deviations of the noise."""
FOLLOWED = 10.0
"""The jump that is followed step by step."""
RATIOS = (1.0, 3.0, 19.0, 99.0)
"""Of the gradient's variance to the running mean's."""
POWERS = (0.25, 0.5, 1.0, 2.0)
DRIFTS = (0.0, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
NO_DRIFT = "0.0003"
"""Where the picture has the point without drift."""
PRODUCT = (0.0, 1.0, 2.0, 0.49)
"""Means and variances of two densities whose product is drawn."""
ORANGE, BLUE, GREEN, PINK, YELLOW, SKY = HUES[:6]


def study_fusion(
    betas: tuple[float, float] = (0.9, 0.999), gamma: float = 0.5, seed: int = 0
) -> Study:
    """Return what fusion promises, beside what dependence, bias and power make of it.

    Args:
        betas: of the filter.
        gamma: of the filter.
        seed: of all simulations.

    Raises:
        ValueError: if the simulations are too short for the filter to settle.
    """
    check_settling(betas)
    options: dict[str, Any] = {"betas": betas, "gamma": gamma, "seed": seed}
    jumps = jump_response(JUMPS, **options)
    drift = drift_response(DRIFTS, **options)
    best = _best_gains(betas[0])
    promised, true, smallest = _fusions(betas[0], np.array(STEPS))
    with drawing(NAME):
        sheet = Sheet(6, 4.1, 3.1, [], columns=3)
        _draw_variance(sheet.panels[0], betas[0])
        _draw_product(sheet.panels[1])
        _draw_power(sheet.panels[2])
        _draw_bias(sheet.panels[3], betas[0], gamma, jumps)
        _draw_jump(sheet.panels[4], gamma, jumps)
        _draw_errors(sheet.panels[5], betas[0], gamma, drift.estimate_error)
        figure: Drawing = sheet.figure
    return Study(
        name=NAME,
        findings=_findings(betas[0], jumps, best),
        tables=(_table_of_steps(betas[0]), _table_of_jumps(jumps, best, gamma), _table_of_powers()),
        figure=figure,
        numbers={
            **options,
            "steps": STEPS,
            "promised": promised._asdict(),
            "true": true._asdict(),
            "best": smallest._asdict(),
            "jump": {"jump": JUMPS, "mmse_gain": best, **jumps._asdict()},
            "drift": {"drift": DRIFTS, **drift._asdict()},
            "effective_variance": {
                str(power): effective_variance(1.0, RATIOS, gamma=power) for power in POWERS
            },
        },
    )


def _fusions(beta1: float, steps: Any) -> tuple[Fusion, Fusion, Fusion]:
    """Return what is promised, what the derived gain truly gives, and the best fusion."""
    moments = running_mean_moments(beta1, steps)
    sources = (0.0, moments.corrected_variance, 0.0, 1.0)
    promised = fuse(*sources)
    true = fuse(*sources, covariance=moments.covariance, gain=promised.gain)
    return promised, true, fuse(*sources, covariance=moments.covariance)


def _best_gains(beta1: float) -> Any:
    """Return the gain of the smallest error in the first step after each jump."""
    moments = running_mean_moments(beta1)
    lag = beta1 * np.array(JUMPS)
    return mmse_gain(moments.corrected_variance, 1.0, bias=lag, covariance=moments.covariance)


def _findings(beta1: float, jumps: JumpResponse, best: Any) -> tuple[str, ...]:
    promised, true, smallest = _fusions(beta1, np.inf)
    alone = running_mean_moments(beta1).corrected_variance
    printed = fuse(*PRODUCT).log_normaliser + (PRODUCT[0] - PRODUCT[2]) ** 2 / (
        PRODUCT[1] + PRODUCT[3]
    )
    i = JUMPS.index(FOLLOWED)
    return (
        f"For independent sources the derived gain {promised.gain:.3g} has the variance "
        f"{promised.variance:.3g}, below both. But m̂ contains g: with their covariance it has "
        f"{true.variance:.3g}, more than the {alone:.3g} of m̂ alone. The best weight is "
        f"{smallest.gain:.3g} = −(1−β₁)/(2β₁), at every step from the second on.",
        f"In the first step after a jump of {FOLLOWED:g} deviations the best gain is "
        f"{best[i]:.2f}, the filter's {jumps.gain[0, i]:.2g}: the estimate has "
        f"{100 * jumps.estimate_share[0, i]:.1f} % of the jump, m̂ "
        f"{100 * jumps.mean_share[0, i]:.1f} %, the gradient all of it.",
        f"The product of N({PRODUCT[0]:g}, {PRODUCT[1]:g}) and N({PRODUCT[2]:g}, {PRODUCT[3]:g}) "
        f"has the area e^{fuse(*PRODUCT).log_normaliser:.3f}; with the sign as printed it would be "
        f"e^{printed:.3f}.",
    )


def _table_of_steps(beta1: float) -> Table:
    rows = []
    for step in STEPS:
        moments = running_mean_moments(beta1, step)
        promised, true, smallest = _fusions(beta1, step)
        values = (
            *(moments.corrected_variance, promised.gain, promised.variance, true.variance),
            *(smallest.gain, smallest.variance, moments.covariance),
        )
        name = "∞" if np.isinf(step) else f"{step:g}"
        rows.append((Cell(name, step), *(number_cell(float(value)) for value in values)))
    return Table(
        "steps",
        "",
        "The variance of (1−K) m̂ + K g on independent gradients of variance 1",
        "",
        (
            *("step", "Var m̂", "derived K", "promised", "true", "best K", "its variance"),
            "Cov(m̂, g)",
        ),
        tuple(rows),
        caption=f"β₁ = {beta1:g}. Promised: if m̂ and g were independent. True: m̂ contains g.",
    )


def _table_of_jumps(jumps: JumpResponse, best: Any, gamma: float) -> Table:
    rows = [
        (
            number_cell(jump),
            number_cell(float(best[i]), 3),
            number_cell(float(jumps.gain[0, i]), 3),
            number_cell(float(jumps.powered_gain[0, i]), 3),
            number_cell(float(jumps.mean_share[0, i]), 3),
            number_cell(float(jumps.estimate_share[0, i]), 3),
        )
        for i, jump in enumerate(JUMPS)
    ]
    return Table(
        "jumps",
        "",
        "The first step after a jump J of the gradient's mean",
        "",
        ("J/σ", "best gain", "E K", f"E {name_powered_gain(gamma)}", "m̂/J", "ĝ/J"),
        tuple(rows),
        caption="Best: (σ_m² + δ² − Cov)/(σ_m² + δ² + σ_g² − 2 Cov) with the lag δ = β₁J. For "
        "small J the shares of one step are mostly noise.",
    )


def _table_of_powers() -> Table:
    rows = []
    for ratio in RATIOS:
        gain = 1.0 / (1.0 + ratio)
        shares = [effective_variance(1.0, ratio, gamma=power) / ratio for power in POWERS]
        rows.append(
            (
                number_cell(ratio),
                number_cell(gain, 3),
                number_cell(gain**0.5, 3),
                *(number_cell(float(share), 3) for share in shares),
            )
        )
    return Table(
        "powers",
        "",
        "The gradient's variance that a power γ of the gain amounts to",
        "",
        ("σ_g²/σ_m²", "K", "√K", *(f"γ = {power:g}" for power in POWERS)),
        tuple(rows),
        caption="As a share of σ_g². Below 1 the gradient is trusted more than derived.",
    )


def _draw_variance(panel: Axes, beta1: float) -> None:
    promised, true, smallest = _fusions(beta1, np.inf)
    moments = running_mean_moments(beta1)
    reach = max(0.15, 2.5 * float(promised.gain), 2.5 * abs(float(smallest.gain)))
    gains = np.linspace(-reach, reach, 201)
    sources = (0.0, moments.corrected_variance, 0.0, 1.0)
    dependent = fuse(*sources, covariance=moments.covariance, gain=gains).variance
    panel.plot(
        gains,
        fuse(*sources, gain=gains).variance,
        color="0.4",
        ls="--",
        label="if m̂ and g were independent",
    )
    panel.plot(gains, dependent, color=BLUE, label="m̂ contains g")
    panel.axhline(float(moments.corrected_variance), color=GREEN, lw=1.0, label="m̂ alone")
    panel.plot(promised.gain, promised.variance, "o", color="0.4", mec="white", ms=7)
    panel.plot(promised.gain, true.variance, "o", color=BLUE, mec="white", ms=7)
    panel.plot(smallest.gain, smallest.variance, "D", color=BLUE, mec="white", ms=7)
    panel.annotate(
        f"derived K = {float(promised.gain):.3g}",
        (float(promised.gain), float(true.variance)),
        (-14, 14),
        textcoords="offset points",
        fontsize=7.5,
        ha="right",
        arrowprops={"arrowstyle": "-", "lw": 0.6},
    )
    panel.annotate(
        with_minus(f"best K = {float(smallest.gain):.3g}"),
        (float(smallest.gain), float(smallest.variance)),
        (0, -18),
        textcoords="offset points",
        fontsize=7.5,
        ha="center",
    )
    low, high = float(smallest.variance), float(dependent.max())
    panel.set(
        xlabel="K",
        ylabel="Var((1−K) m̂ + K g)/σ²",
        xlim=(-reach, reach),
        ylim=(low - 0.3 * (high - low), high),
    )
    panel.set_title("The gain of the smallest variance")
    legend_within(panel, "upper center")


def _draw_product(panel: Axes) -> None:
    mean_m, variance_m, mean_g, variance_g = PRODUCT
    found = fuse(*PRODUCT)
    x = np.linspace(-5.0, 4.5, 381)

    def density(mean: Any, variance: Any) -> Any:
        return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)

    first, second = density(mean_m, variance_m), density(mean_g, variance_g)
    panel.plot(x, first, color=BLUE, label="p_m, of m̂")
    panel.plot(x, second, color=ORANGE, label="p_g, of g")
    panel.plot(
        x, density(found.mean, found.variance), color="0.3", ls="--", label="fused, N(μ, σ²)"
    )
    area = float(np.exp(found.log_normaliser))
    panel.fill_between(x, first * second, color=GREEN, alpha=0.4, lw=0)
    panel.plot(x, first * second, color=GREEN, label=f"p_m p_g = {area:.3f} N(μ, σ²)")
    panel.set(xlabel="x", ylabel="density", ylim=(0, None))
    panel.set_title("ln Z = −½ ln 2πD − (μ_m−μ_g)²/2D")
    legend_within(panel, "upper left")


def _draw_power(panel: Axes) -> None:
    ratios = np.geomspace(0.01, 1000.0, 200)
    for power, color in zip(POWERS, (SKY, ORANGE, "0.4", PINK), strict=True):
        share = effective_variance(1.0, ratios, gamma=power) / ratios
        panel.plot(ratios, share, color=color, label=f"γ = {power:g}")
    use_log_axis(panel, "x")
    use_log_axis(panel, "y")
    panel.set(xlabel="σ_g²/σ_m²", ylabel="σ̃_g²/σ_g² = ((1 + x)^γ − 1)/x", ylim=(0.003, 80))
    panel.set_title("A power below 1 trusts the gradient more")
    legend_within(panel, "upper left")


def _draw_bias(panel: Axes, beta1: float, gamma: float, jumps: JumpResponse) -> None:
    lags = beta1 * np.geomspace(0.08, 120.0, 100)
    moments = running_mean_moments(beta1)
    best = mmse_gain(moments.corrected_variance, 1.0, bias=lags, covariance=moments.covariance)
    panel.plot(lags, best, color=GREEN, label="best: smallest squared error")
    measured = beta1 * np.array(JUMPS)
    powered = name_powered_gain(gamma)
    panel.plot(
        measured, jumps.powered_gain[0], "o-", color=ORANGE, mec="white", label=f"E {powered}"
    )
    panel.plot(measured, jumps.gain[0], "s-", color=BLUE, mec="white", label="E K of the filter")
    use_log_axis(panel, "x")
    panel.set(
        xlabel="δ/σ, new lag of m̂", ylabel="gain", ylim=(min(0.0, float(best.min())) - 0.05, 1.05)
    )
    panel.set_title("A new lag lowers the gain that should rise")
    legend_within(panel, "center right")


def _draw_jump(panel: Axes, gamma: float, jumps: JumpResponse) -> None:
    i = JUMPS.index(FOLLOWED)
    steps = np.arange(len(jumps.gain) + 1)
    panel.plot(steps, np.sign(steps), color="0.4", ls="--", label="the gradient")
    for values, color, name in (
        (jumps.estimate_share, ORANGE, f"ĝ, γ = {gamma:g}"),
        (jumps.mean_share, BLUE, "m̂"),
    ):
        panel.plot(steps, [0.0, *values[:, i]], "o-", ms=3, color=color, label=name)
    panel.set(
        xlabel="steps after the jump", ylabel=f"share of a jump J = {FOLLOWED:g} σ", xlim=(-0.5, 40)
    )
    panel.set_title("After a jump of the mean")
    legend_within(panel, "lower right")


def _draw_errors(panel: Axes, beta1: float, gamma: float, errors: Any) -> None:
    drifts = np.geomspace(float(NO_DRIFT), 4.0, 100)  # a logarithmic axis has no 0
    mean = (beta1**2 * drifts + (1.0 - beta1) ** 2) / (1.0 - beta1**2)
    best = steady_kalman(process_noise=drifts, observation_noise=1.0)
    panel.plot(drifts, mean, color=BLUE, label="m̂: (β₁²q + (1−β₁)²)/(1−β₁²)")
    panel.plot(
        np.maximum(DRIFTS, drifts[0]),
        errors,
        "o-",
        color=ORANGE,
        mec="white",
        label=f"ĝ, γ = {gamma:g}, simulated",
    )
    panel.axhline(1.0, color="0.4", ls="--", label="the gradient")
    panel.plot(drifts, best.signal_variance, color=GREEN, label="Kalman: the smallest")
    use_log_axis(panel, "x")
    use_log_axis(panel, "y")
    panel.set_xticks([drifts[0], 0.01, 0.1, 1.0], [NO_DRIFT, "0.01", "0.1", "1"])
    panel.set(
        xlabel="q, variance of the drift (first point: q = 0)",
        ylabel="mean squared error",
    )
    panel.set_title("Errors where the mean is a random walk")
    legend_within(panel, "upper left")
