"""EAdam: Adam with eps inside the second moment."""

from __future__ import annotations

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .base import Baseline, Group, State, update_moments


class EAdam(Baseline):
    r"""Adam with :math:`ε` added to the second moment at every step, so that it accumulates.

    .. math::
        v_t = β_2 v_{t-1} + (1-β_2) g_t^2 + ε, \qquad θ_t = θ_{t-1} - α \hat m_t / \sqrt{\hat v_t}

    Yuan and Gao, "EAdam Optimizer: How ε Impact Adam" (2020).

    Args:
        params: parameters or groups of them.
        lr: the learning rate α.
        betas: decay rates of the two moments.
        eps: ε.
        weight_decay: coupled.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _buffers(self, param: Tensor) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _direction(self, group: Group, grad: Tensor, state: State, step: int) -> Tensor:
        update_moments(group, grad, state)
        beta1, beta2 = group["betas"]
        second = state["exp_avg_sq"].add_(group["eps"]) / (1.0 - beta2**step)
        ratio: Tensor = state["exp_avg"] / (1.0 - beta1**step) / second.sqrt_()
        return ratio.nan_to_num_(nan=0.0)  # 0/0 with ε = 0, before the first gradient that is not 0
