"""The directions that the optimizers move in, one row each.

A row says what state a direction has, and how it is computed: for one tensor, for a list of
tensors, and in ``native/kernels.c``. The equations are in ``sgdf.filter`` and ``sgdf.directions``;
momentum is short enough to stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import directions
from ..filter import (
    estimate_gradient,
    filter_by_element,
    filter_by_tensor,
    filter_scalars,
)
from . import foreach
from .foreach import Number

Group = dict[str, Any]

FILTER_STATE = ("exp_avg", "exp_var")
"""The buffers of the filter: running mean and residual variance."""


class NativeNumbers(NamedTuple):
    """What one step of the native code takes besides tensors."""

    scalars: list[tuple[float, float, float, float]]
    """For each of the step counts: those of ``filter_scalars``, and the divisor of Adam's root."""
    betas: tuple[float, float] = (0.0, 0.0)
    """Weights of the old moments in the new ones."""
    weights: tuple[float, float] = (0.0, 0.0)
    """Weights of this step's gradient in them."""
    eps: float = 0.0


class Direction(NamedTuple):
    """How a direction is computed from a gradient."""

    name: str
    buffers: tuple[str, ...]
    """The names of the buffers in the state, besides the step count."""
    one: Callable[..., Tensor]
    """From the group, the gradient, the buffers, the step and whether the variance is shared to
    the direction. The buffers are updated in place."""
    numbers: Callable[..., Any]
    """From the group, the steps, the dtype and whether the variance is shared to the numbers
    that ``many`` takes."""
    many: Callable[..., list[Tensor]]
    """From the group, the numbers, the gradients, a list for each buffer, and for a shared variance
    the sums of squares to add to, to the directions. The buffers are updated in place."""
    native_code: int | None
    """The number that ``kernels.c`` has for it; None if it has none."""
    native_numbers: Callable[..., NativeNumbers] | None
    """From the group, the step counts and whether the variance is shared."""
    elementwise: bool = True
    """Whether an element's direction depends only on its own gradient and state: then large
    tensors can be computed in parts."""


def filter_options(group: Group) -> Group:
    """Return the filter's options in ``group``."""
    return {name: group[name] for name in ("betas", "eps", "gamma", "gamma_decay", "correction")}


def recalled_filter(
    options: Group, grad: Tensor, step: float, exp_avg: Tensor, exp_var: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Recompute estimate, gain and residual of the step that has left this state."""
    options = dict(options)
    eps = options.pop("eps")
    return estimate_gradient(grad, exp_avg, exp_var, filter_scalars(step, **options), eps)


def filter_one(
    options: Group,
    grad: Tensor,
    filter_state: Sequence[Tensor],
    step: Number,
    shares_variance: bool = False,
) -> Tensor:
    """Return the estimate for one tensor, and update its state."""
    exp_avg, exp_var = filter_state
    compute = filter_by_tensor if shares_variance else filter_by_element
    if isinstance(step, Tensor):
        step = step.to(grad.dtype)
    out = compute(grad, exp_avg, exp_var, step, **options)
    exp_avg.copy_(out.mean)
    exp_var.copy_(out.var)
    return out.estimate


def filter_numbers(
    options: Group, steps: Sequence[Number], dtype: torch.dtype, shares_variance: bool = False
) -> foreach.FilterNumbers:
    """Return the numbers of the filter for lists of tensors."""
    return foreach.filter_numbers(steps, dtype, **options, lag=int(shares_variance))


def _native_filter_numbers(
    group: Group, counts: Sequence[float], shares_variance: bool, has_root: bool = False
) -> NativeNumbers:
    options = filter_options(group)
    eps = options.pop("eps")
    beta1, beta2 = group["betas"]
    rows = []
    for count in counts:
        scalars: Any = filter_scalars(count, **options, lag=int(shares_variance))
        root: Any = directions.root_correction(beta2, count) if has_root else 1.0
        rows.append((*scalars, root))
    return NativeNumbers(rows, (beta1, beta2), (1.0 - beta1, 1.0 - beta2), eps)


def _filter_row(
    name: str,
    turn: Callable[[Group, Tensor], Tensor],
    turn_all: Callable[[Group, list[Tensor]], list[Tensor]],
    native_code: int | None,
    elementwise: bool = True,
) -> Direction:
    """Return the row of a direction that the filtered gradient alone determines.

    ``turn`` and ``turn_all`` make directions of estimates, which they may change.
    """

    def one(
        group: Group, grad: Tensor, buffers: Sequence[Tensor], step: Number, shares_variance: bool
    ) -> Tensor:
        options = filter_options(group)
        return turn(group, filter_one(options, grad, buffers, step, shares_variance))

    def numbers(
        group: Group, steps: Sequence[Number], dtype: torch.dtype, shares_variance: bool
    ) -> foreach.FilterNumbers:
        return filter_numbers(filter_options(group), steps, dtype, shares_variance)

    def many(
        group: Group,
        numbers: foreach.FilterNumbers,
        grads: list[Tensor],
        buffers: Sequence[list[Tensor]],
        squares: list[Tensor] | None,
    ) -> list[Tensor]:
        return turn_all(group, foreach.filter_gradients(numbers, grads, buffers, squares))

    native_numbers = None if native_code is None else _native_filter_numbers
    return Direction(
        name, FILTER_STATE, one, numbers, many, native_code, native_numbers, elementwise
    )


def _keep(group: Group, estimate: Any) -> Any:
    return estimate


def _sign(group: Group, estimate: Tensor) -> Tensor:
    return directions.sign_direction(estimate)


def _sign_all(group: Group, estimates: list[Tensor]) -> list[Tensor]:
    torch._foreach_sign_(estimates)
    return estimates


def _orthogonal(group: Group, estimate: Tensor) -> Tensor:
    names = ("ns_steps", "ns_coefficients", "adjust_lr_fn")
    return directions.orthogonal_direction(estimate, **{name: group[name] for name in names})


def _orthogonal_all(group: Group, estimates: list[Tensor]) -> list[Tensor]:
    return [_orthogonal(group, estimate) for estimate in estimates]


def _adam(
    group: Group, grad: Tensor, buffers: Sequence[Tensor], step: Number, shares_variance: bool
) -> Tensor:
    *filter_state, exp_avg_sq = buffers
    estimate = filter_one(filter_options(group), grad, filter_state, step, shares_variance)
    direction, second_moment = directions.adam_direction(
        estimate, grad, exp_avg_sq, step, beta2=group["betas"][1], eps=group["eps"]
    )
    exp_avg_sq.copy_(second_moment)
    return direction


def _adam_numbers(
    group: Group, steps: Sequence[Number], dtype: torch.dtype, shares_variance: bool
) -> tuple[foreach.FilterNumbers, foreach.AdamNumbers]:
    return (
        filter_numbers(filter_options(group), steps, dtype, shares_variance),
        foreach.adam_numbers(steps, dtype, beta2=group["betas"][1], eps=group["eps"]),
    )


def _adam_all(
    group: Group,
    numbers: tuple[foreach.FilterNumbers, foreach.AdamNumbers],
    grads: list[Tensor],
    buffers: Sequence[list[Tensor]],
    squares: list[Tensor] | None,
) -> list[Tensor]:
    *filter_state, exp_avg_sqs = buffers
    of_filter, of_adam = numbers
    estimates = foreach.filter_gradients(of_filter, grads, filter_state, squares)
    return foreach.adam_directions(of_adam, estimates, grads, exp_avg_sqs)


def _native_adam_numbers(
    group: Group, counts: Sequence[float], shares_variance: bool
) -> NativeNumbers:
    return _native_filter_numbers(group, counts, shares_variance, has_root=True)


def momentum_weight(group: Group) -> float:
    """Return the weight of the gradient in UnifiedMomentum's momentum."""
    u: float | None = group["u"]
    return 1.0 - group["beta"] if u is None else u


def _momentum(
    group: Group, grad: Tensor, buffers: Sequence[Tensor], step: Number, shares_variance: bool
) -> Tensor:
    (exp_avg,) = buffers
    momentum: Tensor = group["beta"] * exp_avg + momentum_weight(group) * grad
    exp_avg.copy_(momentum)
    return momentum


def _momentum_numbers(
    group: Group, steps: Sequence[Number], dtype: torch.dtype, shares_variance: bool
) -> tuple[float, float]:
    return group["beta"], momentum_weight(group)


def _momentum_all(
    group: Group,
    numbers: tuple[Number, Number],
    grads: list[Tensor],
    buffers: Sequence[list[Tensor]],
    squares: list[Tensor] | None,
) -> list[Tensor]:
    (exp_avgs,) = buffers
    beta, weight = numbers
    torch._foreach_mul_(exp_avgs, beta)
    if isinstance(weight, Tensor):  # only in a compiled step, where products take no memory
        torch._foreach_add_(exp_avgs, torch._foreach_mul(grads, weight))
    else:
        torch._foreach_add_(exp_avgs, grads, alpha=weight)
    # Copies: the step multiplies the directions by lr in place, and the state must not change.
    return [exp_avg.clone() for exp_avg in exp_avgs]


def _native_momentum_numbers(
    group: Group, counts: Sequence[float], shares_variance: bool
) -> NativeNumbers:
    rows = [(0.0, 0.0, 0.0, 0.0)] * len(counts)  # the update does not depend on the step
    return NativeNumbers(rows, (group["beta"], 0.0), (momentum_weight(group), 0.0))


DIRECTIONS = {
    row.name: row
    for row in (
        _filter_row("sgdf", _keep, _keep, 0),
        _filter_row("sign", _sign, _sign_all, 1),
        Direction(
            "adam",
            (*FILTER_STATE, "exp_avg_sq"),
            *(_adam, _adam_numbers, _adam_all),
            *(2, _native_adam_numbers),
        ),
        Direction(
            "momentum",
            ("exp_avg",),
            *(_momentum, _momentum_numbers, _momentum_all),
            *(3, _native_momentum_numbers),
        ),
        _filter_row("orthogonal", _orthogonal, _orthogonal_all, None, elementwise=False),
    )
}
"""The rows by name."""
