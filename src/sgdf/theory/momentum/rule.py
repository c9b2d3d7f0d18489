"""The paper's momentum on a quadratic, as a linear law of one step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Model = Literal["recursion", "sde", "matched"]
MODELS = ("recursion", "sde", "matched")


class Flow(NamedTuple):
    """The coefficients of ``dm = (-rate m + gain ∇f) dt + noise dW``, with ``dθ = -α m dt``."""

    rate: float
    gain: float
    noise: float


@dataclass(frozen=True)
class Rule:
    """Momentum on f(θ) = ½λθ² with checked parameters.

    Attributes:
        lam: the curvature λ.
        sigma: the standard deviation of the noise of a gradient.
        alpha: the learning rate.
        beta: the decay of the momentum.
        u: the weight of the gradient.

    Raises:
        ValueError: if a parameter is outside of its range.
    """

    lam: float
    sigma: float
    alpha: float
    beta: float
    u: float

    def __post_init__(self) -> None:
        check_number("lam", self.lam, -math.inf)
        check_number("sigma", self.sigma, 0.0)
        check_number("alpha", self.alpha, 0.0)
        check_number("beta", self.beta, 0.0, below=1.0)
        if not 0.0 < self.u < math.inf:
            raise ValueError(f"Invalid u, expected a positive number: {self.u}")

    @property
    def pull(self) -> float:
        """The number a = αuλ: how far a step moves θ by the newest gradient, as a share of θ."""
        return self.alpha * self.u * self.lam

    def check_stationary(self, model: Model) -> None:
        """Make sure that m and θ settle.

        Raises:
            ValueError: if they have no stationary law.
        """
        limit = 2.0 * (1.0 + self.beta) if model == "recursion" else math.inf
        if not 0.0 < self.pull < limit:
            raise ValueError(
                f"No stationary law: alpha * u * lam = {self.pull:g} is not between 0 and {limit:g}"
            )

    def flow(self, model: Model) -> Flow:
        """Return the stochastic differential equation that stands for the recursion.

        Raises:
            ValueError: if there is none: the matched one needs a memory.
        """
        if model == "sde":
            return Flow(1.0 - self.beta, self.u, self.u * self.sigma)
        if self.beta == 0.0:
            raise ValueError("Invalid beta, the matched equation needs one above 0: 0.0")
        rate = -math.log(self.beta)
        noise = self.u * self.sigma * math.sqrt(2.0 * rate / (1.0 - self.beta**2))
        return Flow(rate, self.u * rate / (1.0 - self.beta), noise)

    def one_step(self, model: Model) -> tuple[Array, Array]:
        """Return A and Q of x_t = A x_{t-1} + noise of covariance Q, where x = (m, θ)."""
        if model == "recursion":
            push = self.u * self.sigma * np.array([1.0, -self.alpha])
            gradient = self.u * self.lam
            step = [[self.beta, gradient], [-self.alpha * self.beta, 1.0 - self.pull]]
            return np.array(step), np.outer(push, push)
        flow = self.flow(model)
        drift = np.array([[-flow.rate, flow.gain * self.lam], [-self.alpha, 0.0]])
        return _unit_of_time(drift, np.diag([flow.noise**2, 0.0]))


def check_number(name: str, value: float, least: float, below: float = math.inf) -> None:
    """Make sure that a parameter is a finite number in its range.

    Raises:
        ValueError: if it is not.
    """
    if not (least <= value < below and math.isfinite(value)):
        known = math.isfinite(least)
        bounds = [f"at least {least:g}"] * known + [f"below {below:g}"] * math.isfinite(below)
        wanted = " and ".join(bounds) or "finite"
        raise ValueError(f"Invalid {name}, expected a number {wanted}: {value}")


def check_model(model: str) -> None:
    """Make sure that a model is known.

    Raises:
        ValueError: if it is not.
    """
    if model not in MODELS:
        raise ValueError(f"Invalid model, expected one of {', '.join(MODELS)}: {model!r}")


def weight(u: float | None, beta: float) -> float:
    """Return the weight of the gradient; None stands for 1 - β, a running mean."""
    return 1.0 - beta if u is None else u


def _unit_of_time(drift: Array, diffusion: Array) -> tuple[Array, Array]:
    """Return what a linear stochastic differential equation does in one unit of time.

    Van Loan's block matrix gives both integrals over a short time, and doubling extends them. Its
    exponential over the whole unit would lose all digits where the equation is stiff.
    """
    size = len(drift)
    block = np.block([[-drift, diffusion], [np.zeros_like(drift), drift.T]])
    doublings = max(0, math.ceil(math.log2(max(np.abs(block).sum(axis=0).max(), 1e-300))) + 1)
    block = block / 2.0**doublings
    term = total = np.eye(2 * size)
    for order in range(1, 19):  # the block's norm is at most ½: more terms would add nothing
        term = term @ block / order
        total = total + term
    step = total[size:, size:].T
    noise = step @ total[:size, size:]
    for _ in range(doublings):
        noise = noise + step @ noise @ step.T
        step = step @ step
    return step, noise
