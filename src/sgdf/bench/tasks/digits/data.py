"""Scikit-learn's 1797 images of 8 × 8 pixels: digits, which need no download."""

from __future__ import annotations

from typing import TypedDict

import torch

from ..supervised import Pair

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
