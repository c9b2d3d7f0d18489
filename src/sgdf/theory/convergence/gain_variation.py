"""The total variation of the powered gain, which the regret bound of the paper contains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..filter_steps import filter_steps
from .descent import Descent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def powered_gains(gradients: Tensor, descent: Descent) -> Tensor:
    r"""Return :math:`\tilde K_t = K_t^{\gamma_t}` along gradients; the first axis counts steps."""
    if gradients.dim() < 1 or not len(gradients):
        raise ValueError(f"Invalid gradients, without a step: shape {tuple(gradients.shape)}")
    steps = filter_steps(gradients.detach().numpy(), **descent.filter_options)
    return torch.from_numpy(np.stack([step.powered_gain for step in steps]))


def gain_variation(gradients: Tensor, descent: Descent) -> Tensor:
    r"""Return :math:`\sum_{t<T} |\tilde K_{t+1} - \tilde K_t|` for T = 1, 2, … along gradients.

    With a constant power it grows linearly, because the gains of two steps differ by an amount
    that does not shrink; with :math:`\gamma_t = \gamma_0/\sqrt t` it grows like
    :math:`\sqrt T`.

    Args:
        gradients: the first axis counts the steps; all other axes are independent series.
        descent: has the filter's options.

    Example:
        >>> import torch
        >>> from sgdf.theory import Descent, gain_variation
        >>> noise = torch.randn(2000, 200, generator=torch.Generator().manual_seed(0))
        >>> steady = gain_variation(noise, Descent(lr=1.0, gamma=0.5)).mean(1)
        >>> round((steady[-1] / 2000).item(), 2)
        0.29
        >>> fading = Descent(lr=1.0, gamma=0.5, gamma_decay=0.5)
        >>> round((gain_variation(noise, fading).mean(1)[-1] / 2000**0.5).item(), 1)
        1.4
    """
    gains = powered_gains(gradients, descent)
    return torch.cat([torch.zeros_like(gains[:1]), gains.diff(dim=0).abs().cumsum(0)])


def gain_variation_bound(
    steps: int, gradient_bound: float, first_gradient: float, descent: Descent
) -> Array:
    r"""Return bounds on ``gain_variation`` for T = 1, …, ``steps``, for every gradient sequence.

    With :math:`|g_t| \le G`, :math:`g_1 \ne 0`, ε > 0 and β₁, β₂ > 0:

    .. math::
        \sum_{t<T} |\tilde K_{t+1} - \tilde K_t| \le \frac1e \sum_{t<T}
        \Bigl(\frac{\gamma_t}{\gamma_{t+1}} - 1\Bigr) + A \sum_{t<T} \gamma_t + \gamma_1 B

    .. math::
        A = \ln\Bigl(1 + \frac{4\beta_1^2 G^2}{\varepsilon}\Bigr) + 2\ln\frac1{\beta_2}, \qquad
        B = \ln\frac{4 G^2}{(1-\beta_2)\, g_1^2} + \Bigl|\ln\frac{1-\beta_1^2}{1-\beta_2}\Bigr|

    This is the conclusion of Lemma B.7: :math:`O(\sqrt T)` for
    :math:`\gamma_t = \gamma_0/\sqrt t`. Proof: :math:`-\ln K = \ln(1 + e^x)` with
    :math:`x = \ln c_t + \ln(r_t^2 + \varepsilon) - \ln s_t` changes at most as much as x does.
    The second part of x changes by at most the first part of A in a step. :math:`\ln s_t` falls by
    at most :math:`\ln(1/\beta_2)` in a step, and rises in all by what it falls and
    :math:`\ln(4\beta_1^2 G^2/s_1)`. :math:`\ln c_t` is monotone. Summation by parts gives the
    weights :math:`\gamma_t`. What the change of the power adds is at most
    :math:`\max_{x \le 1} (x^{\gamma_{t+1}} - x^{\gamma_t}) \le (\gamma_t - \gamma_{t+1})/
    (e\,\gamma_{t+1})`. No variation is larger than T − 1.

    Args:
        steps: the last T.
        gradient_bound: G.
        first_gradient: :math:`g_1`.
        descent: has the betas, ε and the power.

    Raises:
        ValueError: if one of the conditions does not hold.

    Example:
        >>> from sgdf.theory import Descent, gain_variation_bound
        >>> fading = Descent(lr=1.0, gamma=0.5, gamma_decay=0.5)
        >>> gain_variation_bound(10_000, 1.0, 1.0, fading)[[99, 9_999]].round()
        array([  99., 1954.])
    """
    (beta1, beta2), eps = descent.betas, descent.eps
    if steps < 1:
        raise ValueError(f"Invalid steps, less than 1: {steps}")
    if not 0.0 < abs(first_gradient) <= gradient_bound:
        raise ValueError(
            f"Invalid first_gradient, expected 0 < |{first_gradient}| ≤ {gradient_bound}"
        )
    if not (eps > 0.0 and beta1 > 0.0 and beta2 > 0.0):
        raise ValueError(f"Invalid options, expected eps and betas above 0: {eps}, {beta1, beta2}")
    if not 0.0 < descent.gamma < math.inf:
        raise ValueError(f"Invalid gamma, expected a positive number: {descent.gamma}")
    exponents = descent.exponents(steps)
    power_change = (exponents[:-1] / exponents[1:] - 1.0) / math.e
    each = math.log1p(4.0 * (beta1 * gradient_bound) ** 2 / eps) - 2.0 * math.log(beta2)
    once = math.log(4.0 * (gradient_bound / first_gradient) ** 2 / (1.0 - beta2))
    once += abs(math.log((1.0 - beta1**2) / (1.0 - beta2)))
    sums = np.concatenate([[0.0], (power_change + each * exponents[:-1]).cumsum()])
    return np.asarray(np.minimum(np.arange(float(steps)), sums + exponents[0] * once))
