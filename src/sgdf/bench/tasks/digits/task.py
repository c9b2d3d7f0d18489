"""Digits with a small network: fully connected, or convolutional."""

from __future__ import annotations

from torch import nn

from ..metric import Metric
from ..supervised import Supervised
from .data import digits


class DigitsMLP(Supervised):
    """Digits with fully connected layers.

    Args:
        hidden: the width of each hidden layer.
        layers: how many of them there are.
    """

    metric = Metric("accuracy")

    def __init__(self, hidden: int = 64, layers: int = 2) -> None:
        parts: list[nn.Module] = [nn.Flatten()]
        for inputs in [64, *[hidden] * (layers - 1)]:
            parts += [nn.Linear(inputs, hidden), nn.ReLU()]
        super().__init__(nn.Sequential(*parts, nn.Linear(hidden, 10)), **digits())


class DigitsCNN(Supervised):
    """Digits with two convolutions and a linear layer.

    Args:
        width: the channels of the first convolution; the second has twice as many.
        batch_norm: normalise what comes out of the convolutions.
    """

    metric = Metric("accuracy")

    def __init__(self, width: int = 32, batch_norm: bool = False) -> None:
        parts: list[nn.Module] = []
        for inputs, outputs in ((1, width), (width, 2 * width)):
            parts.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not batch_norm))
            if batch_norm:
                parts.append(nn.BatchNorm2d(outputs))
            parts.append(nn.ReLU())
        parts += [nn.MaxPool2d(4), nn.Flatten(), nn.Linear(8 * width, 10)]
        super().__init__(nn.Sequential(*parts), **digits())
