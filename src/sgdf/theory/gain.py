"""The law of the gain on steady noise: its distribution and its mean powers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..filter import check_filter_options, filter_scalars, is_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


class GainLaw(NamedTuple):
    """The distribution of the gain K on normal residuals; see :func:`gain_law`."""

    share: float
    """c: the variance estimate of the running mean, in units of the residual's variance."""
    derived: float
    """c/(1 + c): the gain that the paper derives, with the variance where K has one square."""
    mean: float
    """The mean of K."""
    mean_root: float
    """The mean of √K, the weight of the gradient for ``gamma=0.5``."""

    def mean_power(self, gamma: float) -> float:
        """Return the mean of the gain's power ``gamma``.

        >>> round(gain_law(0.9).mean_power(0.25), 4)
        0.6095
        >>> round(gain_law(0.9).mean_power(1e4), 5)
        0.00162
        """
        if not is_number(gamma) or not gamma >= 0.0:
            raise ValueError(f"Invalid gamma, not at least 0: {gamma}")
        return _mean_power(self.share, 0.0, float(gamma))

    def density(self, gain: ArrayLike) -> Array:
        """Return the density at each gain, √(c/2π) K^(−3/2) (1−K)^(−1/2) e^(−c(1−K)/2K).

        It is 0 outside of (0, 1), and infinite at 1: many residuals are close to 0.
        """
        k = np.asarray(gain, dtype=np.float64)
        inside = np.where((k > 0.0) & (k < 1.0), k, 0.5)
        density = np.sqrt(self.share / (2.0 * np.pi * (1.0 - inside))) * inside**-1.5
        density = density * np.exp(-0.5 * self.share * (1.0 - inside) / inside)
        return np.where(k == 1.0, np.inf, np.where((k > 0.0) & (k < 1.0), density, 0.0))

    def probability(self, gain: ArrayLike) -> Array:
        """Return the probability that K is at most each gain, erfc √(c(1−K)/2K).

        >>> float(gain_law(0.9).probability(0.5).round(4))  # less than half, in most steps
        0.8185
        """
        k = np.clip(np.asarray(gain, dtype=np.float64), 0.0, 1.0)
        square = self.share * (1.0 - k) / (2.0 * np.maximum(k, np.finfo(np.float64).tiny))
        return np.where(k == 0.0, 0.0, _numpy(torch.special.erfc, np.sqrt(square)))

    def quantile(self, probability: ArrayLike) -> Array:
        """Return the gain that K stays below with each probability.

        >>> gain_law(0.9).quantile([0.05, 0.5, 0.95]).round(3)
        array([0.014, 0.104, 0.93 ])
        """
        p = np.asarray(probability, dtype=np.float64)
        if not ((p >= 0.0) & (p <= 1.0)).all():
            raise ValueError(f"Invalid probability, not in [0, 1]: {probability!r}")
        squares = np.square(_numpy(torch.special.ndtri, p / 2.0))
        return self.share / (self.share + squares)


def gain_law(beta1: float, *, variance_ratio: float = 1.0) -> GainLaw:
    r"""Return the law of the gain on steady normal noise.

    After many steps the residual :math:`r` of independent normal gradients is normal, and
    :math:`s`, an average over many of its squares, is its variance. Then with a standard normal
    :math:`z`

    .. math::
        K = \frac{c}{c + z^2}, \qquad c = \frac{1-\beta_1}{1+\beta_1}

    whatever the mean and the size of the gradient are: both are lost in the ratio. So they are for
    gradients that drift, as long as their residuals are normal and of a constant variance. With
    :math:`z = \sqrt c \sinh x` the mean of a power is

    .. math::
        \mathrm E\,K^\gamma
        = \sqrt{\tfrac{2c}{\pi}} \int_0^\infty (\cosh x)^{1-2\gamma} e^{-\frac c2 \sinh^2 x} dx,

    in closed form :math:`\sqrt{\pi c/2}\, e^{c/2} \operatorname{erfc}\sqrt{c/2}` for
    :math:`\gamma = 1` and :math:`\sqrt{c/2\pi}\, e^{c/4} K_0(c/4)` for :math:`\gamma = \frac12`,
    with the Bessel function :math:`K_0`. The integral is taken by the trapezoidal rule, whose
    error here is that of rounding.

    Args:
        beta1: decay rate of the running mean. At 0 exactly there is no residual, and the filter's
            gain is 0; the law is the limit of small ``beta1``.
        variance_ratio: how many times the present variance of the residual :math:`s` is; it
            multiplies c. It is 1 in a steady regime. After noise has changed its standard
            deviation by a factor f, it is :math:`1 + (f^{-2} - 1)\,\beta_2^n` n steps later, when
            the running mean has forgotten the old noise and :math:`s` has not.

    Raises:
        ValueError: if an argument is outside its range.

    Example:
        >>> from sgdf.theory import gain_law
        >>> law = gain_law(0.9)
        >>> round(law.mean, 4), round(law.mean_root, 4), round(law.derived, 4)
        (0.2416, 0.4124, 0.05)
    """
    if not is_number(beta1) or not 0.0 <= beta1 < 1.0:
        raise ValueError(f"Invalid beta1, not in [0, 1): {beta1}")
    if not is_number(variance_ratio) or not 0.0 < variance_ratio < math.inf:
        raise ValueError(f"Invalid variance_ratio, not positive and finite: {variance_ratio}")
    share = float(variance_ratio) * (1.0 - float(beta1)) / (1.0 + float(beta1))
    return GainLaw(
        share=share,
        derived=share / (1.0 + share),
        mean=_mean_power(share, 0.0, 1.0),
        mean_root=_mean_power(share, 0.0, 0.5),
    )


class SteadyGain(NamedTuple):
    """What the filter does on steady noise, on average."""

    mean: float
    """The mean of the gain."""
    mean_power: float
    """The mean of its power: the weight of the gradient."""


def steady_gain(
    *,
    betas: tuple[float, float],
    gamma: float = 0.5,
    eps: float = 0.0,
    correction: str = "paper",
) -> SteadyGain:
    r"""Return the mean gain, and the mean of its power, for any options of the filter.

    Beside :func:`gain_law` this counts the memory of :math:`s`, which is not endless: of the
    present square it has the share :math:`1-\beta_2`. In units of the residual's variance, with
    the residual's weight w = :math:`(1+\beta_1)/(1-\beta_1)`, or 1 without the paper's correction,

    .. math::
        K = \frac{v}{v + w z^2}, \qquad v = \beta_2 S + (1-\beta_2) z^2.

    S, a mean of earlier squares, is taken to be chi-squared with
    :math:`(1+\beta_2)/(1-\beta_2)` degrees of freedom, divided by their number: mean and variance
    are those of independent squares. (The squares of residuals are correlated, but at 0.9 only by
    0.0025.)

    Args:
        betas: of the filter.
        gamma: the power of the gain.
        eps: of the filter. Only ``inf`` changes the result: any other is negligible, unless the
            noise is.
        correction: of the filter.

    Raises:
        ValueError: if an option of the filter is wrong.

    Example:
        >>> from sgdf.theory import steady_gain
        >>> found = steady_gain(betas=(0.9, 0.9))  # a short memory
        >>> round(found.mean, 3), round(found.mean_power, 3)
        (0.231, 0.403)
    """
    check_filter_options(betas, eps, gamma, 0.0, correction)
    # Without beta1 the mean is the gradient: no residual, no variance, no gain.
    if betas[0] == 0.0 or eps == math.inf:
        return SteadyGain(0.0, 0.0**gamma)
    scalars = filter_scalars(
        math.inf, betas=betas, gamma=gamma, gamma_decay=0.0, correction=correction
    )
    weight, beta2 = float(scalars.residual_weight), float(betas[1])
    return SteadyGain(*(_steady_mean(weight, beta2, power) for power in (1.0, float(gamma))))


@functools.lru_cache(maxsize=64)  # the monitor asks for the same ones at every measurement
def _steady_mean(weight: float, beta2: float, gamma: float) -> float:
    """Return the mean of the gain's power, averaged over S."""
    total = (1.0 - beta2) + weight
    squares, weights = _chi_squared((1.0 + beta2) / (1.0 - beta2))
    means = [_mean_power(beta2 * one / total, (1.0 - beta2) / total, gamma) for one in squares]
    return float(np.dot(weights, means))


def _chi_squared(degrees: float) -> tuple[Array, Array]:
    """Return values that stand for chi-squared over its degrees of freedom, and their weights.

    Its logarithm y has a density in proportion to exp(ν/2 (y − eʸ)), so smooth that the
    trapezoidal rule is exact to rounding. The limits cut off e⁻⁴⁰ of its height at most.
    """
    low, high = -80.0 / degrees - math.sqrt(320.0 / degrees), math.sqrt(160.0 / degrees)
    y = np.linspace(low, high, 257)
    height = np.exp(0.5 * degrees * (y + 1.0 - np.exp(y)))
    return np.exp(y), height / height.sum()


def _mean_power(share: float, floor: float, gamma: float) -> float:
    """Return the mean of ((c + f z²)/(c + z²))^γ over a standard normal z.

    With z = √c sinh x the integrand is smooth at any c, and where the limit cuts it off it has
    fallen to e⁻⁴⁰: by the normal density, or by the gain's power, which is narrow if γ is large.
    """
    if share == 0.0:
        return float(floor**gamma)
    if gamma == math.inf:
        return 0.0
    x = np.linspace(0.0, math.asinh(math.sqrt(_limit(share, floor, gamma))), 257)
    squared = np.square(np.sinh(x))
    log_gain = np.log1p(floor * squared) - np.log1p(squared)
    height = np.exp(gamma * log_gain - 0.5 * share * squared) * np.cosh(x)
    area = x[1] * (height.sum() - 0.5 * height[0])
    return float(math.sqrt(2.0 * share / math.pi) * area)


def _limit(share: float, floor: float, gamma: float) -> float:
    """Return the square of sinh x beyond which nothing counts."""
    by_density = 80.0 / share
    if gamma < 1.5:
        return by_density
    # The power falls to e⁻⁶⁰ where (1 + y)/(1 + f y) is e^(60/γ), if it ever is. With the factor
    # cosh x that is e⁻⁴⁰ or less.
    ratio = math.exp(60.0 / gamma)
    if floor * ratio >= 1.0:
        return by_density
    return min(by_density, math.expm1(60.0 / gamma) / (1.0 - floor * ratio))


def _numpy(function: Callable[[Tensor], Tensor], values: Array) -> Array:
    """Return values of a function that torch has and NumPy does not."""
    result: Array = function(torch.from_numpy(np.asarray(values, dtype=np.float64))).numpy()
    return result
