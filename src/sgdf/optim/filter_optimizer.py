"""The base class of the optimizers with a filter: its options, its state, the directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .. import directions
from ..filter import check_filter_options, estimate_gradient, filter_gradient, filter_scalars
from . import foreach
from .base import BaseOptimizer, Group
from .native.step import TensorTable, common_options, take_step

STATE = ("exp_avg", "exp_var")
"""State keys of the filter: of the running mean and of the residual variance."""


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


class FilterOptimizer(BaseOptimizer):
    """An optimizer whose direction is computed from the filtered gradient.

    Each kind in ``_kinds`` is one of ``TURNS``.
    """

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        super().__init__(params, defaults)

    @classmethod
    def _instead_of(cls, options: Mapping[str, Any]) -> str:
        if "momentum" not in options:
            return super()._instead_of(options)
        return (
            "its filter replaces momentum, and its memory is betas[0]: write "
            f"betas=({options['momentum']}, 0.999)"
        )

    def _check_options(self, group: Group) -> None:
        super()._check_options(group)
        check_filter_options(**filter_options(group))

    def _direction(
        self,
        kind: str,
        group: Group,
        grad: Tensor,
        buffers: Sequence[Tensor],
        step: float | Tensor,
    ) -> Tensor:
        exp_avg, exp_var, *others = buffers
        out = filter_gradient(grad, exp_avg, exp_var, step, **filter_options(group))
        exp_avg.copy_(out.mean)
        exp_var.copy_(out.var)
        return TURNS[kind].one(group, out.estimate, grad, step, *others)

    def _directions(
        self,
        kind: str,
        group: Group,
        grads: list[Tensor],
        buffers: Sequence[list[Tensor]],
        steps: Sequence[float | Tensor],
    ) -> list[Tensor]:
        exp_avgs, exp_vars, *others = buffers
        estimates = foreach.filter_gradients(
            grads, exp_avgs, exp_vars, steps, **filter_options(group)
        )
        return TURNS[kind].many(group, estimates, grads, steps, *others)

    def _step_fused(self, kind: str, group: Group, table: TensorTable) -> None:
        beta1, beta2 = group["betas"]
        scalar_options = filter_options(group)
        eps = scalar_options.pop("eps")
        take_step(
            table,
            kind,
            lambda step: (
                *filter_scalars(step, **scalar_options),
                directions.root_correction(beta2, step),
            ),
            betas=group["betas"],
            weights=(1.0 - beta1, 1.0 - beta2),
            eps=eps,
            **common_options(group),
        )

    def _recalled(
        self, group: Group, grad: Tensor, step: float, *buffers: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        return recalled_filter(filter_options(group), grad, step, *buffers)

    def _filter_in(self, group: Group) -> Group | None:
        return filter_options(group)


class Turn(NamedTuple):
    """Functions from the estimate to the direction, for one tensor and for a list of tensors.

    Both take the group, the estimate, the gradient, the step and the buffers besides the
    filter's, which they update.
    """

    one: Callable[..., Tensor]
    many: Callable[..., list[Tensor]]


def _keep(group: Group, estimate: Tensor, *_: object) -> Tensor:
    return estimate


def _keep_all(group: Group, estimates: list[Tensor], *_: object) -> list[Tensor]:
    return estimates


def _sign(group: Group, estimate: Tensor, *_: object) -> Tensor:
    return directions.sign_direction(estimate)


def _sign_all(group: Group, estimates: list[Tensor], *_: object) -> list[Tensor]:
    torch._foreach_sign_(estimates)
    return estimates


def _adam(
    group: Group, estimate: Tensor, grad: Tensor, step: float | Tensor, exp_avg_sq: Tensor
) -> Tensor:
    direction, second_moment = directions.adam_direction(
        estimate, grad, exp_avg_sq, step, beta2=group["betas"][1], eps=group["eps"]
    )
    exp_avg_sq.copy_(second_moment)
    return direction


def _adam_all(
    group: Group,
    estimates: list[Tensor],
    grads: list[Tensor],
    steps: Sequence[float | Tensor],
    exp_avg_sqs: list[Tensor],
) -> list[Tensor]:
    return foreach.adam_directions(
        estimates, grads, exp_avg_sqs, steps, beta2=group["betas"][1], eps=group["eps"]
    )


def _orthogonal(group: Group, estimate: Tensor, *_: object) -> Tensor:
    names = ("ns_steps", "ns_coefficients", "adjust_lr_fn")
    return directions.orthogonal_direction(estimate, **{name: group[name] for name in names})


def _orthogonal_all(group: Group, estimates: list[Tensor], *_: object) -> list[Tensor]:
    return [_orthogonal(group, estimate) for estimate in estimates]


TURNS = {
    "sgdf": Turn(_keep, _keep_all),
    "sign": Turn(_sign, _sign_all),
    "adam": Turn(_adam, _adam_all),
    "orthogonal": Turn(_orthogonal, _orthogonal_all),
}
