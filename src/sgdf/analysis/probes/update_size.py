"""The probe ``update-size``: how far a step moves the weights, relative to their size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...bench.training.probe import Moment, Numbers


class UpdateSize:
    """The norm of a step's update divided by the norm of the weights, and that norm.

    The weights are copied before the step and compared after it: so the number is exact for any
    optimizer, with its decay and whatever else it does to them.
    """

    def __call__(self, moment: Moment) -> Callable[[], Numbers]:
        """Return a function that measures the step once it is taken."""
        groups = moment.optimizers[moment.optimizer].param_groups
        params = [param for group in groups for param in group["params"]]
        before = [param.detach().clone() for param in params]

        def measure() -> Numbers:
            moved = [new.detach() - old for new, old in zip(params, before, strict=True)]
            weights = _norm(before)
            return {"ratio": _norm(moved) / weights if weights else math.nan, "weights": weights}

        return measure


def _norm(tensors: Sequence[Tensor]) -> float:
    norms = [torch.linalg.vector_norm(one.abs(), dtype=torch.float64) for one in tensors]
    return float(torch.linalg.vector_norm(torch.stack([norm.cpu() for norm in norms])))
