"""Muon for whole networks: the baseline of FilterMuon."""

from __future__ import annotations

from torch import Tensor
from torch.optim.optimizer import ParamsT

from ...directions import adam_direction, orthogonal_direction
from .base import Baseline, Group, State


class Muon(Baseline):
    r"""Orthogonalised momentum for matrices and AdamW for the rest, divided as in FilterMuon.

    On matrices this is ``torch.optim.Muon``, which takes nothing else. Parameters of more
    dimensions are flattened, as Jordan et al. (2024) do with convolutions.

    Args:
        params: parameters or groups of them.
        lr: the learning rate of both.
        momentum: decay rate of the matrices' running mean.
        nesterov: look ahead by one step of the momentum.
        betas: decay rates of AdamW's moments.
        eps: ε of AdamW.
        weight_decay: decoupled.
        ns_steps: number of Newton–Schulz iterations.
        adjust_lr_fn: ``"original"`` or ``"match_rms_adamw"``, as in torch.
    """

    decay_is_coupled = False

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        ns_steps: int = 5,
        adjust_lr_fn: str = "original",
    ) -> None:
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            nesterov=nesterov,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
        )

    def _buffers(self, param: Tensor) -> tuple[str, ...]:
        return ("momentum_buffer",) if param.ndim >= 2 else ("exp_avg", "exp_avg_sq")

    def _direction(self, group: Group, grad: Tensor, state: State, step: int) -> Tensor:
        if grad.ndim >= 2:
            mean = state["momentum_buffer"].lerp_(grad, 1.0 - group["momentum"])
            ahead = grad.lerp(mean, group["momentum"]) if group["nesterov"] else mean
            options = {name: group[name] for name in ("ns_steps", "adjust_lr_fn")}
            return orthogonal_direction(ahead, **options)
        beta1, beta2 = group["betas"]
        mean = state["exp_avg"].lerp_(grad, 1.0 - beta1) / (1.0 - beta1**step)
        direction, state["exp_avg_sq"] = adam_direction(
            mean, grad, state["exp_avg_sq"], float(step), beta2=beta2, eps=group["eps"]
        )
        return direction
