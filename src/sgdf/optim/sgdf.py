"""SGDF: stochastic gradient descent on the filtered gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .filter_optimizer import FilterOptimizer
from .missing_options import advises, dampening_fault, number, show_number


def sgd_reach(momentum: float, dampening: float = 0.0) -> float:
    """Return how far SGD moves under a steady gradient, in units of its lr times the gradient.

    SGDF moves by one such unit, so SGDF's lr is SGD's times this.
    """
    return (1.0 - dampening) / (1.0 - momentum) if momentum else 1.0


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
        lr: learning rate, a number or a Tensor. In place of SGD, ``sgd_lr / (1 - momentum)``:
            1.0 for 0.1 with momentum 0.9. The default of 0.5 is the paper's.
        betas: decay rates of the gradient's running mean and residual variance.
        eps: added to the squared residual; with ``inf`` the gain is 0 and the
            estimate the bias-corrected running mean.
        gamma: power of the gain; 0 is plain SGD. The default makes the filter a soft clamp:
            it holds the gradient within one standard error of its running mean.
        weight_decay: strength of the decay; SGD's, if ``lr`` follows the rule above.
        decoupled_weight_decay: decay the parameters directly, as AdamW does.
        correction: ``"paper"``, or ``"none"`` for the paper's ablation.
        gamma_decay: the gain's power at step t is ``gamma / t**gamma_decay``.
        maximize: ascend instead of descend.
        foreach: update lists of parameters at once; False updates them one by one,
            slower but in less memory. The default if neither ``foreach`` nor ``fused`` is
            given and the native step is not available, except with ``differentiable``.
        fused: update everything in one native call; the default on the CPU if there is a C
            compiler. The first use builds it. Without a compiler foreach is used instead,
            with a warning if this is True. On an accelerator True makes the optimizer compile its
            step, which takes up to a minute.
        capturable: keep the step count on the parameter's device, for CUDA graphs.
        differentiable: let autograd run through the step.
        state_format: ``"full"`` keeps the state in float32, or in the parameter's
            dtype where that is wider; ``"bfloat16"`` and ``"int8"`` keep the same filter in 4 and
            2 bytes per parameter, rounded stochastically. ``"block"`` has one variance for the
            whole tensor, which is another filter, in 4 bytes; ``"bfloat16-block"`` in 2 and
            ``"int8-block"`` in 1. Tensors of fewer than 4,096 elements keep the full state.
        stochastic_rounding: round bf16 and fp16 parameters up or down at random, so that
            steps below their spacing count on average.

    Example:
        >>> import torch, sgdf
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Linear(3, 1)
        >>> inputs, targets = torch.randn(64, 3), torch.ones(64, 1)
        >>> optimizer = sgdf.SGDF(model.parameters(), lr=1.0)  # 0.1 / (1 - 0.9)
        >>> for _ in range(50):
        ...     optimizer.zero_grad()
        ...     loss = torch.nn.functional.huber_loss(model(inputs), targets)
        ...     loss.backward()
        ...     optimizer.step()
        >>> loss.item() < 1e-3
        True
    """

    _directions: ClassVar = ("sgdf",)

    @advises
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

    @classmethod
    def _instead_of(cls, options: Mapping[str, Any]) -> str:
        if "momentum" not in options:
            return super()._instead_of(options)
        if fault := dampening_fault(options):
            return fault
        names = [name for name in ("momentum", "dampening") if name in options]
        sgd = " and ".join(f"{name}={options[name]}" for name in names)
        momentum, dampening = number(options["momentum"]), number(options.get("dampening", 0.0))
        lr = number(options.get("lr"))
        is_dampened = momentum != 0.0 and dampening != 0.0
        rule = f"sgd_lr{' * (1 - dampening)' if is_dampened else ''} / (1 - momentum)"
        if momentum is None or dampening is None or not 0.0 <= momentum < 1.0:
            write = f"SGD's lr with {sgd} write lr = {rule}"
        elif lr is None:
            factor = f"{sgd_reach(momentum, dampening):g}"
            write = f"SGD's lr with {sgd} write lr = {rule}, {factor} times SGD's"
        else:
            equal = show_number(lr * sgd_reach(momentum, dampening))
            write = f"SGD's lr={show_number(lr)} with {sgd} write lr={equal}"
        return f"its filter replaces momentum; for {write}"
