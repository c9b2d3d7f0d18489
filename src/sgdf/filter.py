"""The gradient filter: every equation of SGDF that is not the parameter update.

Pure functions: tensors in, new tensors out; no learning rate, no state dict.
The fast paths in ``sgdf.optim`` repeat this arithmetic in place and are tested
against it.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

CORRECTIONS = ("paper", "none")


class FilterOutput(NamedTuple):
    """The result of one step of the filter.

    ``estimate`` is the filtered gradient and ``gain`` the weight in [0, 1] before
    the power ``gamma`` is taken; ``mean`` and ``var`` are the running moments to
    pass to the next step.
    """

    estimate: Tensor
    gain: Tensor
    mean: Tensor
    var: Tensor


class FilterScalars(NamedTuple):
    """The numbers of one step that all elements share."""

    mean_correction: float | Tensor
    """Divides the running mean to undo its start at zero."""
    residual_weight: float | Tensor
    """Weight of the squared residual against ``var`` in the gain: c_t in ``filter_gradient``."""
    exponent: float | Tensor
    """The power that the gain is raised to."""


def check_filter_options(
    betas: tuple[float, float],
    eps: float,
    gamma: float,
    gamma_decay: float,
    correction: str,
) -> None:
    """Raise the ``ValueError`` that names the first option of a wrong type or outside its range."""
    if not is_number(eps) or not eps >= 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"Invalid betas, expected two numbers: {betas}")
    for index, beta in enumerate(betas):
        if isinstance(beta, Tensor):
            raise ValueError(f"Invalid beta parameter at index {index}, a Tensor: {beta}")
        if not is_number(beta) or not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if not is_number(gamma) or not gamma >= 0.0:
        raise ValueError(f"Invalid gamma value: {gamma}")
    if not is_number(gamma_decay) or not gamma_decay >= 0.0:
        raise ValueError(f"Invalid gamma_decay value: {gamma_decay}")
    if not isinstance(correction, str) or correction not in CORRECTIONS:
        raise ValueError(f"Invalid correction: {correction!r}, expected one of {CORRECTIONS}")


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number that a float can hold, or such a Tensor."""
    if isinstance(value, Tensor):
        is_real = not value.is_complex() and value.dtype is not torch.bool
        return is_real and value.layout is torch.strided and not value.is_meta and value.dim() == 0
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, Real)):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def one_minus_power(beta: float, step: float | Tensor) -> float | Tensor:
    """Return ``1 - beta**step`` without cancellation where ``step`` is a tensor.

    On the host float64 is exact enough as written; a float32 step on a device is
    not: there 1 - 0.999**1 would be off by 1e-5.
    """
    if not isinstance(step, Tensor):
        return 1.0 - float(beta**step)
    # The logarithm makes beta a constant of a compiled graph, and must: torch 2.13
    # compiles a changing float that enters several operations to wrong numbers.
    return -torch.expm1(step * math.log(beta)) if beta > 0.0 else torch.ones_like(step)


def filter_scalars(
    step: float | Tensor,
    *,
    betas: tuple[float, float],
    gamma: float,
    gamma_decay: float,
    correction: str,
    lag: int = 0,
) -> FilterScalars:
    """Return the scalars of step ``step`` (1 for the first gradient).

    ``lag`` is the number of steps by which the variance is older than the mean.
    """
    beta1, beta2 = betas
    age = step - lag
    if lag:  # Of a variance that is still 0 the gain is 0 with any weight, but NaN with inf * 0.
        age = age.clamp(min=1.0) if isinstance(age, Tensor) else max(age, 1.0)
    residual_weight = one_minus_power(beta2, age)
    if correction == "paper":
        mean_share = (1.0 - beta1) / (1.0 + beta1) * one_minus_power(beta1, 2 * step)
        residual_weight = residual_weight / mean_share
    return FilterScalars(
        mean_correction=one_minus_power(beta1, step),
        residual_weight=residual_weight,
        exponent=gamma * step**-gamma_decay if gamma_decay else gamma,
    )


def filter_gradient(
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    step: float | Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    gamma: float,
    gamma_decay: float = 0.0,
    correction: str = "paper",
) -> FilterOutput:
    r"""Filter one gradient; the arguments are not changed.

    With the gradient :math:`g_t` and the moments :math:`m_{t-1}, s_{t-1}` (zero
    before the first step), element by element:

    .. math::
        m_t &= \beta_1 m_{t-1} + (1-\beta_1)\, g_t \\
        s_t &= \beta_2 s_{t-1} + (1-\beta_2)\, (g_t - m_t)^2 \\
        \hat m_t &= m_t / (1-\beta_1^t), \qquad r_t = g_t - \hat m_t \\
        c_t &= \frac{(1+\beta_1)(1-\beta_2^t)}{(1-\beta_1)(1-\beta_1^{2t})} \\
        K_t &= \frac{s_t}{s_t + c_t\,(r_t^2 + \varepsilon)} \\
        \hat g_t &= \hat m_t + K_t^{\gamma_t}\, r_t,
            \qquad \gamma_t = \gamma / t^{\texttt{gamma\_decay}}

    This is Algorithm 1 of the paper with numerator and denominator of the gain
    multiplied by :math:`c_t`. Where both are zero the gain is 0. With
    :math:`\gamma_t = \frac12` and :math:`\varepsilon = 0` it is exactly a soft clamp of the
    gradient to :math:`\hat m_t` plus or minus its standard error :math:`\sqrt{\hat s_t}`,
    :math:`\hat s_t = s_t/c_t`:

    .. math:: \hat g_t = \hat m_t + \frac{r_t}{\sqrt{1 + r_t^2/\hat s_t}}

    Args:
        grad: the gradient of this step, a real tensor.
        mean: running mean before this step.
        var: running residual variance before this step.
        step: number of this step, 1 for the first; a tensor keeps the arithmetic
            on its device, and its value is not checked.
        betas: decay rates of ``mean`` and ``var``.
        eps: added to the squared residual.
        gamma: power of the gain. 0 returns the gradient unchanged.
        gamma_decay: makes the power shrink as ``gamma / step**gamma_decay``.
        correction: ``"paper"`` for the factor :math:`c_t` above, ``"none"`` for
            :math:`c_t = 1-\beta_2^t`, Adam's correction alone.

    Returns:
        The estimate, the gain :math:`K_t` and the moments for the next step, in float32
        or the widest dtype among the arguments.

    Example:
        >>> import torch
        >>> from sgdf import filter_gradient
        >>> mean = var = torch.zeros(2)
        >>> for step, grad in enumerate([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]], start=1):
        ...     out = filter_gradient(torch.tensor(grad), mean, var, step,
        ...                           betas=(0.9, 0.999), eps=1e-8, gamma=0.5)
        ...     mean, var = out.mean, out.var
        >>> out.estimate  # the steady gradient passes, the erratic one is held back
        tensor([1.0000, 0.4790])
    """
    check_filter_options(betas, eps, gamma, gamma_decay, correction)
    if not isinstance(step, Tensor) and step < 1:
        raise ValueError(f"Invalid step, the first is 1: {step}")
    dtype = torch.float32
    for tensor in (grad, mean, var):
        dtype = torch.promote_types(dtype, tensor.dtype)
    if dtype.is_complex:
        raise ValueError("filter_gradient takes real tensors; pass complex ones as view_as_real")
    return filter_by_element(
        grad.to(dtype),
        mean.to(dtype),
        var.to(dtype),
        step.to(dtype) if isinstance(step, Tensor) else step,
        betas=betas,
        eps=eps,
        gamma=gamma,
        gamma_decay=gamma_decay,
        correction=correction,
    )


def filter_by_element(
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    step: float | Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    **power_and_correction: Any,
) -> FilterOutput:
    """Do what ``filter_gradient`` does, with arguments that are known to be valid, of one dtype."""
    beta1, beta2 = betas
    mean = mean.lerp(grad, 1.0 - beta1)
    deviation = grad - mean
    var = torch.addcmul(beta2 * var, deviation, deviation, value=1.0 - beta2)
    scalars = filter_scalars(step, betas=betas, **power_and_correction)
    estimate, gain, _ = estimate_gradient(grad, mean, var, scalars, eps)
    return FilterOutput(estimate, gain, mean, var)


def filter_by_tensor(
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    step: float | Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    **power_and_correction: Any,
) -> FilterOutput:
    r"""Filter one gradient with one variance for the whole tensor; the arguments as above.

    The equations are those of ``filter_gradient`` except for the variance. It is a mean over the
    :math:`n` elements, and is used one step later, so that a step can read and write every
    element just once:

    .. math::
        s_t &= \beta_2 s_{t-1} + (1-\beta_2)\, \tfrac1n \lVert g_t - m_t \rVert^2 \\
        c_t &= \frac{(1+\beta_1)(1-\beta_2^{t-1})}{(1-\beta_1)(1-\beta_1^{2t})} \\
        K_t &= \frac{s_{t-1}}{s_{t-1} + c_t\,(r_t^2 + \varepsilon)}

    ``var`` is :math:`s_{t-1}`, of one element, and the result has :math:`s_t`.
    """
    beta1, beta2 = betas
    mean = mean.lerp(grad, 1.0 - beta1)
    square = (grad - mean).square().sum() / max(1, grad.numel())
    scalars = filter_scalars(step, betas=betas, **power_and_correction, lag=1)
    estimate, gain, _ = estimate_gradient(grad, mean, var, scalars, eps)
    return FilterOutput(estimate, gain, mean, next_shared_variance(var, square, beta2, 1.0 - beta2))


def next_shared_variance(
    var: Tensor, square: Tensor, beta2: float | Tensor, weight: float | Tensor
) -> Tensor:
    """Return the variance of a whole tensor, given the mean square of this step's deviations.

    ``weight`` is ``1 - beta2``: computed from a float32 tensor it would lose half of its digits.
    A mean square that is not finite changes nothing: one element would spoil all others.
    """
    return torch.where(square.isfinite(), beta2 * var + weight * square, var)


def previous_shared_variance(
    grad: Tensor, mean: Tensor, var: Tensor, step: float, *, betas: tuple[float, float], **rest: Any
) -> Tensor:
    """Return the variance that ``filter_by_tensor`` has used in the step that has left this state.

    It is scaled so that it gives the same gain without the lag. The mean square of the step is
    taken out again. With betas[1] = 0 nothing older is left, and the present one is returned.
    """
    if step <= 1:
        return torch.zeros_like(var)
    rest.pop("eps")
    now, then = (
        filter_scalars(step, betas=betas, lag=lag, **rest).residual_weight for lag in (0, 1)
    )
    beta2 = betas[1]
    square = (grad - mean).square().mean()
    before = (var - (1.0 - beta2) * square) / beta2 if beta2 else var
    return torch.where(square.isfinite(), before, var).clamp_min(0.0) * (now / then)


def estimate_gradient(
    grad: Tensor, mean: Tensor, var: Tensor, scalars: FilterScalars, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return estimate, gain and residual, given the moments that already contain ``grad``."""
    corrected_mean = mean / scalars.mean_correction
    residual = grad - corrected_mean
    total = residual.square().add_(eps).mul_(scalars.residual_weight).add_(var)
    # The floor only matters where the ratio would be 0/0, and makes it 0.
    gain = var / total.clamp_min_(torch.finfo(grad.dtype).tiny)
    estimate = torch.addcmul(corrected_mean, power(gain, scalars.exponent), residual)
    return estimate, gain, residual


def power(base: Tensor, exponent: float | Tensor) -> Tensor:
    """Return ``base**exponent``; autograd takes its slope at a base of 0 to be 0.

    A power below 1 is infinitely steep there, and would turn every zero gradient into a NaN.
    """
    steep = isinstance(exponent, Tensor) or exponent < 1.0
    if not steep or not torch.is_grad_enabled():
        return base.pow(exponent)
    positive = base > 0
    return torch.where(
        positive, torch.where(positive, base, 1.0).pow(exponent), base.detach().pow(exponent)
    )
