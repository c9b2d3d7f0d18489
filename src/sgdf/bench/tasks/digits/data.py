"""Scikit-learn's 1797 images of 8 × 8 pixels: digits, which need no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from ..supervised import Pair

TRAIN, VALIDATION = 1100, 300
"""The rest, 397 images, is the test set."""


class Splits(TypedDict):
    """Images and labels of each split."""

    train: Pair
    validation: Pair
    test: Pair


def _pixels_and_digits() -> tuple[Any, Any]:
    """Return the rows of pixels, with values from 0 to 16, and the digit of each."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        table = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if table.is_file():  # to load the package that it belongs to takes a second
            rows = np.loadtxt(table, delimiter=",")
            return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    return pixels, digits


def digits() -> Splits:
    """Return the images, with values from 0 to 1, and their labels, split once for all."""
    pixels, digits = _pixels_and_digits()
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
    labels = torch.tensor(digits, dtype=torch.int64)[order]

    def part(start: int, stop: int) -> Pair:
        return images[start:stop], labels[start:stop]

    end = TRAIN + VALIDATION
    return {"train": part(0, TRAIN), "validation": part(TRAIN, end), "test": part(end, len(images))}
