"""Classical momentum on quadratics: its floor under noise, and its speed without."""

from __future__ import annotations

import math
from typing import NamedTuple

from .moments import momentum_loss
from .rule import check_number


class BestContraction(NamedTuple):
    """The fastest way down a quadratic without noise."""

    rate: float
    """The learning rate (with u = 1) times the largest curvature."""
    beta: float
    """The momentum."""
    contraction: float
    """The factor by which the slowest direction shrinks in a step, in the long run."""


def excess_loss(
    effective_rate: float, beta: float, *, lam: float = 1.0, sigma: float = 1.0
) -> float:
    r"""Return the mean loss above the minimum at which momentum settles on ½λθ².

    With the effective rate :math:`\alpha_e = \alpha u/(1-\beta)`, the step that a constant
    gradient would lead to,

    .. math:: \tfrac12\lambda\,\mathrm{Var}\,\theta
              = \frac{\alpha_e\sigma^2}{2\big(2 - \alpha_e\lambda\frac{1-\beta}{1+\beta}\big)}

    At small rates this is :math:`\tfrac14\alpha_e\sigma^2`, whatever β; at larger ones it falls
    with β.

    Raises:
        ValueError: if a parameter is outside of its range, or momentum does not settle:
            :math:`\alpha_e\lambda` has to be below :math:`2(1+\beta)/(1-\beta)`.

    Example:
        >>> from sgdf.theory import excess_loss
        >>> [round(excess_loss(1.0, beta), 4) for beta in (0.0, 0.5, 0.9)]
        [0.5, 0.3, 0.2568]
    """
    return float(momentum_loss(lam, sigma, effective_rate, beta).mean)


def contraction(pull: float, beta: float) -> float:
    r"""Return the factor by which momentum shrinks θ in a step, in the long run, without noise.

    It is the largest modulus of the roots of :math:`z^2 - (1+\beta-a)z + \beta` with
    :math:`a = \alpha u\lambda`: :math:`\sqrt\beta` where they are complex, between
    :math:`(1-\sqrt\beta)^2` and :math:`(1+\sqrt\beta)^2`, and above 1 where momentum diverges.

    Raises:
        ValueError: if a parameter is outside of its range.

    Example:
        >>> from sgdf.theory import contraction
        >>> contraction(0.1, 0.0), round(contraction(0.1, 0.81), 4)
        (0.9, 0.9)
    """
    check_number("pull", pull, 0.0)
    check_number("beta", beta, 0.0, below=1.0)
    half = 0.5 * (1.0 + beta - pull)
    under_root = half**2 - beta
    return math.sqrt(beta) if under_root < 0.0 else abs(half) + math.sqrt(under_root)


def best_contraction(condition: float, beta: float | None = None) -> BestContraction:
    r"""Return the learning rate with the best contraction over all curvatures in an interval.

    For curvatures between μ and :math:`L = \kappa\mu`. The roots of :func:`contraction` change
    their signs if a becomes :math:`2(1+\beta) - a`, and the modulus falls up to the middle; so
    both ends of the interval are best placed symmetrically, :math:`\alpha = 2(1+\beta)/(L+\mu)`.
    The best β over all is :math:`\big(\frac{\sqrt\kappa-1}{\sqrt\kappa+1}\big)^2`, with the
    contraction :math:`\frac{\sqrt\kappa-1}{\sqrt\kappa+1}`. Without momentum it is
    :math:`\frac{\kappa-1}{\kappa+1}`.

    Args:
        condition: the condition number κ, at least 1.
        beta: the momentum; None for the best.

    Raises:
        ValueError: if a parameter is outside of its range.

    Example:
        >>> from sgdf.theory import best_contraction
        >>> [round(best_contraction(100.0, beta).contraction, 3) for beta in (0.0, 0.5, None)]
        [0.98, 0.936, 0.818]
    """
    check_number("condition", condition, 1.0)
    root = math.sqrt(condition)
    best = ((root - 1.0) / (root + 1.0)) ** 2
    beta = best if beta is None else beta
    check_number("beta", beta, 0.0, below=1.0)
    rate = 2.0 * (1.0 + beta) * condition / (condition + 1.0)
    # At the best β and above the roots are complex or equal; rounding must not pull them apart.
    slowest = math.sqrt(beta) if beta >= best else contraction(rate / condition, beta)
    return BestContraction(rate, beta, slowest)
