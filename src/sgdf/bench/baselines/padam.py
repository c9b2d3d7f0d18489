"""Padam, as published."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .base import Baseline, Group, State, update_moments


class Padam(Baseline):
    r"""Adam with a partial power of the second moment's running maximum.

    .. math::
        \hat v_t = \max(\hat v_{t-1}, v_t), \qquad
        θ_t = θ_{t-1} - α m_t / (\sqrt{\hat v_t} + ε)^{2p}

    Chen et al., "Closing the Generalization Gap of Adaptive Gradient Methods in Training Deep
    Neural Networks" (2018); ε is from the authors' code; their Algorithm 1 has none.

    Args:
        params: parameters or groups of them.
        lr: the learning rate α.
        betas: decay rates of the two moments.
        partial: p, from 0 (SGD on a running mean) to 1/2 (AMSGrad).
        eps: ε.
        weight_decay: coupled.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        partial: float = 0.125,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not 0.0 <= partial <= 0.5:
            raise ValueError(f"Invalid partial value: {partial}")
        super().__init__(
            params, lr=lr, betas=betas, partial=partial, eps=eps, weight_decay=weight_decay
        )

    def _buffers(self, param: Tensor) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq", "max_exp_avg_sq"

    def _direction(self, group: Group, grad: Tensor, state: State, step: int) -> Tensor:
        update_moments(group, grad, state)
        largest = state["max_exp_avg_sq"]
        torch.maximum(largest, state["exp_avg_sq"], out=largest)
        scale = largest.sqrt().add_(group["eps"]).pow_(2.0 * group["partial"])
        ratio: Tensor = state["exp_avg"] / scale
        return ratio
