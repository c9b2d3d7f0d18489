"""FilterAdam: Adam with the filtered gradient in place of its first moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .filter_optimizer import FilterOptimizer
from .missing_options import advises


class FilterAdam(FilterOptimizer):
    r"""Adam whose first moment is the output of an online optimal linear filter.

    .. math:: \theta_t = \theta_{t-1} - \mathrm{lr} \cdot
        \frac{\hat g_t}{\sqrt{\hat v_t} + \varepsilon}

    where :math:`\hat g_t` is the output of :func:`sgdf.filter_gradient`, which has the
    equations, and :math:`\hat v_t` is Adam's bias-corrected mean square of the unfiltered
    gradients. Filter and Adam share ``betas`` and ``eps``. With ``gamma=0`` this is
    ``torch.optim.Adam`` with ``betas=(0, betas[1])``.

    Args:
        params: parameters, named parameters or groups, as in ``torch.optim``.
        lr: learning rate, a number or a Tensor; Adam's.
        betas: decay rates of the gradient's running mean, and of its residual variance and
            mean square.
        eps: added to the squared residual, and to the root of the mean square.
        gamma: power of the gain.
        weight_decay: strength of the decay, coupled as in ``torch.optim.Adam``.
        decoupled_weight_decay: decay the parameters directly, as AdamW does.

    ``correction``, ``gamma_decay``, ``maximize``, ``foreach``, ``fused``, ``capturable``,
    ``differentiable``, ``state_format`` and ``stochastic_rounding`` are as in
    :class:`sgdf.SGDF`.

    Example:
        >>> import torch, sgdf
        >>> model = torch.nn.Linear(3, 1)
        >>> optimizer = sgdf.FilterAdam(model.parameters(), lr=1e-3)
        >>> model(torch.ones(1, 3)).sum().backward()
        >>> optimizer.step()
        >>> list(optimizer.state[model.weight])
        ['step', 'exp_avg', 'exp_var', 'exp_avg_sq']
    """

    _directions: ClassVar = ("adam",)

    @advises
    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        gamma: float = 0.5,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
        correction: str = "paper",
        gamma_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        state_format: str = "full",
        stochastic_rounding: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            gamma=gamma,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            correction=correction,
            gamma_decay=gamma_decay,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
            differentiable=differentiable,
            state_format=state_format,
            stochastic_rounding=stochastic_rounding,
        )

    @classmethod
    def _instead_of(cls, options: Mapping[str, Any]) -> str:
        instead = super()._instead_of(options)
        if "amsgrad" in options:
            instead += "; sgdf.filtered(torch.optim.Adam) has amsgrad=True, with more memory"
        return instead
