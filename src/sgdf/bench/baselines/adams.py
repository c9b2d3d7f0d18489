"""Two relatives of Adam: EAdam, and Padam as it was published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT


class _AdamLike(Optimizer):
    """Adam's moments, with coupled decay; a subclass makes the step of them."""

    buffers: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        if not defaults["lr"] >= 0.0:
            raise ValueError(f"Invalid learning rate: {defaults['lr']}")
        for index, beta in enumerate(defaults["betas"]):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        for name in ("eps", "weight_decay"):
            if not defaults[name] >= 0.0:
                raise ValueError(f"Invalid {name} value: {defaults[name]}")
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], state: dict[str, Any], step: int) -> Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # as torch's own have it
        """Update the parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["step"] = torch.zeros(())
                    state.update({name: torch.zeros_like(param) for name in self.buffers})
                state["step"] += 1
                grad = param.grad.add(param, alpha=group["weight_decay"])
                state["exp_avg"].lerp_(grad, 1.0 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
                update = self._update(group, state, int(state["step"].item()))
                param.sub_(group["lr"] * update)
        return loss


class EAdam(_AdamLike):
    r"""Adam with :math:`ε` added to the second moment itself, where it adds up.

    .. math::
        v_t = β_2 v_{t-1} + (1-β_2) g_t^2 + ε, \qquad θ_t = θ_{t-1} - α \hat m_t / \sqrt{\hat v_t}

    Yuan and Gao, "EAdam Optimizer: How ε Impact Adam" (2020).

    Args:
        params: parameters or groups of them.
        lr: the learning rate α.
        betas: of the two moments.
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

    def _update(self, group: dict[str, Any], state: dict[str, Any], step: int) -> Tensor:
        beta1, beta2 = group["betas"]
        second = state["exp_avg_sq"].add_(group["eps"]) / (1.0 - beta2**step)
        ratio: Tensor = state["exp_avg"] / (1.0 - beta1**step) / second.sqrt_()
        return ratio.nan_to_num_(nan=0.0)  # 0/0: without ε, and without any gradient so far


class Padam(_AdamLike):
    r"""Adam with a partial power of the second moment's running maximum.

    .. math::
        \hat v_t = \max(\hat v_{t-1}, v_t), \qquad
        θ_t = θ_{t-1} - α m_t / (\sqrt{\hat v_t} + ε)^{2p}

    Chen et al., "Closing the Generalization Gap of Adaptive Gradient Methods in Training Deep
    Neural Networks" (2018); ε is their program's, their Algorithm 1 has none.

    Args:
        params: parameters or groups of them.
        lr: the learning rate α.
        betas: of the two moments.
        partial: p, from 0 (SGD on a running mean) to 1/2 (AMSGrad).
        eps: ε.
        weight_decay: coupled.
    """

    buffers = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

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

    def _update(self, group: dict[str, Any], state: dict[str, Any], step: int) -> Tensor:
        largest = state["max_exp_avg_sq"]
        torch.maximum(largest, state["exp_avg_sq"], out=largest)
        scale = largest.sqrt().add_(group["eps"]).pow_(2.0 * group["partial"])
        ratio: Tensor = state["exp_avg"] / scale
        return ratio
