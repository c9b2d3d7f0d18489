"""The base class of the optimizers written for comparisons: checks, state, decay, closure.

They are written to be read, and fast enough to compare results; do not compare their speed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

Group = dict[str, Any]
State = dict[str, Any]


def check(defaults: Group) -> None:
    """Check ``lr``, ``betas``, ``eps`` and ``weight_decay``.

    Raises:
        ValueError: if a value is out of its range.
    """
    if not defaults["lr"] >= 0.0:
        raise ValueError(f"Invalid learning rate: {defaults['lr']}")
    for index, beta in enumerate(defaults["betas"]):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    for name in ("eps", "weight_decay"):
        if not defaults[name] >= 0.0:
            raise ValueError(f"Invalid {name} value: {defaults[name]}")


class Baseline(Optimizer):
    """An optimizer that moves each parameter by ``-lr`` times a direction.

    Args:
        params: parameters or groups of them.
        defaults: the options; ``lr``, ``betas``, ``eps`` and ``weight_decay`` among them.
    """

    decay_is_coupled = True

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        check(defaults)
        super().__init__(params, defaults)

    @abstractmethod
    def _buffers(self, param: Tensor) -> tuple[str, ...]:
        """Return the state keys of a parameter's buffers, which have its shape."""

    @abstractmethod
    def _direction(self, group: Group, grad: Tensor, state: State, step: int) -> Tensor:
        """Return the direction, and update the buffers in ``state``; ``step`` counts from 1."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # as in torch's own optimizers
        """Update the parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["step"] = torch.zeros(())
                    state.update({name: torch.zeros_like(param) for name in self._buffers(param)})
                state["step"] += 1
                grad, decay = param.grad, group["weight_decay"]
                if self.decay_is_coupled:
                    grad = grad.add(param, alpha=decay)
                else:
                    param.mul_(1.0 - group["lr"] * decay)
                direction = self._direction(group, grad, state, int(state["step"].item()))
                param.sub_(group["lr"] * direction)
        return loss


def update_moments(group: Group, grad: Tensor, state: State) -> None:
    """Update Adam's running means of the gradient and its square."""
    beta1, beta2 = group["betas"]
    state["exp_avg"].lerp_(grad, 1.0 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
