"""What the filter adds to the running mean, as a function of the residual: a soft clamp."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..filter import FilterScalars, estimate_gradient, is_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


def influence(
    residual: ArrayLike, variance: ArrayLike, *, gamma: float = 0.5, eps: float = 0.0
) -> Array:
    r"""Return what the filter adds to the running mean, :math:`\hat g - \hat m`.

    With the residual :math:`r = g - \hat m` and the variance :math:`\hat s` that the filter
    takes the running mean to have, it is

    .. math::
        \psi(r) = K^\gamma r = r \left( \frac{\hat s}{\hat s + r^2 + \varepsilon} \right)^\gamma,
        \qquad\text{and}\qquad
        \psi(r) = \frac{r}{\sqrt{1 + r^2/\hat s}}
        \quad\text{for } \gamma = \tfrac12,\ \varepsilon = 0.

    So the default holds the estimate within one standard error of the running mean: a small
    residual passes, a large one counts for :math:`\sqrt{\hat s}` (pseudo-Huber). With
    :math:`\gamma = 1` a large residual counts for less and less (Cauchy).
    :func:`influence_bound` has the bounds. The function is odd in r: symmetric noise has no
    influence on average, and skewed noise has one.

    Args:
        residual: gradient less running mean.
        variance: :math:`\hat s`, at least 0; it broadcasts with ``residual``.
        gamma: power of the gain.
        eps: added to the squared residual.

    Raises:
        ValueError: if a variance is negative, or an option outside its range.

    Example:
        >>> from sgdf.theory import influence
        >>> influence([0.1, 1.0, 10.0, 100.0], 1.0).round(3)
        array([0.1  , 0.707, 0.995, 1.   ])
        >>> influence([0.1, 1.0, 10.0, 100.0], 1.0, gamma=1.0).round(3)
        array([0.099, 0.5  , 0.099, 0.01 ])
    """
    _check(variance, gamma, eps)
    grad, var = np.broadcast_arrays(
        np.asarray(residual, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    )
    # The filter itself, at a running mean of 0 and with all corrections made already.
    scalars = FilterScalars(mean_correction=1.0, residual_weight=1.0, exponent=gamma)
    mean = torch.zeros(grad.shape, dtype=torch.float64)
    estimate, _, _ = estimate_gradient(torch.tensor(grad), mean, torch.tensor(var), scalars, eps)
    found: Array = estimate.numpy()
    return found


def influence_bound(variance: ArrayLike, *, gamma: float = 0.5, eps: float = 0.0) -> Array:
    r"""Return the largest size that :func:`influence` has for any residual.

    For :math:`\gamma > \frac12` the maximum is at :math:`r^2 = (\hat s+\varepsilon)/(2\gamma-1)`
    and is

    .. math::
        \left(\frac{\hat s}{\hat s+\varepsilon}\right)^{\gamma} \sqrt{\hat s+\varepsilon}
        \cdot \frac{(2\gamma-1)^{\gamma-1/2}}{(2\gamma)^\gamma}
        \;\le\; \sqrt{\hat s}\,\frac{(2\gamma-1)^{\gamma-1/2}}{(2\gamma)^\gamma}.

    That is :math:`\sqrt{\hat s}/2` for :math:`\gamma = 1`, :math:`\varepsilon = 0`. For
    :math:`\gamma = \frac12` it is the limit :math:`\sqrt{\hat s}`, which no residual reaches. For
    :math:`\gamma < \frac12` there is none: the influence grows like
    :math:`\hat s^\gamma |r|^{1-2\gamma}`.

    Args:
        variance: :math:`\hat s`, at least 0.
        gamma: power of the gain.
        eps: added to the squared residual.

    Raises:
        ValueError: if a variance is negative, or an option outside its range.

    Example:
        >>> from sgdf.theory import influence_bound
        >>> [float(influence_bound(4.0, gamma=gamma)) for gamma in (0.25, 0.5, 1.0)]
        [inf, 2.0, 1.0]
    """
    _check(variance, gamma, eps)
    var = np.asarray(variance, dtype=np.float64)
    if gamma < 0.5:
        return np.where(var > 0.0, math.inf, 0.0)
    factor = (2.0 * gamma - 1.0) ** (gamma - 0.5) / (2.0 * gamma) ** gamma
    # v^γ (v + ε)^(½ − γ), without a quotient of zeros
    gain = var / np.maximum(var + eps, np.finfo(np.float64).tiny)
    return np.asarray(factor * gain ** (gamma - 0.5) * np.sqrt(var))


def _check(variance: ArrayLike, gamma: float, eps: float) -> None:
    if not (np.asarray(variance, dtype=np.float64) >= 0.0).all():
        raise ValueError(f"Invalid variance, negative: {variance!r}")
    for name, value in (("gamma", gamma), ("eps", eps)):
        if not is_number(value) or not value >= 0.0:
            raise ValueError(f"Invalid {name}, negative: {value}")
