"""``sgdf theory momentum``: momentum on a quadratic, in closed form, simulated and bounded."""

from __future__ import annotations

from collections.abc import Sequence

from ...present.table import OVERALL, Table, number_cell
from ...theory.momentum.moments import MomentumMoments
from ...theory.momentum.rule import Model
from .momentum_figure import draw_momentum
from .quadratic import LossAt, Measured, Quadratic
from .study import Study

NAME = "momentum"
BETAS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
TIMES = (20, 100, 1000)
MODELS: tuple[Model, ...] = ("recursion", "sde")
LAWS = {
    "var_m": (
        "Var m",
        "2u²σ² / ((1−β)(2(1+β) − a)) in the recursion, u²σ² / (2(1−β)) in the SDE",
    ),
    "var_theta": (
        "Var θ",
        "(1+β)αuσ² / ((1−β)λ(2(1+β) − a)) in the recursion, αuσ² / (2λ(1−β)) in the SDE",
    ),
    "cov": ("Cov(m, θ)", "½α Var m of mₜ and θₜ₋₁ in the recursion, 0 in the SDE"),
}


def study_momentum(
    lam: float = 1.0,
    sigma: float = 1.0,
    alpha: float = 0.1,
    betas: Sequence[float] = BETAS,
    u: float | None = None,
    theta0: float = 10.0,
    seed: int = 0,
) -> Study:
    """Return the law of momentum over β: closed forms, simulations, errors and bounds.

    Raises:
        ValueError: if parameters are outside of their range, or too slow to simulate.
    """
    if sigma == 0.0:  # there would be nothing but zeros to show
        raise ValueError(f"Invalid sigma, expected a positive number: {sigma}")
    problem = Quadratic(lam, sigma, alpha, u, theta0, seed)
    betas = sorted(set(betas))
    closed = {model: [problem.law(beta, model) for beta in betas] for model in MODELS}
    errors = [problem.errors(beta, TIMES) for beta in betas]
    bounds = [problem.bounds(beta) for beta in betas]
    simulated = {
        model: [problem.simulate_stationary(beta, model) for beta in betas] for model in MODELS
    }
    losses = [problem.losses(beta, TIMES) for beta in betas]
    tables = [_law_table(law, betas, closed, simulated) for law in LAWS]
    tables += [_error_table(betas, errors, bounds, simulated["recursion"])]
    tables += [_loss_table(betas, losses)]
    return Study(
        NAME,
        _findings(problem, betas, closed, errors),
        tuple(tables),
        draw_momentum(problem, betas, TIMES, simulated, losses),
        {
            **{"lam": lam, "sigma": sigma, "alpha": alpha, "u": u, "theta0": theta0, "seed": seed},
            "beta": betas,
            "time": [*TIMES, "stationary"],
            "closed": {m: [law._asdict() for law in laws] for m, laws in closed.items()},
            "simulated": {
                model: [{name: one._asdict() for name, one in row.items()} for row in rows]
                for model, rows in simulated.items()
            },
            "mean_square_error": errors,
            "printed_bound": [printed for printed, _ in bounds],
            "recursion_bound": [corrected for _, corrected in bounds],
            "loss": [[_plain_loss(at) for at in row] for row in losses],
        },
    )


def _law_table(
    name: str,
    betas: Sequence[float],
    closed: dict[Model, list[MomentumMoments]],
    simulated: dict[Model, list[dict[str, Measured]]],
) -> Table:
    symbol, formula = LAWS[name]
    rows = [
        (
            number_cell(beta),
            *(
                cell
                for model in MODELS
                for cell in (
                    number_cell(float(getattr(closed[model][i], name))),
                    simulated[model][i][name].cell,
                )
            ),
        )
        for i, beta in enumerate(betas)
    ]
    columns = ("β", "recursion", "simulated", "SDE", "SDE simulated")
    caption = f"{formula}; ± is the standard error, and "
    caption += "the SDE's simulation (Euler–Maruyama) adds a small error of its own."
    return Table(
        name.replace("_", "-"), OVERALL, symbol, formula, columns, tuple(rows), caption=caption
    )


def _error_table(
    betas: Sequence[float],
    errors: Sequence[Sequence[float]],
    bounds: Sequence[tuple[float, float]],
    simulated: Sequence[dict[str, Measured]],
) -> Table:
    columns = (
        "β",
        *(f"t = {t}" for t in TIMES),
        "t → ∞",
        "simulated",
        "printed bound",
        "recursion's bound",
    )
    rows = [
        (
            number_cell(beta),
            *map(number_cell, errors[i]),
            simulated[i]["mean_square"].cell,
            *map(number_cell, bounds[i]),
        )
        for i, beta in enumerate(betas)
    ]
    about = "the bounds are those on bias² + Var m, with the stationary gradient's size for G and V"
    title = "Mean squared error E(mₜ − ∇f(θₜ₋₁))²"
    return Table("mean-square-error", OVERALL, title, about, columns, tuple(rows), caption=about)


def _loss_table(betas: Sequence[float], losses: Sequence[Sequence[LossAt]]) -> Table:
    columns = ("β", "t", "mean", "simulated", "deviation", "deviation simulated")
    rows = [
        (
            number_cell(beta),
            number_cell(t),
            number_cell(at.mean),
            at.simulated_mean.cell,
            number_cell(at.deviation),
            at.simulated_deviation.cell,
        )
        for beta, row in zip(betas, losses, strict=True)
        for t, at in zip(TIMES, row, strict=True)
    ]
    about = "mean ½λ(Var θ + (Eθ)²), deviation λ√(½(Var θ)² + (Eθ)² Var θ)"
    return Table("loss", OVERALL, "Loss ½λθ²", about, columns, tuple(rows), caption=about)


def _plain_loss(at: LossAt) -> dict[str, object]:
    return {
        name: value._asdict() if isinstance(value, Measured) else value
        for name, value in at._asdict().items()
    }


def _findings(
    problem: Quadratic,
    betas: Sequence[float],
    closed: dict[Model, list[MomentumMoments]],
    errors: Sequence[Sequence[float]],
) -> tuple[str, ...]:
    recursion, equation = (closed[model] for model in MODELS)
    ends = dict.fromkeys((0, len(betas) - 1))  # one of them, if there is one β
    ratios = [
        f"{float(recursion[i].var_m / equation[i].var_m):.3g} (β = {betas[i]:g})" for i in ends
    ]
    found = [
        "The stationary bias is 0 for every β: all of the error is variance.",
        f"The recursion's Var m, divided by that of the SDE: {', '.join(ratios)}.",
    ]
    names = [*(f"t = {t}" for t in TIMES), "t → ∞"]
    best = [
        f"{betas[min(range(len(betas)), key=lambda i: errors[i][column])]:g} ({name})"
        for column, name in enumerate(names)
    ]
    found.append(f"The smallest error among these β: {', '.join(best)}.")
    floors = [
        f"{0.5 * problem.lam * float(recursion[i].var_theta):.4g} (β = {betas[i]:g})" for i in ends
    ]
    found.append(
        f"The mean loss settles at {', '.join(floors)}, with a standard deviation of √2 times that."
    )
    return tuple(found)
