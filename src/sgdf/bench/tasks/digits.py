"""Scikit-learn's 1797 images of 8 × 8 pixels: digits, which need no download."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import nn

from .supervised import Pair, Supervised

TRAIN, VALIDATION = 1100, 300
"""The rest, 397 images, is the test set."""


class Splits(TypedDict):
    """Images and labels of each split."""

    train: Pair
    validation: Pair
    test: Pair


def digits() -> Splits:
    """Return the images, with values from 0 to 1, and their labels, split once for all."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
    labels = torch.tensor(digits, dtype=torch.int64)[order]

    def part(start: int, stop: int) -> Pair:
        return images[start:stop], labels[start:stop]

    end = TRAIN + VALIDATION
    return {"train": part(0, TRAIN), "validation": part(TRAIN, end), "test": part(end, len(images))}


class DigitsMLP(Supervised):
    """Digits with fully connected layers.

    Args:
        hidden: the width of each hidden layer.
        layers: how many of them there are.
    """

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

    def __init__(self, width: int = 32, batch_norm: bool = False) -> None:
        parts: list[nn.Module] = []
        for inputs, outputs in ((1, width), (width, 2 * width)):
            parts.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not batch_norm))
            if batch_norm:
                parts.append(nn.BatchNorm2d(outputs))
            parts.append(nn.ReLU())
        parts += [nn.MaxPool2d(4), nn.Flatten(), nn.Linear(8 * width, 10)]
        super().__init__(nn.Sequential(*parts), **digits())
