"""The picture of ``sgdf theory momentum``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, drawing, use_log_axis
from ...present.styles import HUES
from ...theory import momentum_bounds, momentum_error, momentum_loss
from ...theory.momentum.rule import Model
from .quadratic import LossAt, Measured, Quadratic

RECURSION: dict[str, Any] = {"color": HUES[1], "linewidth": 1.6}
EQUATION: dict[str, Any] = {"color": HUES[0], "linewidth": 1.4, "linestyle": (0, (5, 2))}
CORRECTED: dict[str, Any] = {
    "color": HUES[2],
    "linewidth": 1.2,
    "linestyle": (0, (6, 1.5, 1.5, 1.5)),
}
PRINTED: dict[str, Any] = {"color": "#777777", "linewidth": 1.2, "linestyle": (0, (1.5, 1.5))}
SHADES: tuple[dict[str, Any], ...] = (
    {"color": HUES[5], "linestyle": (0, (1.5, 1.5))},
    {"color": HUES[5], "linestyle": (0, (5, 2))},
    {"color": HUES[5], "linestyle": "-"},
    {"color": HUES[1], "linestyle": "-"},
)
PATHS: tuple[dict[str, Any], ...] = (
    {"color": HUES[1], "linestyle": "-"},
    {"color": HUES[4], "linestyle": (0, (5, 2))},
    {"color": HUES[3], "linestyle": (0, (1.5, 1.5))},
)
NAMES = (
    "recursion, closed form",
    "SDE, closed form",
    "simulated, ± 2 standard errors",
    "printed bound",
    "bound of the recursion",
)


def draw_momentum(
    problem: Quadratic,
    betas: Sequence[float],
    times: Sequence[int],
    simulated: dict[Model, list[dict[str, Measured]]],
    losses: Sequence[Sequence[LossAt]],
) -> Drawing:
    """Draw law, error, bias and loss of momentum, each with its formula."""
    grid = np.unique([*1.0 - np.geomspace(1.0 - betas[0], 1.0 - betas[-1], 80), *betas])
    with drawing("momentum"):
        sheet = Sheet(6, 4.0, 2.9, NAMES)
        var_m, var_theta, cov, error, bias, loss = sheet.panels
        lines = _draw_law(var_m, "var_m", problem, grid, betas, simulated)
        _draw_law(var_theta, "var_theta", problem, grid, betas, simulated)
        _draw_law(cov, "cov", problem, grid, betas, simulated)
        use_log_axis(var_m, "y")
        _title(var_m, "Var m", "2u²σ² / ((1−β)(2(1+β) − a)),  SDE: u²σ² / (2(1−β))")
        _title(var_theta, "Var θ", "(1+β) αuσ² / ((1−β)λ(2(1+β) − a)),  SDE: αuσ² / (2λ(1−β))")
        _title(cov, "Cov(m, θ)", "½α Var m  of mₜ and θₜ₋₁,  SDE: 0")
        lines += _draw_error(error, problem, grid, betas, times, simulated["recursion"])
        _title(error, "E(mₜ − ∇f(θₜ₋₁))²", "t → ∞: (2u² + (1+β)a − 2ua) σ² / ((1−β)(2(1+β) − a))")
        beta = min(betas, key=lambda one: abs(one - 0.9))
        _draw_bias(bias, problem, beta, max(times))
        _draw_loss(loss, problem, betas, times, losses)
        for panel in (var_m, var_theta, cov, error):
            _spread_betas(panel, betas)
        return sheet.legend(dict(zip(NAMES, lines, strict=True)))


def _spread_betas(panel: Axes, betas: Sequence[float]) -> None:
    """Give every β near 1 its room: the axis is that of the memory 1 / (1 − β)."""
    use_log_axis(panel, "x")
    panel.set_xticks([_memory(beta) for beta in betas], [f"{beta:g}" for beta in betas])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("β, spaced by 1 / (1 − β)")


def _memory(beta: Any) -> Any:
    return 1.0 / (1.0 - beta)


def _title(panel: Axes, label: str, formula: str) -> None:
    panel.set_ylabel(label)
    panel.set_title(formula, fontsize=8, pad=4)


def _draw_law(
    panel: Axes,
    name: str,
    problem: Quadratic,
    grid: np.ndarray,
    betas: Sequence[float],
    simulated: dict[Model, list[dict[str, Measured]]],
) -> list[Any]:
    """Draw a moment of the recursion and of the equation, with simulations of both."""
    lines: list[Any] = []
    models: tuple[tuple[Model, dict[str, Any]], ...] = (
        ("recursion", RECURSION),
        ("sde", EQUATION),
    )
    for model, style in models:
        values = [getattr(problem.law(beta, model), name) for beta in grid]
        lines += panel.plot(_memory(grid), values, **style)
    for model, style in models:
        _draw_points(
            panel, _memory(np.array(betas)), [row[name] for row in simulated[model]], style["color"]
        )
    return [*lines, _draw_points(panel, [], [], "#444444")]


def _draw_points(panel: Axes, at: Any, found: Sequence[Measured], color: str) -> Any:
    bars = panel.errorbar(
        at,
        [one.value for one in found],
        yerr=[2.0 * one.error for one in found],
        fmt="o",
        color=color,
        markersize=3.5,
        markerfacecolor="white",
        markeredgewidth=1.1,
        elinewidth=1.1,
        capsize=2.0,
        zorder=4,
    )
    return bars.lines[0]


def _draw_error(
    panel: Axes,
    problem: Quadratic,
    grid: np.ndarray,
    betas: Sequence[float],
    times: Sequence[int],
    simulated: Sequence[dict[str, Measured]],
) -> list[Any]:
    errors = np.array([problem.errors(beta, tuple(times)) for beta in grid])
    bounds = np.array([problem.bounds(beta) for beta in grid])
    names = [*(f"t = {t}" for t in times), "t → ∞"]
    labelled = [
        panel.plot(_memory(grid), errors[:, column], **SHADES[column], linewidth=1.6)[0]
        for column in range(len(names))
    ]
    panel.legend(labelled, names, loc="upper left", fontsize=7, handlelength=2.2)
    lines = panel.plot(_memory(grid), bounds[:, 0], **PRINTED)
    lines += panel.plot(_memory(grid), bounds[:, 1], **CORRECTED)
    found = [row["mean_square"] for row in simulated]
    _draw_points(panel, _memory(np.array(betas)), found, RECURSION["color"])
    use_log_axis(panel, "y")
    return list(lines)


def _draw_bias(panel: Axes, problem: Quadratic, beta: float, steps: int) -> None:
    lam, sigma, alpha, _, u = problem.rule(beta)
    begin = lam * abs(problem.theta0)
    path = momentum_error(*problem.rule(beta), steps=steps, theta0=problem.theta0)
    bounds = momentum_bounds(
        sigma, alpha, beta, u, smoothness=lam, gradient_norm=begin, steps=steps
    )
    t = np.arange(1, steps + 1)
    panel.plot(t, np.abs(path.bias)[1:], **RECURSION)
    panel.plot(t, np.full(steps, bounds.printed_bias), **PRINTED)
    panel.plot(t, np.asarray(bounds.bias)[1:], **CORRECTED)
    use_log_axis(panel, "x")
    if begin:
        use_log_axis(panel, "y")
        panel.set_ylim(bottom=1e-4 * begin)
    panel.set_xlabel("t")
    _title(panel, "|E mₜ − E∇f(θₜ₋₁)|", f"bias at β = {beta:g}, for G = λ|θ₀|")


def _draw_loss(
    panel: Axes,
    problem: Quadratic,
    betas: Sequence[float],
    times: Sequence[int],
    losses: Sequence[Sequence[LossAt]],
) -> None:
    t = np.arange(1, max(times) + 1)
    shown = sorted({0, len(betas) - 1, min(range(len(betas)), key=lambda i: abs(betas[i] - 0.9))})
    for number, i in enumerate(shown):
        style = PATHS[number]
        law = momentum_loss(*problem.rule(betas[i]), steps=max(times), theta0=problem.theta0)
        label = f"β = {betas[i]:g}"
        panel.plot(t, np.asarray(law.mean)[1:], **style, linewidth=1.5, label=label)
        _draw_points(panel, times, [at.simulated_mean for at in losses[i]], style["color"])
    panel.legend(loc="lower left", fontsize=7, handlelength=2.2)
    use_log_axis(panel, "x")
    use_log_axis(panel, "y")
    panel.set_xlabel("t")
    _title(panel, "E f(θₜ)", "½λ(Var θₜ + (E θₜ)²)")
