"""SophiaG, whose curvature estimate the training loop must update."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .base import Baseline, Group, State


class SophiaG(Baseline):
    r"""Momentum divided by an estimate of the curvature, clipped element by element.

    .. math::
        m_t = β_1 m_{t-1} + (1-β_1) g_t, \qquad
        θ_t = θ_{t-1} - α λ θ_{t-1} - α\,\mathrm{clip}(m_t / \max(ρ h_t, ε),\, 1)

    Every ``hessian_every`` steps :math:`h ← β_2 h + (1-β_2) B \hat g^2`, the Gauss–Newton–Bartlett
    estimate: :math:`\hat g` is the gradient of the mean loss over :math:`B` targets that are drawn
    from the model's own predictions. The bench's loop does this (``Task.sampled_loss``).

    Liu et al., "Sophia: A Scalable Stochastic Second-order Optimizer for Language Model
    Pre-training" (2023), Algorithm 3; ρ as in their code.

    Args:
        params: parameters or groups of them.
        lr: the learning rate α.
        betas: decay rates of momentum and curvature.
        rho: ρ; the larger, the fewer elements are clipped.
        eps: ε.
        weight_decay: λ, decoupled.
        hessian_every: number of steps from one update of the curvature to the next.
    """

    decay_is_coupled = False

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: float = 0.04,
        eps: float = 1e-12,
        weight_decay: float = 0.1,
        hessian_every: int = 10,
    ) -> None:
        if not rho > 0.0:
            raise ValueError(f"Invalid rho value: {rho}")
        if not hessian_every >= 1:
            raise ValueError(f"Invalid hessian_every value: {hessian_every}")
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            rho=rho,
            eps=eps,
            weight_decay=weight_decay,
            hessian_every=hessian_every,
        )

    @property
    def hessian_every(self) -> int:
        """The number of steps from one call of ``update_hessian`` to the next."""
        return int(self.param_groups[0]["hessian_every"])

    @torch.no_grad()
    def update_hessian(self, count: int) -> None:
        """Update the curvature from gradients of the mean loss over ``count`` sampled targets."""
        for group in self.param_groups:
            beta2 = group["betas"][1]
            for param in group["params"]:
                if param.grad is not None and self.state[param]:
                    hessian, grad = self.state[param]["hessian"], param.grad
                    hessian.mul_(beta2).addcmul_(grad, grad, value=(1.0 - beta2) * count)

    def _buffers(self, param: Tensor) -> tuple[str, ...]:
        return "exp_avg", "hessian"

    def _direction(self, group: Group, grad: Tensor, state: State, step: int) -> Tensor:
        mean: Tensor = state["exp_avg"].lerp_(grad, 1.0 - group["betas"][0])
        curvature = (group["rho"] * state["hessian"]).clamp_min_(group["eps"])
        ratio: Tensor = (mean / curvature).clamp_(-1.0, 1.0)
        return ratio
