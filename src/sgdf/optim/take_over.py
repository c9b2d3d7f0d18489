"""``take_over``: continue a training with SGDF that another optimizer has begun."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from .direction_table import Group
from .missing_options import MISSING
from .sgdf import SGDF, sgd_reach

_SHARED = ("params", "param_names", "maximize", "weight_decay", "capturable", "differentiable")
"""Options with the same meaning in torch's optimizers and in SGDF."""


def take_over(running: Optimizer, lr: float | Tensor | None = None, **options: Any) -> SGDF:
    r"""Return an SGDF that continues with the parameters, groups and moments of ``running``.

    Everything that has a counterpart is copied; ``running`` is not changed.

    - *Momentum.* Adam's ``exp_avg`` is SGDF's running mean, and is copied with its step
      count. SGD's ``momentum_buffer`` is the mean times
      :math:`(1-\text{dampening})/(1-\text{momentum})`, and is divided by that; SGD does not
      count steps, so the mean is assumed to have settled. ``betas`` are those of ``running``
      unless given.
    - *Residual variance.* Neither has it. From Adam's moments it is estimated as
      :math:`s \approx \beta_1 (\hat v - \hat m^2)`, its limit under steady noise. After SGD it
      starts at 0 with a small step count, so that the gain is near 0 at first: SGDF begins as
      the momentum method that it replaces, and the filter reaches its usual gain within some
      hundred steps.
    - *lr.* SGD moves by ``lr * (1 - dampening) / (1 - momentum)`` under a steady gradient, and
      so does the returned SGDF unless ``lr`` is given. After Adam ``lr`` must be given: Adam's
      learning rate says nothing about SGDF's. The step sizes of further groups keep their ratio
      to the first group's. If a schedule has lowered lr to 0, its initial value is used.
    - *Weight decay.* Coupled decay stays the same. AdamW's stays decoupled; it is divided by the
      factor that multiplies lr, so that each step shrinks the parameters as before.

    The filter starts from zero if ``betas[0]`` is not the momentum of ``running``, if that has no
    momentum, and for parameters that have not moved yet. Nesterov momentum and amsgrad are not
    continued. A scheduler belongs to one optimizer: make a new one.

    Args:
        running: a ``torch.optim.SGD``, ``Adam`` or ``AdamW``.
        lr: learning rate of the first group.
        options: further arguments of :class:`sgdf.SGDF`, for all groups.

    Example:
        >>> import torch, sgdf
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        >>> for _ in range(100):
        ...     weight.grad = torch.ones(2)
        ...     optimizer.step()
        >>> optimizer = sgdf.take_over(optimizer)
        >>> round(optimizer.param_groups[0]["lr"], 6)
        1.0
        >>> optimizer.state[weight]["exp_avg"]  # the mean of gradients that were all 1
        tensor([0.9990, 0.9990])
    """
    if type(running) not in (SGD, Adam, AdamW):
        raise TypeError(
            f"take_over knows torch.optim's SGD, Adam and AdamW, got {type(running).__name__}; "
            "sgdf.filtered filters any optimizer"
        )
    if lr is None and type(running) is not SGD:
        raise ValueError(f"{type(running).__name__}'s learning rate is no guide: give one, lr=...")
    if known := [name for name in MISSING if name in options]:
        raise TypeError(
            f"{', '.join(known)}: take_over reads it from {type(running).__name__}; leave it out"
        )
    first = running.param_groups[0]
    scale = 1.0 if lr is None else float(lr) / (_lr(first) * _momentum_size(first))
    groups = [
        _taken_over(group, scale, isinstance(lr, Tensor), options) for group in running.param_groups
    ]
    of_groups = ("params", "param_names", "initial_lr")
    defaults = {name: value for name, value in groups[0].items() if name not in of_groups}
    optimizer = SGDF(groups, **defaults)
    for old, new in zip(running.param_groups, optimizer.param_groups, strict=True):
        for param in old["params"]:
            known = running.state.get(param, {}) if _momentum(old) == new["betas"][0] else {}
            if moments := _moments(old, new, param, known):
                layout = optimizer._layout_of(new, param)
                optimizer.state[param].update(layout.loaded(moments, param, new))
    return optimizer


def _lr(group: Group) -> float:
    """Return the learning rate; if a schedule has ended at 0, the one that it began with."""
    lr = float(group["lr"]) or float(group.get("initial_lr", 0.0))
    if not lr > 0.0:
        raise ValueError("Invalid learning rate to take over: 0")
    return lr


def _momentum(group: Group) -> float:
    """Return the decay rate of the running optimizer's first moment."""
    return float(group["momentum"] if "momentum" in group else group["betas"][0])


def _momentum_size(group: Group) -> float:
    """Return the ratio of SGD's momentum buffer to a steady gradient; 1 for Adam."""
    if not group.get("momentum"):
        return 1.0
    if not group["momentum"] < 1.0 or not group["dampening"] < 1.0:
        raise ValueError(
            f"Invalid momentum and dampening to take over, expected less than 1: "
            f"{group['momentum']}, {group['dampening']}"
        )
    return sgd_reach(float(group["momentum"]), float(group["dampening"]))


def _taken_over(group: Group, scale: float, as_tensor: bool, options: Group) -> Group:
    factor = scale * _momentum_size(group)
    lr = _lr(group) * factor
    taken = {name: group[name] for name in _SHARED if name in group}
    taken["lr"] = torch.tensor(lr) if as_tensor or isinstance(group["lr"], Tensor) else lr
    if "initial_lr" in group:  # needed by schedulers that resume at a later epoch
        taken["initial_lr"] = float(group["initial_lr"]) * factor
    if "betas" in group:
        taken["betas"] = group["betas"]
    elif group["momentum"]:
        taken["betas"] = (group["momentum"], 0.999)
    if group.get("decoupled_weight_decay"):
        taken["decoupled_weight_decay"] = True
        if options.get("decoupled_weight_decay", True) and factor:
            taken["weight_decay"] /= factor
    return {**taken, **options}


def _moments(old: Group, new: Group, param: Tensor, state: Group) -> Group:
    """Return SGDF's state from that of ``running`` for one parameter; empty if there is none."""
    beta1, beta2 = new["betas"]
    if state.get("exp_avg") is not None and (step := float(state["step"])) > 0:
        exp_avg = state["exp_avg"]
        mean, square = map(_as_real, (exp_avg, state["exp_avg_sq"]))
        variance = square / (1.0 - old["betas"][1] ** step) - (mean / (1.0 - beta1**step)).square()
        exp_var = (1.0 - beta2**step) * beta1 * variance.clamp_min(0.0)
    elif state.get("momentum_buffer") is not None:
        step = float(_settling_time(beta1))
        exp_avg = state["momentum_buffer"] / _momentum_size(old) * (1.0 - beta1**step)
        exp_var = torch.zeros_like(_as_real(exp_avg))
    else:
        return {}
    if param.is_complex():
        exp_var = torch.view_as_complex(exp_var)
    return {"step": step, "exp_avg": exp_avg, "exp_var": exp_var}


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _settling_time(beta: float) -> int:
    """Return the number of steps after which a running mean's start weighs a thousandth."""
    return math.ceil(math.log(1e-3) / math.log(beta))
