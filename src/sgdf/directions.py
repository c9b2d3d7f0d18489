"""Update directions: pure functions of the filtered gradient (the estimate).

Tensors in, new tensors out, as in ``sgdf.filter``; the learning rate is applied afterwards.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .filter import one_minus_power, power

NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that moves singular values towards 1 (Jordan et al., Muon, 2024)."""
_SMALLEST_NORM = 1e-7

SHAPE_SCALES = (None, "original", "match_rms_adamw")


def adam_direction(
    estimate: Tensor,
    grad: Tensor,
    second_moment: Tensor,
    step: float | Tensor,
    *,
    beta2: float,
    eps: float,
) -> tuple[Tensor, Tensor]:
    r"""Scale the estimate by the root mean square of the raw gradients.

    .. math::
        v_t = \beta_2 v_{t-1} + (1-\beta_2)\, g_t^2, \qquad
        \hat g_t \big/ \left(\sqrt{v_t / (1-\beta_2^t)} + \varepsilon\right)

    Where numerator and denominator are both zero (``eps=0``, no gradient yet), the direction is 0.

    Returns:
        The direction and :math:`v_t`.
    """
    second_moment = torch.addcmul(beta2 * second_moment, grad, grad, value=1.0 - beta2)
    if isinstance(step, Tensor):
        step = step.to(second_moment.dtype)
    root = power(second_moment, 0.5) / root_correction(beta2, step)
    smallest = torch.finfo(root.dtype).tiny
    return estimate / (root + eps).clamp_min(smallest), second_moment


def root_correction(beta2: float, step: float | Tensor) -> float | Tensor:
    """Return the divisor of the second moment's root that undoes the start at zero."""
    correction = one_minus_power(beta2, step)
    return correction.sqrt() if isinstance(correction, Tensor) else math.sqrt(correction)


def sign_direction(estimate: Tensor) -> Tensor:
    """Return -1, 0 or 1 for each element; 0 for a NaN, as in ``torch.sign``."""
    return estimate.sign()


def orthogonal_direction(
    estimate: Tensor,
    *,
    ns_steps: int,
    ns_coefficients: tuple[float, float, float] = NS_COEFFICIENTS,
    adjust_lr_fn: str | None = None,
) -> Tensor:
    r"""Bring the estimate's singular values near 1 by Newton–Schulz iterations.

    The estimate, as a matrix :math:`X` of its first dimension by the rest, divided by its
    norm, is transformed ``ns_steps`` times by

    .. math:: X \leftarrow aX + \left(b\,XX^\top + c\,(XX^\top)^2\right) X

    in bfloat16, as in ``torch.optim.Muon``, and is scaled by ``shape_scale``. With the
    usual coefficients five iterations take singular values of a hundredth of the norm and more
    to between 0.68 and 1.14, some 0.02 further off with bfloat16's rounding: they do not
    converge, which training does not need.
    """
    rows_by_columns = estimate.flatten(1)
    is_tall = rows_by_columns.size(0) > rows_by_columns.size(1)
    flat = (rows_by_columns.mT if is_tall else rows_by_columns).bfloat16()
    flat = flat / flat.norm().clamp(min=_SMALLEST_NORM)
    a, b, c = ns_coefficients
    for _ in range(ns_steps):
        gram = flat @ flat.mT
        flat = torch.addmm(flat, torch.addmm(gram, gram, gram, beta=b, alpha=c), flat, beta=a)
    scale = shape_scale(rows_by_columns.shape, adjust_lr_fn)
    return (flat.mT if is_tall else flat).to(estimate.dtype).mul(scale).reshape(estimate.shape)


def shape_scale(shape: torch.Size, adjust_lr_fn: str | None) -> float:
    """Return the factor that an orthogonal update of this shape is multiplied by.

    None and ``"original"`` give tall matrices the root of their aspect ratio;
    ``"match_rms_adamw"`` gives every matrix an update as large as AdamW's, element by
    element on average, so that its learning rate carries over.
    """
    rows, columns = shape
    if adjust_lr_fn == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / max(1, columns)))
