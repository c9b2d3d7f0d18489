"""Coupled weight decay for optimizers that lack it in their library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_optimizer
import torch
from torch.optim.optimizer import Optimizer, ParamsT


class _Decayed(Optimizer):
    """Adds ``weight_decay`` times the parameters to the gradients during the step."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        given = {}
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None and group["weight_decay"]:
                    given[param] = param.grad
                    param.grad = param.grad.add(param.detach(), alpha=group["weight_decay"])
        try:
            super().step()  # of the library's class
        finally:
            for param, grad in given.items():
                param.grad = grad
        return loss

    def _take(self, weight_decay: float) -> None:
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        self.defaults["weight_decay"] = weight_decay
        for group in self.param_groups:
            group.setdefault("weight_decay", weight_decay)


class MSVAG(_Decayed, pytorch_optimizer.MSVAG):
    """Momentum that is damped where the gradient varies (Balles and Hennig, 2018), with decay.

    Args:
        params: parameters or groups of them.
        lr: the learning rate.
        beta: decay rate of both moments.
        weight_decay: coupled.
    """

    def __init__(
        self, params: ParamsT, lr: float = 0.1, beta: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr=lr, beta=beta)
        self._take(weight_decay)


class Fromage(_Decayed, pytorch_optimizer.Fromage):
    """Steps in proportion to the weights of each layer (Bernstein et al., 2020), with decay.

    Args:
        params: parameters or groups of them.
        lr: the learning rate.
        weight_decay: coupled.
    """

    def __init__(self, params: ParamsT, lr: float = 0.01, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr)
        self._take(weight_decay)
