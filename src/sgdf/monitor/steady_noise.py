"""The gain by theory: what the filter gives on steady noise, for any of its options."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from ..filter import filter_scalars


@functools.lru_cache(maxsize=64)
def steady_gain(
    *, betas: tuple[float, float], eps: float, correction: str, exponent: float
) -> tuple[float, float]:
    """Return the mean gain, and the mean of its power, on steady normal noise.

    After many steps the residual is normal, and ``var`` is the mean of its squares that beta2
    forms: beta2 of the earlier ones, and 1 - beta2 of this one. In units of the residual's
    variance, with a standard normal z and the residual's weight c = (1 + beta1) / (1 - beta1),
    or 1 without the paper's correction::

        K = v / (v + c z²),    v = beta2 S + (1 - beta2) z²

    S, a mean of many squares, has the law of chi-squared over its degrees of freedom, of which
    it has (1 + beta2) / (1 - beta2). Neither the size nor the mean of the gradient is in it.
    With beta2 near 1, v is 1 and the mean of K is √(π/2c) exp(1/2c) erfc(√(1/2c)).

    Args:
        betas: of the filter.
        eps: of the filter.
        correction: of the filter.
        exponent: the power of the gain.
    """
    beta1, beta2 = betas
    # Without beta1 the mean is the gradient: no residual, no variance, no gain. Any other eps is
    # negligible, unless the noise is.
    if beta1 == 0.0 or eps == math.inf:
        return 0.0, float(0.0**exponent)
    weight = filter_scalars(
        math.inf, betas=betas, gamma=exponent, gamma_decay=0.0, correction=correction
    ).residual_weight
    squares = _normal_quantiles(1024).square()
    degrees = (1.0 + beta2) / (1.0 - beta2)
    # Wilson and Hilferty: the cube root of chi-squared over its degrees is almost normal.
    spread = 2.0 / (9.0 * degrees)
    means = (1.0 - spread + math.sqrt(spread) * _normal_quantiles(32)).clamp_min(0.0) ** 3
    variances = beta2 * means[:, None] + (1.0 - beta2) * squares
    gains = variances / (variances + weight * squares)
    return float(gains.mean()), float(gains.pow(exponent).mean())


def _normal_quantiles(count: int) -> Tensor:
    """Return numbers of equal probability that stand for the normal law."""
    shares = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    quantiles: Tensor = torch.special.ndtri(shares)
    return quantiles
