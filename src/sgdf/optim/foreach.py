"""``sgdf.filter`` and ``sgdf.directions`` for lists of tensors: in place, with few kernels.

The numbers that all elements share are Python's, or 0-dimensional tensors on the device: of steps
that the host must not wait for, and in a compiled step, where a Python number would be a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..directions import root_correction
from ..filter import filter_scalars

TensorList = list[Tensor] | tuple[Tensor, ...]
Number = float | Tensor
Numbers = Any
"""A list of numbers: torch's operations take lists of tensors too, which its stubs lack."""


class FilterNumbers(NamedTuple):
    """What one step of the filter takes besides tensors; lists have a number for each tensor."""

    mean_weight: Number
    variance_decay: Number
    variance_weight: Number
    eps: Number
    mean_corrections: Numbers
    residual_weights: Numbers
    exponents: Numbers
    """None for the paper's power of the gain, the root, which is cheaper than a power."""


def filter_numbers(
    steps: Sequence[Number],
    dtype: torch.dtype,
    *,
    betas: tuple[float, float],
    eps: float,
    gamma: float,
    gamma_decay: float,
    correction: str,
    lag: int = 0,
) -> FilterNumbers:
    """Return the numbers of these steps, for tensors of this dtype."""
    beta1, beta2 = betas
    options: dict[str, Any] = {
        **{"gamma": gamma, "gamma_decay": gamma_decay},
        **{"correction": correction, "lag": lag},
    }
    mean_corrections, residual_weights, exponents = of_each_step(
        lambda step: filter_scalars(step, betas=betas, **options), steps, dtype
    )
    is_root = gamma == 0.5 and not gamma_decay
    return FilterNumbers(
        mean_weight=1.0 - beta1,
        variance_decay=beta2,
        variance_weight=1.0 - beta2,
        eps=eps,
        mean_corrections=mean_corrections,
        residual_weights=residual_weights,
        exponents=None if is_root else exponents,
    )


def of_each_step(
    compute: Callable[[Any], Sequence[Number]], steps: Sequence[Number], dtype: torch.dtype
) -> list[Numbers]:
    """Return lists of what ``compute`` returns for each step, a list for each of its results.

    Most parameters have taken equally many steps: each number of steps is computed once. On a
    device equal numbers cannot be told without waiting for it, and all are computed as one tensor.
    """
    if isinstance(steps[0], Tensor):
        results = compute(torch.stack(list(steps)).to(dtype))  # type: ignore[arg-type]
        return [
            list(result.unbind()) if isinstance(result, Tensor) else [result] * len(steps)
            for result in results
        ]
    computed = {step: compute(step) for step in set(steps)}
    return [list(column) for column in zip(*(computed[step] for step in steps), strict=True)]


def filter_gradients(
    numbers: FilterNumbers,
    grads: list[Tensor],
    filter_state: Sequence[list[Tensor]],
    squares: list[Tensor] | None = None,
) -> list[Tensor]:
    """Return the estimates of ``filter_gradient``, and update the means and variances.

    All tensors share one device and one real dtype, float32 or wider. Two more lists of tensors
    are allocated, of which one is returned.

    With ``squares`` this is ``filter_by_tensor`` instead: the variances are single numbers, and
    stay as they are; the sums of squares that the next ones are computed from are added to
    ``squares``.
    """
    means, variances = filter_state
    weight = numbers.mean_weight
    interpolate(means, grads, of_each(weight, means))
    deviations = torch._foreach_sub(grads, means)
    if squares is None:
        torch._foreach_mul_(variances, numbers.variance_decay)
        add_squares(variances, deviations, numbers.variance_weight)
    else:
        torch._foreach_mul_(deviations, deviations)
        torch._foreach_add_(squares, [deviation.sum() for deviation in deviations])
    del deviations

    estimates = torch._foreach_div(means, numbers.mean_corrections)
    gains = torch._foreach_sub(grads, estimates)  # the residuals, at first
    torch._foreach_mul_(gains, gains)
    torch._foreach_add_(gains, of_each(numbers.eps, gains))
    torch._foreach_mul_(gains, numbers.residual_weights)
    torch._foreach_add_(gains, variances)
    torch._foreach_clamp_min_(gains, torch.finfo(grads[0].dtype).tiny)
    # First the inverse of the gain, then the gain: in place, and rounding cannot exceed 1.
    torch._foreach_div_(gains, variances)
    torch._foreach_reciprocal_(gains)
    if numbers.exponents is None:
        torch._foreach_sqrt_(gains)
    else:
        torch._foreach_pow_(gains, numbers.exponents)
    interpolate(estimates, grads, gains)
    return list(estimates)


class AdamNumbers(NamedTuple):
    """What a step along Adam's direction takes besides tensors."""

    decay: Number
    weight: Number
    eps: Number
    root_corrections: Numbers


def adam_numbers(
    steps: Sequence[Number], dtype: torch.dtype, *, beta2: float, eps: float
) -> AdamNumbers:
    """Return the numbers of these steps, for tensors of this dtype."""
    (corrections,) = of_each_step(lambda step: (root_correction(beta2, step),), steps, dtype)
    return AdamNumbers(beta2, 1.0 - beta2, eps, corrections)


def adam_directions(
    numbers: AdamNumbers,
    estimates: list[Tensor],
    grads: list[Tensor],
    second_moments: list[Tensor],
) -> list[Tensor]:
    """Scale ``estimates`` in place as ``adam_direction`` does, and update ``second_moments``."""
    torch._foreach_mul_(second_moments, numbers.decay)
    add_squares(second_moments, grads, numbers.weight)
    roots = torch._foreach_sqrt(second_moments)
    torch._foreach_div_(roots, numbers.root_corrections)
    torch._foreach_add_(roots, of_each(numbers.eps, roots))
    torch._foreach_clamp_min_(roots, torch.finfo(grads[0].dtype).tiny)
    torch._foreach_div_(estimates, roots)
    return estimates


def of_each(number: Number, tensors: Sequence[Tensor]) -> Numbers:
    """Return a number as torch's operations on lists take it without waiting for its device.

    A tensor that is added to a list, or is the weight in it, would be read as a Python number.
    """
    return [number] * len(tensors) if isinstance(number, Tensor) else number


def interpolate(starts: TensorList, ends: list[Tensor], weights: float | TensorList) -> None:
    """Move ``starts`` towards ``ends`` by these shares of their differences."""
    if torch.compiler.is_compiling() and not isinstance(weights, float):
        # torch's compiler refuses lerp with lists of weights, and differences take no memory there.
        torch._foreach_addcmul_(starts, weights, torch._foreach_sub(ends, starts))
    else:
        torch._foreach_lerp_(starts, ends, weights)


def add_squares(sums: list[Tensor], values: TensorList, weight: Number) -> None:
    """Add this multiple of the squares of ``values`` to ``sums``."""
    if isinstance(weight, Tensor):  # only in a compiled step, where products take no memory
        squares = torch._foreach_mul(values, values)
        torch._foreach_add_(sums, torch._foreach_mul(squares, weight))
    else:
        torch._foreach_addcmul_(sums, values, values, weight)
