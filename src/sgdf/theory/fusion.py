"""The fusion of two estimates of one number: the gain of the smallest error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..filter import is_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


class Fusion(NamedTuple):
    """Two normal sources as one; see :func:`fuse`."""

    mean: Array
    """The fused mean."""
    variance: Array
    """The fused variance."""
    gain: Array
    """The weight of the gradient."""
    log_normaliser: Array
    """The logarithm of the area under the product of both densities."""


def fuse(
    mean_m: ArrayLike,
    variance_m: ArrayLike,
    mean_g: ArrayLike,
    variance_g: ArrayLike,
    *,
    covariance: ArrayLike = 0.0,
    gain: ArrayLike | None = None,
) -> Fusion:
    r"""Fuse a running mean m and a gradient g, two normal sources, with the smallest variance.

    :math:`(1-K)\,m + K g` has the mean and the variance

    .. math::
        \mu = (1-K)\,\mu_m + K \mu_g, \qquad
        \sigma^2 = (1-K)^2 \sigma_m^2 + K^2 \sigma_g^2 + 2K(1-K)\,\mathrm{Cov},

    and the variance is smallest at :math:`K = (\sigma_m^2 - \mathrm{Cov})/D` with
    :math:`D = \sigma_m^2 + \sigma_g^2 - 2\,\mathrm{Cov}`, the variance of :math:`m - g`: it is
    :math:`(\sigma_m^2\sigma_g^2 - \mathrm{Cov}^2)/D`, never larger than either. If m already
    contains g, K can be negative.

    For independent sources the product of their densities is
    :math:`Z \cdot \mathcal N(\mu, \sigma^2)` with

    .. math::
        \ln Z = -\tfrac12 \ln(2\pi D) - \frac{(\mu_m - \mu_g)^2}{2D}.

    For dependent ones the same holds of their joint density where both have the same value.

    Args:
        mean_m: mean of the running mean.
        variance_m: its variance.
        mean_g: mean of the gradient.
        variance_g: its variance.
        covariance: of both; 0 if they are independent.
        gain: K; by default the one of the smallest variance. Mean and variance are those at this
            gain, so that a gain can be judged that was made for other sources.

    Raises:
        ValueError: if variances and covariance cannot be of two numbers that differ.

    Example:
        The gain that is derived for independence, 0.05 at β₁ = 0.9, promises a variance of 0.05.
        But the running mean contains the gradient, and is better alone:

        >>> from sgdf.theory import fuse, running_mean_moments
        >>> moments = running_mean_moments(0.9)
        >>> sources = (0.0, moments.corrected_variance, 0.0, 1.0)
        >>> promised = fuse(*sources)
        >>> true = fuse(*sources, covariance=moments.covariance, gain=promised.gain)
        >>> best = fuse(*sources, covariance=moments.covariance)
        >>> [round(float(v), 4) for v in (promised.variance, true.variance, sources[1])]
        [0.05, 0.0595, 0.0526]
        >>> round(float(best.gain), 4)
        -0.0556
    """
    mu_m, mu_g = np.asarray(mean_m, dtype=np.float64), np.asarray(mean_g, dtype=np.float64)
    var_m, var_g, cov = _sources(variance_m, variance_g, covariance)
    spread = var_m + var_g - 2.0 * cov
    best = mmse_gain(var_m, var_g, covariance=cov)
    weight = best if gain is None else np.asarray(gain, dtype=np.float64)
    return Fusion(
        mean=(1.0 - weight) * mu_m + weight * mu_g,
        variance=(1.0 - weight) ** 2 * var_m
        + weight**2 * var_g
        + 2.0 * weight * (1.0 - weight) * cov,
        gain=weight,
        log_normaliser=-0.5 * np.log(2.0 * np.pi * spread) - (mu_m - mu_g) ** 2 / (2.0 * spread),
    )


def mmse_gain(
    variance_m: ArrayLike,
    variance_g: ArrayLike,
    *,
    bias: ArrayLike = 0.0,
    covariance: ArrayLike = 0.0,
) -> Array:
    r"""Return the gain of the smallest mean squared error, where the running mean is biased.

    If g is unbiased and m has the bias :math:`\delta`, the mean squared error of
    :math:`(1-K)\,m + K g` is smallest at

    .. math::
        K = \frac{\sigma_m^2 + \delta^2 - \mathrm{Cov}}
                 {\sigma_m^2 + \delta^2 + \sigma_g^2 - 2\,\mathrm{Cov}}.

    A bias raises it. In the filter the bias is part of the residual, whose square is in the
    denominator alone: there a bias that s has not seen yet lowers the gain
    (:func:`jump_response`).

    Args:
        variance_m: variance of the running mean.
        variance_g: variance of the gradient.
        bias: of the running mean.
        covariance: of both.

    Raises:
        ValueError: if variances and covariance cannot be of two numbers that differ.

    Example:
        >>> from sgdf.theory import mmse_gain
        >>> mmse_gain(1.0, 19.0, bias=[0.0, 1.0, 10.0]).round(3)
        array([0.05 , 0.095, 0.842])
    """
    var_m, var_g, cov = _sources(variance_m, variance_g, covariance)
    square = var_m + np.square(np.asarray(bias, dtype=np.float64))
    return np.asarray((square - cov) / (square + var_g - 2.0 * cov))


def effective_variance(
    variance_m: ArrayLike, variance_g: ArrayLike, *, gamma: float = 0.5
) -> Array:
    r"""Return the gradient's variance for which the powered gain would be the derived gain.

    :math:`K^\gamma = \sigma_m^2/(\sigma_m^2 + \tilde\sigma_g^2)` with
    :math:`K = \sigma_m^2/(\sigma_m^2 + \sigma_g^2)` if

    .. math::
        \tilde\sigma_g^2 = \sigma_m^2
            \left( \left( 1 + \sigma_g^2/\sigma_m^2 \right)^\gamma - 1 \right).

    For :math:`\gamma < 1` that is less than :math:`\gamma\sigma_g^2` (Bernoulli's inequality): the
    power trusts the gradient more, as if it had less noise. For :math:`\gamma = 0` it has none.

    Args:
        variance_m: variance of the running mean, positive.
        variance_g: variance of the gradient.
        gamma: power of the gain.

    Raises:
        ValueError: if an argument is outside its range.

    Example:
        >>> from sgdf.theory import effective_variance
        >>> float(effective_variance(1.0, 19.0).round(3))  # K = 0.05 becomes 0.224
        3.472
    """
    if not is_number(gamma) or not gamma >= 0.0:
        raise ValueError(f"Invalid gamma, negative: {gamma}")
    var_m, var_g, _ = _sources(variance_m, variance_g, 0.0)
    if not (var_m > 0.0).all():
        raise ValueError(f"Invalid variance_m, not positive: {variance_m!r}")
    return np.asarray(var_m * np.expm1(gamma * np.log1p(var_g / var_m)))


def _sources(
    variance_m: ArrayLike, variance_g: ArrayLike, covariance: ArrayLike
) -> tuple[Array, Array, Array]:
    """Return variances and covariance as arrays that two numbers can have."""
    var_m, var_g, cov = (
        np.asarray(value, dtype=np.float64) for value in (variance_m, variance_g, covariance)
    )
    for name, value in (("variance_m", var_m), ("variance_g", var_g)):
        if not ((value >= 0.0) & np.isfinite(value)).all():
            raise ValueError(f"Invalid {name}, not a variance: {value}")
    # Rounding may take a covariance a little beyond what Cauchy and Schwarz allow.
    if not (cov**2 <= var_m * var_g * (1.0 + 1e-12)).all():
        raise ValueError(f"Invalid covariance, larger than the variances allow: {covariance!r}")
    if not (var_m + var_g - 2.0 * cov > 0.0).all():
        raise ValueError("Invalid variances: the sources do not differ, and any gain is the same")
    return var_m, var_g, cov
