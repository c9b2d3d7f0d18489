"""``sgdf theory classical``: what classical momentum gains on quadratics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, drawing, use_log_axis
from ...present.styles import DASHES, HUES
from ...present.table import NOTHING, OVERALL, Cell, Table, number_cell
from ...theory import best_contraction, excess_loss, momentum_moments
from .study import Study

NAME = "classical"
BETAS = (0.0, 0.5, 0.9)
RATES = (0.01, 0.1, 0.5, 1.0, 1.5, 1.9, 5.0)
CONDITIONS = (10.0, 100.0, 1000.0, 10_000.0)
BATCHES = (1.0, 10.0, 100.0, 1000.0, 10_000.0, math.inf)
DIRECTIONS = 5
TRIED = 100
"""Learning rates that each β is tried with, between a thousandth of the limit and the limit."""
BEST = "best β"


def study_classical(
    betas: Sequence[float] = BETAS,
    sigma: float = 1.0,
    condition: float = 100.0,
    steps: int = 100,
) -> Study:
    """Return what classical momentum gains: under noise, without it, and over the batch size.

    Raises:
        ValueError: if a parameter is outside of its range.
    """
    betas = sorted(set(betas))
    speeds = [
        [best_contraction(kappa, beta).contraction for beta in (*betas, None)]
        for kappa in CONDITIONS
    ]
    floors = [[_floor(rate, beta, sigma) for beta in betas] for rate in RATES]
    tuned = _Tuned(betas, sigma, condition, steps)
    losses = [tuned.losses(batch) for batch in BATCHES]
    return Study(
        NAME,
        _findings(betas, tuned),
        (
            _floor_table(betas, floors),
            _speed_table(betas, speeds),
            _batch_table(betas, losses, condition, steps),
        ),
        _draw(betas, sigma, tuned, condition, steps),
        {
            "beta": betas,
            "sigma": sigma,
            "condition": condition,
            "steps": steps,
            "effective_rate": RATES,
            "excess_loss": floors,
            "conditions": CONDITIONS,
            "best_contraction": speeds,
            "batch": BATCHES,
            "best_loss": losses,
        },
    )


class _Tuned:
    """The loss of each β after some steps, at the learning rate that is best for a batch size.

    The loss is Σ½λθ² over curvatures between 1/κ and 1, from θ = 1, with the same noise in every
    direction, whose variance is divided by the batch size.
    """

    def __init__(self, betas: Sequence[float], sigma: float, condition: float, steps: int) -> None:
        curvatures = np.geomspace(1.0 / condition, 1.0, DIRECTIONS)
        # For every β and rate: the loss without noise, and what noise adds with batches of 1.
        self._parts = np.zeros((len(betas), TRIED, 2))
        for i, beta in enumerate(betas):
            for j, share in enumerate(np.geomspace(1e-3, 0.999, TRIED)):
                rate = 2.0 * (1.0 + beta) * share
                for lam in curvatures:
                    law = momentum_moments(lam, sigma, rate, beta, 1.0, steps=steps)
                    mean, variance = np.asarray(law.mean_theta), np.asarray(law.var_theta)
                    self._parts[i, j] += 0.5 * lam * np.array([mean[-1] ** 2, variance[-1]])

    def losses(self, batch: float) -> list[float]:
        """Return the smallest loss of each β with batches of this size."""
        losses: np.ndarray = self._parts @ [1.0, 1.0 / batch]
        return [float(loss) for loss in losses.min(axis=1)]


def _floor(rate: float, beta: float, sigma: float) -> float:
    """Return the loss at which momentum settles; infinite if it does not."""
    stable = rate < 2.0 * (1.0 + beta) / (1.0 - beta)
    return excess_loss(rate, beta, sigma=sigma) if stable else math.inf


def _named(betas: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"β = {beta:g}" for beta in betas)


def _cell(value: float) -> Cell:
    return number_cell(value) if math.isfinite(value) else Cell(NOTHING)


def _floor_table(betas: Sequence[float], floors: Sequence[Sequence[float]]) -> Table:
    rows = [(number_cell(rate), *map(_cell, row)) for rate, row in zip(RATES, floors, strict=True)]
    about = "α′σ² / (2(2 − α′λ(1−β)/(1+β))) at λ = 1, with α′ = α/(1−β); – where it diverges"
    title = "Loss at which momentum settles under noise"
    columns = ("effective rate α′", *_named(betas))
    return Table("floor", OVERALL, title, about, columns, tuple(rows), caption=about)


def _speed_table(betas: Sequence[float], speeds: Sequence[Sequence[float]]) -> Table:
    rows = [
        (number_cell(kappa), *map(number_cell, row), number_cell(best_contraction(kappa).beta))
        for kappa, row in zip(CONDITIONS, speeds, strict=True)
    ]
    about = "at α = 2(1+β)/(λ_max + λ_min): (κ−1)/(κ+1) for β = 0, (√κ−1)/(√κ+1) for the best β"
    columns = ("condition number κ", *_named(betas), BEST, "which is")
    title = "Best contraction of a step, without noise"
    return Table("contraction", OVERALL, title, about, columns, tuple(rows), caption=about)


def _batch_table(
    betas: Sequence[float], losses: Sequence[Sequence[float]], condition: float, steps: int
) -> Table:
    rows = [
        (
            number_cell(batch) if math.isfinite(batch) else Cell("full", batch),
            *map(number_cell, row),
            number_cell(row[0] / min(row), 3),
        )
        for batch, row in zip(BATCHES, losses, strict=True)
    ]
    about = (
        f"Σ½λθ² with {DIRECTIONS} curvatures, κ = {condition:g}; the rate is the best of {TRIED}"
    )
    columns = ("batch", *_named(betas), f"β = {betas[0]:g} / best")
    title = f"Loss after {steps} steps, at each β's best rate"
    return Table("batch", OVERALL, title, about, columns, tuple(rows), caption=about)


def _findings(betas: Sequence[float], tuned: _Tuned) -> tuple[str, ...]:
    small, full = (_gains(tuned, batch).max() for batch in (BATCHES[0], BATCHES[-1]))
    return (
        "At the same small effective rate every β settles at the same loss, α′σ²/4.",
        f"At the best rates, the best of these β ends at a loss {small:.3g} times smaller than "
        f"β = {betas[0]:g} with batches of 1, and {full:.3g} times with the full batch.",
    )


def _gains(tuned: _Tuned, batch: float) -> np.ndarray:
    """Return how many times smaller the loss of each β is than that of the first."""
    losses = tuned.losses(batch)
    return np.array([losses[0] / loss for loss in losses])


def _draw(
    betas: Sequence[float], sigma: float, tuned: _Tuned, condition: float, steps: int
) -> Drawing:
    names = [*_named(betas), BEST]
    styles: list[dict[str, Any]] = [
        {"color": HUES[i % len(HUES)], "linestyle": (0, DASHES[i % 8]) if i % 8 else "-"}
        for i in range(len(names))
    ]
    with drawing(NAME):
        sheet = Sheet(3, 4.0, 3.0, names)
        floor, speed, batch = sheet.panels
        rates = np.geomspace(0.01, 40.0, 300)
        lines: list[Any] = []
        for beta, style in zip(betas, styles, strict=False):
            values = [_floor(rate, beta, sigma) for rate in rates]
            lines += floor.plot(rates, np.where(np.isinf(values), np.nan, values), **style)
        floor.set_ylim(0.25 * 0.009 * max(sigma, 1e-9) ** 2, 20.0 * max(sigma, 1e-9) ** 2)
        _label(
            floor,
            "effective rate α′λ = αλ/(1−β)",
            "½λ Var θ",
            "settles at  α′σ² / (2(2 − α′λ(1−β)/(1+β)))",
        )
        conditions = np.geomspace(1.01, 1e4, 200)
        for decay, style in zip((*betas, None), styles, strict=True):
            slowest = [best_contraction(kappa, decay).contraction for kappa in conditions]
            needed = math.log(10.0) / -np.log(slowest)
            found = speed.plot(conditions, needed, **style)
        lines += found
        _label(
            speed,
            "condition number κ",
            "steps for a tenth of θ",
            "ln 10 / −ln ρ,  ρ = (κ−1)/(κ+1),  best (√κ−1)/(√κ+1)",
        )
        batches = np.geomspace(1.0, 1e8, 100)
        gains = np.array([_gains(tuned, size) for size in batches])
        for column, style in zip(gains.T, styles, strict=False):
            batch.plot(batches, column, **style)
        _label(
            batch,
            "batch size B, noise σ²/B",
            f"E f of β = {betas[0]:g} / E f of β",
            f"after {steps} steps, each β at its best rate, κ = {condition:g}",
        )
        return sheet.legend(dict(zip(names, lines, strict=True)))


def _label(panel: Axes, across: str, upright: str, formula: str) -> None:
    use_log_axis(panel, "x")
    use_log_axis(panel, "y")
    panel.set_xlabel(across)
    panel.set_ylabel(upright)
    panel.set_title(formula, fontsize=8, pad=4)
