"""Exact moments of the filter's running mean and variance on independent gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..filter import is_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


class RunningMeanMoments(NamedTuple):
    """Second moments of the running mean, in units of the gradient's variance."""

    variance: Array
    """Of m, which Appendix B.2 of the paper derives."""
    corrected_variance: Array
    """Of the bias-corrected mean, which the gain is about."""
    covariance: Array
    """Of the bias-corrected mean with the last gradient, which it contains."""


def running_mean_moments(beta1: float, steps: ArrayLike = np.inf) -> RunningMeanMoments:
    r"""Return variances of the running mean, and its covariance with the last gradient.

    For independent gradients of equal variance 1, after t steps:

    .. math::
        \operatorname{Var} m_t &= \frac{(1-\beta_1)(1-\beta_1^{2t})}{1+\beta_1} \\
        \operatorname{Var} \hat m_t &= \frac{(1-\beta_1)(1+\beta_1^t)}{(1+\beta_1)(1-\beta_1^t)} \\
        \operatorname{Cov}(\hat m_t, g_t) &= \frac{1-\beta_1}{1-\beta_1^t}

    The first is the paper's correction factor. The second is what the gain compares with the
    gradient's variance: at t = 1 it is 1, where the first is :math:`(1-\beta_1)^2`.

    Args:
        beta1: decay rate of the running mean.
        steps: how many gradients it has seen, a number or an array; ``inf`` for the limit.

    Raises:
        ValueError: if ``beta1`` is outside [0, 1), or a step count is below 1.

    Example:
        >>> from sgdf.theory import running_mean_moments
        >>> found = running_mean_moments(0.9, [1, 2, 100])
        >>> found.variance.round(4), found.corrected_variance.round(4)
        (array([0.01  , 0.0181, 0.0526]), array([1.    , 0.5014, 0.0526]))
    """
    t, beta = _checked_steps(steps), _checked(beta1, "beta1")
    power = beta**t
    ratio = (1.0 - beta) / (1.0 + beta)
    return RunningMeanMoments(
        variance=ratio * (1.0 - power**2),
        corrected_variance=ratio * (1.0 + power) / (1.0 - power),
        covariance=(1.0 - beta) / (1.0 - power),
    )


def expected_running_variance(
    betas: tuple[float, float],
    steps: ArrayLike,
    *,
    mean: ArrayLike = 0.0,
    variance: ArrayLike = 1.0,
) -> Array:
    r"""Return the expectation of s after so many independent gradients of equal law.

    A square :math:`(g_t - m_t)^2` contains the mean :math:`\mu` of the gradients too, since m
    starts at 0. With :math:`q = \beta_1^2`, its expectation is

    .. math::
        \mathrm E (g_t - m_t)^2 = \frac{2q}{1+\beta_1}\sigma^2
            + q^t \left( \mu^2 - \frac{1-\beta_1}{1+\beta_1}\sigma^2 \right),

    and that of s, their running mean,

    .. math::
        \mathrm E\, s_t = \frac{2q}{1+\beta_1}(1-\beta_2^t)\,\sigma^2
            + (1-\beta_2)\, q\, \frac{\beta_2^t - q^t}{\beta_2 - q}
            \left( \mu^2 - \frac{1-\beta_1}{1+\beta_1}\sigma^2 \right).

    The first part makes :math:`s_t/(1-\beta_2^t)` settle at :math:`2q/(1+\beta_1)` of the variance
    (85 % at 0.9). The second is the leak of the mean: of :math:`s_t/(1-\beta_2^t)` it is about
    :math:`\mu^2 q/((1-q)\,t)` as long as t is well below :math:`1/(1-\beta_2)`.

    Args:
        betas: decay rates of running mean and variance.
        steps: how many gradients they have seen, a number or an array.
        mean: of the gradients.
        variance: of the gradients.

    Raises:
        ValueError: if an argument is outside its range.

    Example:
        >>> from sgdf.theory import expected_running_variance
        >>> betas, steps = (0.9, 0.999), 100
        >>> s = expected_running_variance(betas, steps, mean=[0.0, 5.0])
        >>> (s / (1 - betas[1] ** steps)).round(2)  # a mean of five deviations doubles it
        array([0.85, 1.87])
    """
    beta1, beta2 = (_checked(beta, f"betas[{i}]") for i, beta in enumerate(betas))
    t = _checked_steps(steps)
    mu, sigma2 = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if not (sigma2 >= 0.0).all():
        raise ValueError(f"Invalid variance, negative: {variance!r}")
    q = beta1**2
    settled = 2.0 * q / (1.0 + beta1) * sigma2
    excess = mu**2 - (1.0 - beta1) / (1.0 + beta1) * sigma2
    return settled * (1.0 - beta2**t) + (1.0 - beta2) * q * _mixed(beta2, q, t) * excess


def _mixed(x: float, y: float, t: Array) -> Array:
    """Return (xᵗ − yᵗ)/(x − y), without cancellation where the two are close; t yᵗ⁻¹ if equal."""
    high, low = max(x, y), min(x, y)
    if low == 0.0:
        return np.asarray(high ** (t - 1.0))
    if high == low:
        finite = np.minimum(t, 1e300)  # infinity times 0 would be no number
        return np.asarray(finite * low ** (finite - 1.0))
    rest = -np.expm1(-t * np.log1p((high - low) / low))
    return np.asarray(high**t * rest / (high - low))


def _checked(beta: float, name: str) -> float:
    if not is_number(beta) or not 0.0 <= beta < 1.0:
        raise ValueError(f"Invalid {name}, not in [0, 1): {beta}")
    return float(beta)


def _checked_steps(steps: ArrayLike) -> Array:
    counted = np.asarray(steps, dtype=np.float64)
    if not (counted >= 1.0).all():
        raise ValueError(f"Invalid steps, the first is 1: {steps!r}")
    return counted
