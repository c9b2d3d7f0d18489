"""SGDF's filter beside an optimizer: it sees the same gradients, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ...bench.training.probe import Moment
from ..estimator.filters import Filtered, Moments, SGDFEstimate


class FilterBeside:
    """The filter with its state, for each optimizer of a task its own.

    Args:
        betas: decay rates of the mean and of the residual variance.
    """

    def __init__(self, betas: tuple[float, float]) -> None:
        self.filter = SGDFEstimate(betas)
        self._moments: dict[str, Moments] = {}

    def see(self, optimizer: str, gradient: Tensor) -> Filtered:
        """Filter the next gradient of an optimizer; one that is not finite leaves no trace.

        A step in float16 on such a gradient is left out, and the run continues.
        """
        before = self._moments.get(optimizer)
        if before is not None and before.mean.device != gradient.device:  # of a checkpoint
            place = gradient.device
            before = Moments(before.mean.to(place), before.var.to(place), before.steps)
        found = self.filter.filter(before, gradient)
        if gradient.isfinite().all():
            self._moments[optimizer] = found.moments
        return found

    def state(self) -> dict[str, Any]:
        """Return the state, as plain data."""
        return {name: moments._asdict() for name, moments in self._moments.items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self._moments = {name: Moments(**moments) for name, moments in state.items()}


def all_gradients(moment: Moment) -> dict[str, Tensor]:
    """Return the gradient of each parameter of the optimizer by name, 0 where it has none.

    So a filter has the same elements at each step.
    """
    groups = moment.optimizers[moment.optimizer].param_groups
    own = {param for group in groups for param in group["params"]}
    found = moment.gradients()
    return {
        name: found[name] if name in found else torch.zeros_like(param)
        for name, param in moment.task.model.named_parameters()
        if param in own
    }


def join(tensors: Iterable[Tensor]) -> Tensor:
    """Return all elements of some tensors as one row of real numbers."""
    real = (torch.view_as_real(one) if one.is_complex() else one for one in tensors)
    return torch.cat([one.reshape(-1) for one in real])
