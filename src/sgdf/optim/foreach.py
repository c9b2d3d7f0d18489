"""``sgdf.filter`` and ``sgdf.directions`` for lists of tensors: in place, with few kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..directions import root_correction
from ..filter import filter_scalars


def filter_gradients(
    grads: list[Tensor],
    means: list[Tensor],
    variances: list[Tensor],
    steps: Sequence[float | Tensor],
    *,
    betas: tuple[float, float],
    eps: float,
    gamma: float,
    gamma_decay: float,
    correction: str,
) -> list[Tensor]:
    """Return the estimates of ``filter_gradient`` and update ``means`` and ``variances``.

    All tensors share one device and one real dtype, float32 or wider.
    """
    beta1, beta2 = betas
    dtype = grads[0].dtype
    scalars = (
        filter_scalars(
            step.to(dtype) if isinstance(step, Tensor) else step,
            betas=betas,
            gamma=gamma,
            gamma_decay=gamma_decay,
            correction=correction,
        )
        for step in steps
    )
    # Numbers or 0-dimensional tensors, like the steps: an overload that torch's stubs lack.
    columns: Any = zip(*scalars, strict=True)
    mean_corrections, residual_weights, exponents = map(list, columns)

    torch._foreach_lerp_(means, grads, 1.0 - beta1)
    deviations = torch._foreach_sub(grads, means)
    torch._foreach_mul_(variances, beta2)
    torch._foreach_addcmul_(variances, deviations, deviations, 1.0 - beta2)
    del deviations

    estimates = torch._foreach_div(means, mean_corrections)
    residuals = torch._foreach_sub(grads, estimates)
    gains = torch._foreach_mul(residuals, residuals)
    torch._foreach_add_(gains, eps)
    torch._foreach_mul_(gains, residual_weights)
    torch._foreach_add_(gains, variances)
    torch._foreach_clamp_min_(gains, torch.finfo(dtype).tiny)
    # First the inverse of the gain, then the gain: in place, and rounding cannot exceed 1.
    torch._foreach_div_(gains, variances)
    torch._foreach_reciprocal_(gains)
    if gamma == 0.5 and not gamma_decay:
        torch._foreach_sqrt_(gains)  # the paper's gamma; a root is cheaper than a power
    else:
        torch._foreach_pow_(gains, exponents)
    torch._foreach_addcmul_(estimates, gains, residuals)
    return list(estimates)


def adam_directions(
    estimates: list[Tensor],
    grads: list[Tensor],
    second_moments: list[Tensor],
    steps: Sequence[float | Tensor],
    *,
    beta2: float,
    eps: float,
) -> list[Tensor]:
    """Scale ``estimates`` in place as ``adam_direction`` does, and update ``second_moments``."""
    dtype = grads[0].dtype
    torch._foreach_mul_(second_moments, beta2)
    torch._foreach_addcmul_(second_moments, grads, grads, 1.0 - beta2)
    # Numbers or 0-dimensional tensors, as above.
    corrections: Any = [
        root_correction(beta2, step.to(dtype) if isinstance(step, Tensor) else step)
        for step in steps
    ]
    roots = torch._foreach_sqrt(second_moments)
    torch._foreach_div_(roots, corrections)
    torch._foreach_add_(roots, eps)
    torch._foreach_clamp_min_(roots, torch.finfo(dtype).tiny)
    torch._foreach_div_(estimates, roots)
    return estimates
