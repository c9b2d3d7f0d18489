"""How far the filter's estimate can be from the gradient, whatever the gradients are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .descent import Descent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def log_gain_floor(betas: tuple[float, float]) -> float:
    r"""Return :math:`\Lambda = \ln\bigl(1 + 8 / ((1-\beta_2)(1-\beta_1)^2)\bigr)`.

    Where a residual counts, :math:`|r_t| \ge \max(\sqrt\varepsilon, 2\beta_1^t G)`, the gain is at
    least :math:`e^{-\Lambda}`: there :math:`|g_t - m_t| = |r_t + \beta_1^t \hat m_t| \ge |r_t|/2`,
    so :math:`s_t \ge (1-\beta_2) r_t^2/4`, and :math:`r_t^2 + \varepsilon \le 2 r_t^2`; and
    :math:`c_t \le (1-\beta_1)^{-2}`.

    Example:
        >>> from sgdf.theory.convergence.distance import log_gain_floor
        >>> round(log_gain_floor((0.9, 0.999)), 2)
        13.59
    """
    beta1, beta2 = betas
    return math.log1p(8.0 / ((1.0 - beta2) * (1.0 - beta1) ** 2))


def distance_bound(steps: int, gradient_bound: float, descent: Descent) -> Array:
    r"""Return bounds on :math:`|\hat g_{t,i} - g_{t,i}|` for t = 1, …, ``steps``.

    For every sequence of gradients with :math:`|g_{t,i}| \le G`:

    .. math::
        |\hat g_{t,i} - g_{t,i}| \le \min\bigl\{2\beta_1 G,\; \max\bigl(\sqrt\varepsilon,\;
        2\beta_1^t G,\; 2\beta_1 G\,(1 - e^{-\gamma_t \Lambda})\bigr)\bigr\}

    with the :math:`\Lambda` of ``log_gain_floor``, and 0 where :math:`\gamma_t = 0`. Proof:
    :math:`\hat g - g = -(1 - K^{\gamma_t})\, r`, and :math:`|r_t| \le 2\beta_1 G`. Either
    :math:`|r_t|` is below the larger one of the first two terms in the maximum, or
    :math:`K_t \ge e^{-\Lambda}`.

    With :math:`\gamma_t = \gamma_0/\sqrt t` the distance falls like :math:`1/\sqrt t`, down to
    :math:`\sqrt\varepsilon`; with a constant power it does not fall.

    Args:
        steps: the last t.
        gradient_bound: G.
        descent: has the betas, ε and the power.

    Example:
        >>> from sgdf.theory import Descent, distance_bound
        >>> fading = Descent(lr=1.0, gamma=0.5, gamma_decay=0.5)
        >>> distance_bound(10_000, 1.0, fading)[[0, 99, 9_999]].round(3)
        array([1.8  , 0.888, 0.118])
    """
    if steps < 1:
        raise ValueError(f"Invalid steps, less than 1: {steps}")
    if not gradient_bound > 0.0:
        raise ValueError(f"Invalid gradient_bound, not positive: {gradient_bound}")
    beta1 = descent.betas[0]
    exponents = descent.exponents(steps)
    whole = 2.0 * beta1 * gradient_bound
    held_back = whole * -np.expm1(-exponents * log_gain_floor(descent.betas))
    beginning = 2.0 * gradient_bound * beta1 ** np.arange(1.0, steps + 1)
    counts = np.maximum(math.sqrt(descent.eps), beginning)
    bound = np.minimum(whole, np.maximum(counts, held_back))
    return np.where(exponents == 0.0, 0.0, bound)
