"""Bounds on bias and variance of momentum: as the paper prints them, and for the recursion."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .rule import Rule, check_number, weight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Values = float | Array


class MomentumBounds(NamedTuple):
    """Upper bounds on |E m - E∇f| and on Var m."""

    printed_bias: float
    """The paper's bound on the bias, as t → ∞ (the paper bounds its square)."""
    printed_variance: float
    """The paper's bound on the variance."""
    bias: Values
    """The recursion's, at every step: an array over t = 0 … ``steps``, a number for t → ∞."""
    variance: float
    """The recursion's, at every step; never above the printed one."""


def momentum_bounds(
    sigma: float,
    alpha: float,
    beta: float,
    u: float | None = None,
    *,
    smoothness: float,
    gradient_norm: float,
    gradient_deviation: float | None = None,
    steps: int | None = None,
) -> MomentumBounds:
    r"""Return the paper's bounds on bias and variance of momentum, and those of the recursion.

    For a gradient with Lipschitz constant L, of norm at most G and of variance at most V² along
    the path, noise of total variance σ², and m₀ = 0, Theorem 2.3 prints, as t → ∞,

    .. math::
        |\mathrm{Bias}| &\le \frac{u^2\alpha LG}{(1-\beta)^3}
            + \frac{u^2\alpha L\sigma}{\sqrt2(1-\beta)^{2.5}} + \Big(\frac{u}{1-\beta}-1\Big)G \\
        \mathrm{Var}\,m &\le \frac{u^2\sigma^2}{1-\beta} + \frac{2u^2V^2}{(1-\beta)^2}

    for the stochastic differential equation. In the recursion, with the gradient at
    :math:`\theta_{t-1}` as the target, every step has

    .. math::
        |\mathrm{Bias}_t| &\le \min\Big\{\frac{u^2\alpha L\beta G}{(1-\beta)^3}
            + \frac{u^2\alpha L\beta\sigma}{(1-\beta)^2\sqrt{1-\beta^2}}
            + |w_t-1|G,\ (w_t+1)G\Big\}, \qquad w_t = \frac{u(1-\beta^t)}{1-\beta} \\
        \mathrm{Var}\,m_t &\le x^2 + \frac{2\beta}{1+\beta}xy + y^2, \qquad
            x = \frac{u\sigma}{\sqrt{1-\beta^2}}, \quad y = \frac{uV}{1-\beta}

    At β = 0 and u = 1 these are 0 and σ² + V², the exact values of SGD. A running mean, u = 1 - β,
    has a bias of at most 2G. The variance bound is never above the printed one, which therefore
    holds for the recursion too.
    The proofs are in docs/paper/theory.md.

    Args:
        sigma: the root of the total noise variance E‖g - ∇f‖².
        alpha: the learning rate.
        beta: the decay of the momentum.
        u: the weight of the gradient, at least 1 - β; None for 1 - β.
        smoothness: L, the Lipschitz constant of the gradient.
        gradient_norm: G, a bound on E‖∇f(θ_t)‖.
        gradient_deviation: V, a bound on the standard deviation of ∇f(θ_t); None for G, which is
            one if the gradient itself is bounded.
        steps: up to which step the bound on the bias is given; None for t → ∞.

    Raises:
        ValueError: if a parameter is outside of its range.

    Example:
        >>> from sgdf.theory import momentum_bounds
        >>> found = momentum_bounds(1.0, 0.1, 0.0, 1.0, smoothness=1.0, gradient_norm=1.0)
        >>> round(found.printed_bias, 4), found.bias  # of SGD, which has no bias
        (0.1707, 0.0)
    """
    u = weight(u, beta)
    Rule(1.0, sigma, alpha, beta, u)
    # 1 - 0.99 is a little more than 0.01 in floating point.
    check_number("u", u * (1.0 + 1e-12), 1.0 - beta)
    deviation = gradient_norm if gradient_deviation is None else gradient_deviation
    check_number("smoothness", smoothness, 0.0)
    check_number("gradient_norm", gradient_norm, 0.0)
    check_number("gradient_deviation", deviation, 0.0)
    if steps is not None:
        check_number("steps", steps, 0.0)
    left = 1.0 - beta
    shift = u**2 * alpha * smoothness
    noisy = u * sigma / math.sqrt(1.0 - beta**2)
    moving = u * deviation / left
    lag = shift * beta * gradient_norm / left**3
    drift = shift * beta * sigma / (left**2 * math.sqrt(1.0 - beta**2))
    seen = 1.0 - np.power(beta, math.inf if steps is None else np.arange(steps + 1))
    weights = u * seen / left  # the sum of all weights in m_t
    bias: Array = np.minimum(
        lag + drift + np.abs(weights - 1.0) * gradient_norm, (weights + 1.0) * gradient_norm
    )
    return MomentumBounds(
        printed_bias=shift * gradient_norm / left**3
        + shift * sigma / (math.sqrt(2.0) * left**2.5)
        + (u / left - 1.0) * gradient_norm,
        printed_variance=(u * sigma) ** 2 / left + 2.0 * moving**2,
        bias=float(bias) if steps is None else bias,
        variance=noisy**2 + 2.0 * beta / (1.0 + beta) * noisy * moving + moving**2,
    )
