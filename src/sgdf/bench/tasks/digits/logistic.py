"""Logistic regression: the convex problem."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..metric import Metric
from ..supervised import Supervised
from .data import digits


class Logistic(Supervised):
    """Digits with one linear layer and a squared penalty: a strongly convex loss.

    It begins at zero, so that the seed decides on the order of the data alone.

    Args:
        penalty: the weight of half the squared norm of all parameters in the loss.
    """

    metric = Metric("accuracy")

    def __init__(self, penalty: float = 1e-3) -> None:
        self.penalty = penalty
        linear = nn.Linear(64, 10)
        for parameter in linear.parameters():
            nn.init.zeros_(parameter)
        model = nn.Sequential(nn.Flatten(), linear)
        super().__init__(model, **digits(), loss=self._penalised)

    def _penalised(self, outputs: Tensor, targets: Tensor) -> Tensor:
        squares = torch.stack([p.square().sum() for p in self.model.parameters()]).sum()
        return nn.functional.cross_entropy(outputs, targets) + 0.5 * self.penalty * squares
