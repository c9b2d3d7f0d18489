"""The probe ``sharpness``: the largest curvature of the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...bench.training.probe import Moment
from ..examples import training_batches
from ..hessian import ConvergenceError, Hessian

TOLERANCE = 1e-2
"""Relative, of the eigenvalue: more than a curve shows."""


class Sharpness:
    """The largest eigenvalue of the Hessian of the loss on some training examples.

    They are always the same, without augmentation. The model is in evaluation mode: BatchNorm
    uses its running statistics, and nothing is dropped. Beside the eigenvalue is its product with
    the squared norm of the weights: BatchNorm makes the Hessian shrink as the weights grow,
    although the function stays the same, and this product does not.

    Args:
        examples: how many.
    """

    def __init__(self, examples: int = 512) -> None:
        if examples < 1:
            raise ValueError("examples must be at least 1")
        self.examples = examples
        self._batches: Sequence[Any] = ()

    def __call__(self, moment: Moment) -> dict[str, float]:
        """Return the eigenvalue."""
        task = moment.task
        self._batches = self._batches or training_batches(task, self.examples)
        hessian = Hessian(task.model, lambda _, batch: task.loss(batch), self._batches)
        try:
            largest = float(hessian.top(1, tol=TOLERANCE).values[0])
        except (ConvergenceError, FloatingPointError):  # a run that diverges is not the probe's
            largest = math.nan
        weights = [one.detach() for one in task.model.parameters() if one.requires_grad]
        square = sum(float(torch.sum(one.double() ** 2)) for one in weights)
        return {"largest": largest, "largest_normalised": largest * square}
