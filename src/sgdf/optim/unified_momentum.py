"""UnifiedMomentum: the moving average and classical momentum as one rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..filter import is_number
from .base import BaseOptimizer
from .direction_table import Group, momentum_weight
from .missing_options import advises, dampening_fault, number, show_number


def _check_momentum(beta: float, u: float | None) -> None:
    if isinstance(beta, Tensor) or not is_number(beta) or not 0.0 <= beta < 1.0:
        raise ValueError(f"Invalid beta value: {beta}")
    if u is None:
        return
    # 1 - 0.99 is a little more than 0.01 in floating point.
    is_weight = is_number(u) and not isinstance(u, Tensor)
    if not is_weight or not 1.0 - beta <= u * (1.0 + 1e-12) < math.inf:
        raise ValueError(f"Invalid u value, expected at least 1 - beta = {1.0 - beta:g}: {u}")


class UnifiedMomentum(BaseOptimizer):
    r"""The momentum of the paper's Definition 2.1, without bias correction.

    .. math:: m_t = \beta m_{t-1} + u\, g_t, \qquad \theta_t = \theta_{t-1} - \mathrm{lr}\; m_t

    ``u=None`` stands for :math:`1-\beta`, the exponential moving average (EMA); ``u=1`` is
    classical momentum, which is ``torch.optim.SGD`` with ``momentum=beta``.

    Args:
        params: parameters, named parameters or groups, as in ``torch.optim``.
        lr: learning rate, a number or a Tensor. With ``u=1`` SGD's, with ``u=None`` SGD's divided
            by ``1 - beta``.
        beta: decay rate of the momentum.
        u: weight of the gradient, at least ``1 - beta``; None for ``1 - beta``.
        weight_decay: strength of the decay.
        decoupled_weight_decay: decay the parameters directly, as AdamW does.
        maximize: ascend instead of descend.
        foreach: update lists of parameters at once, as in :class:`sgdf.SGDF`.
        fused: update everything in one call, as in :class:`sgdf.SGDF`.
        capturable: keep the step count on the parameter's device, for CUDA graphs.
        differentiable: let autograd run through the step.
        state_format: ``"full"``, ``"bfloat16"`` or ``"int8"``, as in :class:`sgdf.SGDF`.
        stochastic_rounding: as in :class:`sgdf.SGDF`.

    Example:
        >>> import torch, sgdf
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = sgdf.UnifiedMomentum([weight], lr=0.1, beta=0.5, u=1.0)
        >>> for _ in range(2):
        ...     weight.grad = torch.ones(1)
        ...     optimizer.step()
        >>> weight.detach()  # 0.1 * (1 + 1.5)
        tensor([-0.2500])
    """

    _directions: ClassVar = ("momentum",)

    @advises
    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        beta: float = 0.9,
        u: float | None = None,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        state_format: str = "full",
        stochastic_rounding: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "beta": beta,
            "u": u,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
            "differentiable": differentiable,
            "state_format": state_format,
            "stochastic_rounding": stochastic_rounding,
        }
        super().__init__(params, defaults)

    @classmethod
    def _instead_of(cls, options: Mapping[str, Any]) -> str:
        if "momentum" not in options:
            return super()._instead_of(options)
        if fault := dampening_fault(options):
            return fault
        write = f"beta={options['momentum']}, u=1.0"
        lr, dampening = number(options.get("lr")), number(options.get("dampening"))
        if dampening and number(options["momentum"]) != 0.0:  # else SGD ignores it too
            share = 1.0 - dampening
            if lr is None:
                write += f", lr = sgd_lr * (1 - dampening), {share:g} times SGD's"
            else:
                write += f", lr={show_number(lr * share)}"
        return f"its momentum is called beta; for SGD's write {write}"

    def _check_options(self, group: Group) -> None:
        super()._check_options(group)
        _check_momentum(group["beta"], group["u"])

    def _recalled_state(self, group: Group, param: Tensor) -> tuple[float, list[Tensor]]:
        layout = self._layout_of(group, param)
        return layout.numbers(self.state.get(param, {}), layout.buffers, param)

    def _recalled(
        self, group: Group, grad: Tensor, step: float, *buffers: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        (momentum,) = buffers
        # Under a steady gradient the momentum tends to u / (1 - beta) of it.
        mean = momentum * ((1.0 - group["beta"]) / momentum_weight(group))
        return momentum, None, grad - mean
