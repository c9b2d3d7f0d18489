"""Simulated paths of momentum: the recursion, and its stochastic differential equations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .rule import Model, Rule, check_model, check_number, weight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class MomentumPaths(NamedTuple):
    """Independent paths: the first axis counts t = 0 … ``steps``, the second the paths."""

    m: Array
    """The momentum."""
    theta: Array
    """The parameter."""


def simulate_momentum(
    gradient: float | Callable[[Array], Array],
    sigma: float,
    alpha: float,
    beta: float,
    u: float | None = None,
    *,
    steps: int,
    paths: int = 1000,
    seed: int = 0,
    model: Model = "recursion",
    theta0: float = 1.0,
    m0: float = 0.0,
    substeps: int = 20,
) -> MomentumPaths:
    r"""Return simulated paths of momentum and parameter, with normal noise.

    The recursion and the equations are those of :func:`momentum_moments`. In continuous time
    Euler and Maruyama's method takes ``substeps`` steps of length :math:`h` in a unit of time,

    .. math:: m \leftarrow m + (-rm + k\nabla f(\theta))h + n\sqrt{h}\,z, \qquad
              \theta \leftarrow \theta - \alpha m h

    both from the values before the step. Its moments are off by a share of the order of h.

    Args:
        gradient: the curvature λ of a quadratic, or ∇f as a function of all θ at once.
        sigma: the standard deviation of the noise of a gradient.
        alpha: the learning rate.
        beta: the decay of the momentum.
        u: the weight of the gradient; None for 1 - β.
        steps: the length of the paths.
        paths: their number.
        seed: chooses the noise.
        model: ``"recursion"``, ``"sde"`` or ``"matched"``.
        theta0: where every path begins.
        m0: the momentum that it begins with.
        substeps: how many steps of Euler and Maruyama make up one step; unused by the recursion.

    Raises:
        ValueError: if a parameter is outside of its range.

    Example:
        >>> from sgdf.theory import simulate_momentum
        >>> found = simulate_momentum(1.0, 0.0, 0.1, 0.9, steps=2, paths=1)
        >>> found.theta.ravel().round(4)  # without noise: the means
        array([1.    , 0.99  , 0.9711])
    """
    check_model(model)
    for name, count in (("paths", paths), ("substeps", substeps)):
        check_number(name, count, 1.0)
    check_number("steps", steps, 0.0)
    check_number("theta0", theta0, -math.inf)
    check_number("m0", m0, -math.inf)
    slope, lam = (gradient, 0.0) if callable(gradient) else (lambda at: gradient * at, gradient)
    rule = Rule(lam, sigma, alpha, beta, weight(u, beta))
    draw = np.random.default_rng(seed)
    m, theta = np.full(paths, float(m0)), np.full(paths, float(theta0))
    found = MomentumPaths(np.empty((steps + 1, paths)), np.empty((steps + 1, paths)))
    found.m[0], found.theta[0] = m, theta
    for t in range(1, steps + 1):
        if model == "recursion":
            noise = sigma * draw.standard_normal(paths)
            m = beta * m + rule.u * (slope(theta) + noise)
            theta = theta - alpha * m
        else:
            flow, h = rule.flow(model), 1.0 / substeps
            for _ in range(substeps):
                push = (-flow.rate * m + flow.gain * slope(theta)) * h
                noise = flow.noise * math.sqrt(h) * draw.standard_normal(paths)
                m, theta = m + push + noise, theta - alpha * m * h
        found.m[t], found.theta[t] = m, theta
    return found
