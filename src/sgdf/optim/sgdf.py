"""SGDF: stochastic gradient descent on the filtered gradient."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .filter_optimizer import STATE, FilterOptimizer


class SGDF(FilterOptimizer):
    r"""SGD whose gradient is estimated by an online optimal linear filter.

    .. math:: \theta_t = \theta_{t-1} - \mathrm{lr} \cdot \hat g_t

    where :math:`\hat g_t` is the output of :func:`sgdf.filter_gradient`, which has
    the equations. With ``weight_decay`` :math:`\lambda` the filter sees
    :math:`g_t + \lambda \theta_{t-1}`; with ``decoupled_weight_decay`` it sees
    :math:`g_t` and :math:`\theta_{t-1}` is first multiplied by
    :math:`1 - \mathrm{lr}\,\lambda`.

    Args:
        params: parameters, named parameters or groups, as in ``torch.optim``.
        lr: learning rate. 0.5 is the paper's for training from scratch; a Tensor
            may be given on every path.
        betas: decay rates of the gradient's running mean and residual variance.
        eps: added to the squared residual; with ``inf`` the gain is 0 and the
            estimate the bias-corrected running mean.
        gamma: power of the gain; 0 is plain SGD.
        weight_decay: strength of the decay.
        decoupled_weight_decay: decay the parameters directly, as AdamW does.
        correction: ``"paper"``, or ``"none"`` for the paper's ablation.
        gamma_decay: the gain's power at step t is ``gamma / t**gamma_decay``.
        maximize: ascend instead of descend.
        foreach: update lists of parameters at once; False updates them one by one,
            slower but in less memory. The default if neither ``foreach`` nor ``fused`` is
            given and the native step is not available, except with ``differentiable``.
        fused: update everything in one native call; the default on the CPU if there is a C
            compiler. The first use builds it. Without a compiler foreach is used instead,
            with a warning if this is True. Refused for parameters on an accelerator.
        capturable: keep the step count on the parameter's device, for CUDA graphs.
        differentiable: let autograd run through the step.
        state_format: ``"full"`` keeps the state in float32, or in the parameter's
            dtype where that is wider; the smaller formats are not implemented yet.
        stochastic_rounding: not implemented yet.

    Example:
        >>> import torch, sgdf
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Linear(3, 1)
        >>> inputs, targets = torch.randn(64, 3), torch.ones(64, 1)
        >>> optimizer = sgdf.SGDF(model.parameters(), lr=0.5)
        >>> for _ in range(50):
        ...     optimizer.zero_grad()
        ...     loss = torch.nn.functional.mse_loss(model(inputs), targets)
        ...     loss.backward()
        ...     optimizer.step()
        >>> loss.item() < 1e-3
        True
    """

    _kinds: ClassVar = {"sgdf": STATE}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.5,
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
