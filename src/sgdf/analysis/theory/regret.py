"""``sgdf theory regret``: average regret on convex losses, beside the bounds of Theorem 3.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, drawing, set_title
from ...present.table import OVERALL, Cell, Table, number_cell
from ...theory import gain_variation_bound, linear_losses, regret, squared_losses
from ...theory.convergence.problems import UNEVEN_SLOPES
from ...theory.convergence.regret import RegretCurve
from .methods import Method, methods
from .powers_of_t import draw_power, slope, use_log_axes
from .study import Study

FIRST_DRAWN = 30
"""The first T in the picture: before it, chance decides."""
LINEAR, SQUARES = "skewed linear losses", "symmetric squares"
PROBLEMS = {LINEAR: linear_losses(), SQUARES: squared_losses()}
RATES = {LINEAR: 0.2, SQUARES: 1.0}
"""α in α/√t and α/√T, near D/(G√2), where the bound for SGD is smallest."""
PAPER, DISTANCE, LEMMA, GUIDE = (
    "Theorem 3.2 with K̃ = K^γₜ",
    "bound by the distance |ĝ − g|",
    "Lemma B.7 with its constants",
    "∝ 1/√T, √T",
)

Curves = Mapping[str, RegretCurve]


def study_regret(
    steps: int, copies: int, gamma: float, betas: tuple[float, float], seed: int
) -> Study:
    """Measure the regret of four methods on two kinds of losses.

    Args:
        steps: the largest horizon.
        copies: how many runs each number is a mean of.
        gamma: the power of the gain, constant and at step 1.
        betas: decay rates of the filter.
        seed: the seed of the draws.
    """
    tried = methods(gamma)
    by_step, by_horizon = (
        {
            title: {
                one.name: regret(
                    problem,
                    one.descent(RATES[title], betas, schedule),
                    steps=horizons,
                    copies=copies,
                    seed=seed,
                )
                for one in tried
            }
            for title, problem in PROBLEMS.items()
        }
        for schedule, horizons in (("step", steps), ("horizon", [steps]))
    )
    explicit = _variation_bound(tried[-1], betas, steps)
    return Study(
        name="regret",
        findings=_findings(by_step[LINEAR], tried, steps),
        tables=tuple(
            _table(number, title, curves, by_horizon[title], steps, copies)
            for number, (title, curves) in enumerate(by_step.items(), start=1)
        ),
        figure=_figure(by_step, tried, explicit),
        numbers={
            "settings": {
                "steps": steps, "copies": copies, "gamma": gamma, "betas": betas, "seed": seed,
                "lr": RATES,
            },
            "rates α/√t": _numbers(by_step),
            "rates α/√T": _numbers(by_horizon),
            "bound of the variation": explicit,
        },
    )  # fmt: skip


def _variation_bound(fading: Method, betas: tuple[float, float], steps: int) -> np.ndarray | None:
    """Return the bound of Lemma B.7 on the linear losses; it needs β₁, β₂ and γ above 0."""
    if not (all(betas) and fading.gamma):
        return None
    smallest = min(map(abs, UNEVEN_SLOPES.values))
    descent = fading.descent(RATES[LINEAR], betas)
    return gain_variation_bound(steps, PROBLEMS[LINEAR].gradient_bound, smallest, descent)


def _numbers(found: Mapping[str, Curves]) -> dict[str, Any]:
    return {
        title: {name: curve._asdict() for name, curve in curves.items()}
        for title, curves in found.items()
    }


def _findings(curves: Curves, tried: tuple[Method, ...], steps: int) -> tuple[str, ...]:
    sgd, _, constant, fading = (curves[one.name] for one in tried)
    names = [one.name for one in tried]
    return (
        "On the skewed linear losses the best point is −1 and the worst +1. "
        f"{names[2]} ends at {constant.point[-1]:+.2f}, with an average regret of "
        f"{constant.average[-1]:.3f}; {names[3]} at {fading.point[-1]:+.2f}, with "
        f"{fading.average[-1]:.3f}; SGD at {sgd.point[-1]:+.2f}, with {sgd.average[-1]:.3f}.",
        "The regret bound of Theorem 3.2 holds for every method, with K to the power γₜ in place "
        "of K. It says something only if the total variation of that gain grows slower than T: "
        f"here it is {constant.variation[-1] / steps:.2f}·T for {names[2]} and "
        f"{fading.variation[-1] / np.sqrt(steps):.2f}·√T for {names[3]}.",
    )


def _table(
    number: int, title: str, curves: Curves, at_horizon: Curves, steps: int, copies: int
) -> Table:
    rows = []
    for name, curve in curves.items():
        average, error = float(curve.average[-1]), float(curve.error[-1])
        rows.append(
            (
                Cell(name),
                Cell(f"{average:.4f} ± {error:.4f}", average, {"": average, "error": error}),
                Cell(f"{(growth := slope(curve.steps, curve.average)):+.2f}", growth),
                Cell(f"{curve.point[-1]:+.2f}", float(curve.point[-1])),
                number_cell(float(curve.bound[-1]), 3),
                number_cell(float(curve.distance_bound[-1]), 3),
                number_cell(float(at_horizon[name].average[-1]), 3),
                number_cell(float(curve.variation[-1]), 3),
            )
        )
    return Table(
        f"regret-{number}",
        OVERALL,
        f"{title.capitalize()}, α = {RATES[title]:g}: average regret R(T)/T at T = {steps:,}",
        f"Means over {copies} runs; ± is one standard error. The slope is that of ln R(T)/T over "
        "ln T in the last decade: −0.5 where regret grows like √T. Both bounds are of R(T)/T.",
        (
            "method",
            "R(T)/T, α/√t",
            "slope",
            "θ_T",
            "Theorem 3.2",
            "by distance",
            "R(T)/T, α/√T",
            "variation",
        ),
        tuple(rows),
        caption="Slope: −0.5 where R(T) grows like √T. Theorem 3.2 and by distance: bounds of "
        "R(T)/T. Variation: of K̃ = K^γₜ up to T.",
    )


def _figure(
    found: Mapping[str, Curves], tried: tuple[Method, ...], explicit: np.ndarray | None
) -> Drawing:
    lines = {one.name: one.line for one in tried}
    guides = {
        PAPER: {"color": "black", "linestyle": "--"},
        DISTANCE: {"color": "black", "linestyle": ":"},
        LEMMA: {"color": "gray", "linestyle": "-."},
    }
    constant, fading = (found[LINEAR][one.name] for one in tried[2:])
    late = fading.steps >= FIRST_DRAWN
    steps = fading.steps[late]
    with drawing("regret"):
        sheet = Sheet(4, 4.2, 3.1, [*lines, *guides, GUIDE], columns=2)
        first, second, third, fourth = sheet.panels
        handles: dict[str, Any] = {}

        def draw(panel: Axes, name: str, values: Any) -> None:
            (handles[name],) = panel.plot(steps, values, **(lines | guides)[name])

        for panel, title in ((first, LINEAR), (second, SQUARES)):
            for name, curve in found[title].items():
                draw(panel, name, curve.average[late])
            handles[GUIDE] = draw_power(panel, steps, -0.5)
            set_title(panel, title[0].upper() + title[1:])
            panel.set(xlabel="T", ylabel=f"R(T)/T,   αₜ = {RATES[title]:g}/√t")
        for one, curve in ((tried[2], constant), (tried[3], fading)):
            draw(third, one.name, np.where(curve.variation > 0, curve.variation, np.nan)[late])
        draw_power(third, steps, 0.5)
        draw(third, LEMMA, np.nan * steps if explicit is None else explicit[steps - 1])
        set_title(third, "The gain on the linear losses")
        third.set(xlabel="T", ylabel="Σ |K̃ₜ₊₁ − K̃ₜ|,   t < T")
        draw(fourth, PAPER, fading.bound[late])
        draw(fourth, DISTANCE, fading.distance_bound[late])
        draw(fourth, tried[3].name, fading.average[late])
        set_title(fourth, "Bounds for γₜ, linear losses")
        fourth.set(xlabel="T", ylabel="R(T)/T and its bounds")
        for panel in sheet.panels:
            use_log_axes(panel)
        return sheet.legend({name: handles[name] for name in (*lines, *guides, GUIDE)})
