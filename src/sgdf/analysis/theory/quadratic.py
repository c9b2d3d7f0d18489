"""Momentum on one quadratic over β: what the study tabulates and draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...present.table import Cell
from ...theory import (
    contraction,
    momentum_bounds,
    momentum_error,
    momentum_loss,
    momentum_moments,
    simulate_momentum,
)
from ...theory.momentum.moments import MomentumMoments
from ...theory.momentum.rule import Model

PATHS = 2000
AVERAGED = 250
"""Steps that a simulated moment is averaged over, after the path has settled."""
SLOWEST = 10_000


class Measured(NamedTuple):
    """A mean over independent paths, with its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: np.ndarray) -> Measured:
        """Return the mean of one value for each path."""
        return cls(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))

    @property
    def cell(self) -> Cell:
        """The mean and its error, as many digits as the error allows."""
        digits = max(0, 1 - math.floor(math.log10(self.error))) if self.error > 0.0 else 4
        text = f"{self.value:.{digits}f} ± {self.error:.{digits}f}"
        return Cell(text, self.value, {"": self.value, "standard error": self.error})


class LossAt(NamedTuple):
    """Mean and standard deviation of the loss after a number of steps."""

    mean: float
    deviation: float
    simulated_mean: Measured
    simulated_deviation: Measured


@dataclass(frozen=True)
class Quadratic:
    """The parameters that all β share.

    Attributes:
        lam: the curvature.
        sigma: the standard deviation of the noise.
        alpha: the learning rate.
        u: the weight of the gradient; None for 1 − β.
        theta0: where paths begin.
        seed: of the simulations.
    """

    lam: float
    sigma: float
    alpha: float
    u: float | None
    theta0: float
    seed: int

    def rule(self, beta: float) -> tuple[float, float, float, float, float]:
        """Return λ, σ, α, β and u."""
        u = 1.0 - beta if self.u is None else self.u
        return self.lam, self.sigma, self.alpha, beta, u

    def bounds(self, beta: float) -> tuple[float, float]:
        """Return bias² + variance by the printed bounds and by those of the recursion.

        G and V are the root mean square of the gradient in the stationary law.
        """
        lam, sigma, alpha, _, u = self.rule(beta)
        size = lam * math.sqrt(momentum_moments(*self.rule(beta)).var_theta)
        found = momentum_bounds(sigma, alpha, beta, u, smoothness=lam, gradient_norm=size)
        return (
            found.printed_bias**2 + found.printed_variance,
            float(found.bias) ** 2 + found.variance,
        )

    def simulate_stationary(self, beta: float, model: Model) -> dict[str, Measured]:
        """Return the moments over the last steps of paths that have settled."""
        rule = self.rule(beta)
        pull = rule[0] * rule[2] * rule[4]
        speed = -math.log(min(contraction(pull, beta), 1.0 - 1e-12))
        settling = math.ceil(4.0 / speed)
        if settling > SLOWEST:
            raise ValueError(
                f"Invalid alpha, the path settles after {settling} steps: at most {SLOWEST} are "
                "simulated; choose a smaller beta, or a larger alpha or lam"
            )
        m, theta = simulate_momentum(
            *rule,
            steps=settling + AVERAGED,
            paths=PATHS,
            seed=self._seed(beta),
            model=model,
            theta0=0.0,
            # The method's own error is about half a substep's decay: half a per cent.
            substeps=max(20, math.ceil(100.0 * (1.0 - beta))),
        )
        late = slice(settling + 1, None)
        seen = theta[settling:-1] if model == "recursion" else theta[late]
        squares = {"var_m": m[late] ** 2, "var_theta": theta[late] ** 2, "cov": m[late] * seen}
        squares["mean_square"] = (m[late] - self.lam * seen) ** 2
        return {name: Measured.of(values.mean(axis=0)) for name, values in squares.items()}

    def errors(self, beta: float, times: tuple[int, ...]) -> list[float]:
        """Return the mean squared error of m at these times, and last in the stationary law."""
        rule = self.rule(beta)
        path = momentum_error(*rule, steps=max(times), theta0=self.theta0).mean_square
        end = momentum_error(*rule).mean_square
        return [*(float(value) for value in np.asarray(path)[list(times)]), float(end)]

    def losses(self, beta: float, times: tuple[int, ...]) -> list[LossAt]:
        """Return the law of the loss at these times, in closed form and simulated."""
        rule, steps = self.rule(beta), max(times)
        law = momentum_loss(*rule, steps=steps, theta0=self.theta0)
        means, variances = np.asarray(law.mean), np.asarray(law.variance)
        paths = simulate_momentum(
            *rule, steps=steps, theta0=self.theta0, paths=PATHS, seed=self._seed(beta)
        )
        found = []
        for t in times:
            values = 0.5 * self.lam * paths.theta[t] ** 2
            around = Measured.of((values - means[t]) ** 2)
            deviation = math.sqrt(around.value)
            error = around.error / (2.0 * deviation) if deviation else 0.0
            found.append(
                LossAt(
                    float(means[t]),
                    math.sqrt(variances[t]),
                    Measured.of(values),
                    Measured(deviation, error),
                )
            )
        return found

    def law(self, beta: float, model: Model) -> MomentumMoments:
        """Return the stationary law."""
        return momentum_moments(*self.rule(beta), model=model)

    def _seed(self, beta: float) -> int:
        """Return a seed of each β's own: the same noise would make all of them err alike."""
        return self.seed + round(1e6 * beta)
