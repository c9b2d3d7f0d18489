"""The base class of the optimizers with a filter: its options, and what the monitor asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..filter import check_filter_options, previous_shared_variance
from .base import BaseOptimizer
from .codings import buffer_dtype
from .direction_table import Group, filter_options, recalled_filter


class FilterOptimizer(BaseOptimizer):
    """An optimizer whose direction is computed from the filtered gradient."""

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

    def _recalled_state(self, group: Group, param: Tensor) -> tuple[float, list[Tensor]]:
        step, (exp_avg, exp_var) = super()._recalled_state(group, param)
        if self._layout_of(group, param).format.shares_variance and param.grad is not None:
            grad = self._seen(group, param.grad.to(buffer_dtype(param)), param)
            options = filter_options(group)
            exp_var = previous_shared_variance(grad, exp_avg, exp_var, step, **options)
        return step, [exp_avg, exp_var]

    def _recalled(
        self, group: Group, grad: Tensor, step: float, *buffers: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        return recalled_filter(filter_options(group), grad, step, *buffers)

    def _filter_in(self, group: Group) -> Group | None:
        return filter_options(group)
