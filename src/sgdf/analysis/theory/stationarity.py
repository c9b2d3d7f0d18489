"""``sgdf theory stationarity``: how small gradients get, beside a bound that holds for every β₁."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, drawing, set_title
from ...present.table import OVERALL, Cell, Table, number_cell
from ...theory import SYMMETRIC, noisy_logarithm, noisy_quadratic, stationarity
from ...theory.convergence.stationarity import StationarityCurve
from .methods import Method, methods
from .powers_of_t import draw_power, slope, use_log_axes
from .study import Study

FIRST_DRAWN = 30
"""The first T in the picture: before it, the start decides."""
RATE = 0.5
"""α in α/√t and α/√T."""
SKEWED_QUADRATIC, SYMMETRIC_QUADRATIC, LOGARITHM = (
    "quadratic, skewed noise",
    "quadratic, symmetric noise",
    "logarithm, skewed noise",
)
FUNCTIONS = {
    SKEWED_QUADRATIC: noisy_quadratic(),
    SYMMETRIC_QUADRATIC: noisy_quadratic(SYMMETRIC),
    LOGARITHM: noisy_logarithm(),
}
STEP_BOUND, HORIZON_BOUND, GUIDE = "bound for γₜ, α/√t", "bound for γₜ, α/√T", "∝ 1/√T"

Curves = Mapping[str, StationarityCurve]


def study_stationarity(
    steps: int, copies: int, gamma: float, betas: tuple[float, float], seed: int
) -> Study:
    """Measure the squared gradients of four methods on three functions.

    Args:
        steps: the largest horizon.
        copies: how many runs each number is a mean of.
        gamma: the power of the gain, constant and at step 1.
        betas: decay rates of the filter.
        seed: the seed of the noise.
    """
    tried = methods(gamma)
    # Rates of a horizon need runs of their own for each T: two in a decade are enough.
    few = np.unique(np.geomspace(FIRST_DRAWN, steps, 6).round().astype(int)).tolist()
    by_step, by_horizon = (
        {
            title: {
                one.name: stationarity(
                    function,
                    one.descent(RATE, betas, schedule),
                    steps=horizons,
                    copies=copies,
                    seed=seed,
                )
                for one in tried
            }
            for title, function in functions.items()
        }
        for schedule, horizons, functions in (
            ("step", steps, FUNCTIONS),
            ("horizon", few, {SKEWED_QUADRATIC: FUNCTIONS[SKEWED_QUADRATIC]}),
        )
    )
    return Study(
        name="stationarity",
        findings=_findings(by_step[SKEWED_QUADRATIC], by_horizon[SKEWED_QUADRATIC], tried, steps),
        tables=(
            *(
                _table(f"stationarity-{number}", title, "α/√t", curves, steps, copies)
                for number, (title, curves) in enumerate(by_step.items(), start=1)
            ),
            *(
                _table("stationarity-horizon", title, "α/√T", curves, steps, copies)
                for title, curves in by_horizon.items()
            ),
        ),
        figure=_figure(by_step, by_horizon[SKEWED_QUADRATIC], tried),
        numbers={
            "settings": {
                "steps": steps,
                "copies": copies,
                "gamma": gamma,
                "betas": betas,
                "seed": seed,
                "lr": RATE,
            },
            "rates α/√t": _numbers(by_step),
            "rates α/√T": _numbers(by_horizon),
        },
    )


def _numbers(found: Mapping[str, Curves]) -> dict[str, Any]:
    return {
        title: {name: curve._asdict() for name, curve in curves.items()}
        for title, curves in found.items()
    }


def _findings(
    by_step: Curves, by_horizon: Curves, tried: tuple[Method, ...], steps: int
) -> tuple[str, ...]:
    names = [one.name for one in tried]
    sgd, _, constant, fading = (by_step[name] for name in names)
    return (
        f"With skewed noise, at T = {steps:,}, {names[2]} has a mean gradient of "
        f"{constant.point[-1]:.2f} and E‖∇f‖² = {_with_error(constant)}: it rests where the mean "
        f"of its estimate is 0, not that of the gradient. {names[3]} has {fading.point[-1]:.2f} "
        f"and {_with_error(fading)}; SGD has {sgd.point[-1]:.2f} and {_with_error(sgd)}.",
        "With γₜ = γ/√t the mean of E‖∇f‖² is at most O(log T/√T) + dε for every β₁ and rates "
        "α/√t, and O(1/√T) + dε for rates α/√T. At this T the bound is "
        f"{fading.bound[-1]:.0f} and {by_horizon[names[3]].bound[-1]:.0f}, and what was measured "
        f"{fading.mean[-1]:.2f} and {by_horizon[names[3]].mean[-1]:.2f}.",
    )


def _with_error(curve: StationarityCurve) -> str:
    return f"{curve.last[-1]:.3f} ± {curve.error[-1]:.3f}"


def _table(name: str, title: str, rates: str, curves: Curves, steps: int, copies: int) -> Table:
    rows = []
    for method, curve in curves.items():
        last, error = float(curve.last[-1]), float(curve.error[-1])
        growth = slope(curve.steps, curve.smallest)
        rows.append(
            (
                Cell(method),
                number_cell(float(curve.smallest[-1]), 3),
                Cell(f"{growth:+.2f}", growth),
                number_cell(float(curve.mean[-1]), 3),
                number_cell(float(curve.bound[-1]), 3),
                Cell(f"{last:.4f} ± {error:.4f}", last, {"": last, "error": error}),
                Cell(f"{curve.point[-1]:+.2f}", float(curve.point[-1])),
            )
        )
    return Table(
        name,
        OVERALL,
        f"{title.capitalize()}, rates {rates}, α = {RATE:g}: E‖∇f‖² up to T = {steps:,}",
        f"Means over {copies} runs; ± is one standard error. The slope is that of the smallest "
        "over T in the last decade, both as logarithms. The mean is weighted by the rates; the "
        "bound is of that mean.",
        ("method", "smallest", "slope", "mean", "bound", "at T", "θ_T"),
        tuple(rows),
        caption="Smallest: of many means, so it is biased low. Slope: the power of T that it falls "
        "by. The bound is of the mean.",
    )


def _figure(found: Mapping[str, Curves], at_horizon: Curves, tried: tuple[Method, ...]) -> Drawing:
    lines = {one.name: one.line for one in tried}
    guides = {
        STEP_BOUND: {"color": "black", "linestyle": "--"},
        HORIZON_BOUND: {"color": "black", "linestyle": ":"},
    }
    fading = tried[-1].name
    with drawing("stationarity"):
        sheet = Sheet(4, 4.2, 3.1, [*lines, *guides, GUIDE], columns=2)
        handles: dict[str, Any] = {}

        def draw(panel: Axes, name: str, curve: StationarityCurve, values: Any) -> None:
            late = curve.steps >= FIRST_DRAWN
            (handles[name],) = panel.plot(curve.steps[late], values[late], **(lines | guides)[name])

        for panel, (title, curves) in zip(sheet.panels, found.items(), strict=False):
            for name, curve in curves.items():
                draw(panel, name, curve, curve.smallest)
            handles[GUIDE] = draw_power(panel, curve.steps[curve.steps >= FIRST_DRAWN], -0.5)
            set_title(panel, title[0].upper() + title[1:])
            panel.set(xlabel="T", ylabel=f"min E‖∇f(θₜ)‖², t ≤ T,   αₜ = {RATE:g}/√t")
        last, by_step = sheet.panels[-1], found[SKEWED_QUADRATIC][fading]
        draw(last, STEP_BOUND, by_step, by_step.bound)
        draw(last, HORIZON_BOUND, at_horizon[fading], at_horizon[fading].bound)
        draw(last, fading, by_step, by_step.mean)
        constant = tried[-2].name
        draw(last, constant, by_step, found[SKEWED_QUADRATIC][constant].mean)
        set_title(last, "Bounds, quadratic, skewed")
        last.set(xlabel="T", ylabel="Σ αₜ E‖∇f(θₜ)‖² / Σ αₜ")
        for panel in sheet.panels:
            use_log_axes(panel)
        return sheet.legend({name: handles[name] for name in (*lines, *guides, GUIDE)})
