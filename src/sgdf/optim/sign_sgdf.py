"""SignSGDF: steps of one size along the sign of the filtered gradient."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .filter_optimizer import FilterOptimizer
from .missing_options import advises


class SignSGDF(FilterOptimizer):
    r"""Sign descent on the output of an online optimal linear filter.

    .. math:: \theta_t = \theta_{t-1} - \mathrm{lr} \cdot \operatorname{sign}(\hat g_t)

    where :math:`\hat g_t` is the output of :func:`sgdf.filter_gradient`, which has the
    equations. The gain is used without a power (``gamma=1``), as in the paper's diffusion runs.

    Args:
        params: parameters, named parameters or groups, as in ``torch.optim``.
        lr: learning rate, a number or a Tensor: how far every element moves at each step.
        betas: decay rates of the gradient's running mean and residual variance.
        eps: added to the squared residual.
        gamma: power of the gain; 0 gives the sign of the unfiltered gradient.
        weight_decay: strength of the decay. Coupled decay, the default, only influences the
            sign.
        decoupled_weight_decay: decay the parameters directly, as AdamW does.

    ``correction``, ``gamma_decay``, ``maximize``, ``foreach``, ``fused``, ``capturable``,
    ``differentiable``, ``state_format`` and ``stochastic_rounding`` are as in
    :class:`sgdf.SGDF`.

    Example:
        >>> import torch, sgdf
        >>> weight = torch.nn.Parameter(torch.zeros(3))
        >>> optimizer = sgdf.SignSGDF([weight], lr=0.5)
        >>> weight.grad = torch.tensor([3.0, 0.0, -0.1])
        >>> optimizer.step()
        >>> weight.detach()
        tensor([-0.5000,  0.0000,  0.5000])
    """

    _directions: ClassVar = ("sign",)

    @advises
    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        gamma: float = 1.0,
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
