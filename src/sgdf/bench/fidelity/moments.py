"""Mean and covariance of features that arrive in batches, in memory that does not grow."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import SpecError
from .frechet import Normal

ROWS = 1024
"""Features that are taken in at a time; a larger batch is divided, so that copies stay small."""


class Moments:
    """The mean and the covariance of all features added so far, in float64 on the CPU.

    It keeps the sum of the products of deviations from the mean, and corrects it as the mean moves
    (Chan, Golub and LeVeque, 1983). No difference of large numbers is taken, so a mean far
    from zero costs no digits.

    Args:
        size: how many numbers a feature has.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64)
        self._products = torch.zeros(size, size, dtype=torch.float64)

    def add(self, features: Tensor) -> None:
        """Add features (n, size)."""
        for start in range(0, len(features), ROWS):
            self._add(features[start : start + ROWS].detach().to("cpu", torch.float64))

    def _add(self, features: Tensor) -> None:
        mean = features.mean(0)
        shift = self._move_mean(mean, len(features))
        rows = torch.cat([features - mean, shift[None]])
        self._products.addmm_(rows.T, rows)

    def _move_mean(self, mean: Tensor, count: int) -> Tensor:
        """Take in the mean of some more features.

        Returns:
            the vector whose product with itself the sum of products has to grow by.
        """
        total = self.count + count
        shift = mean - self.mean
        scaled = shift * math.sqrt(self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total
        return scaled

    @property
    def covariance(self) -> Tensor:
        """The covariance, with n - 1.

        Raises:
            SpecError: if there are fewer than two features.
        """
        if self.count < 2:
            raise SpecError(f"a covariance needs at least 2 images, and there are {self.count}")
        return self._products / (self.count - 1)

    @property
    def normal(self) -> Normal:
        """The normal distribution with these moments."""
        return Normal(self.mean, self.covariance)

    def state(self) -> dict[str, Any]:
        """Return numbers and tensors from which ``of_state`` continues to the bit."""
        return {
            "count": self.count,
            "mean": self.mean.clone(),
            "products": self._products.clone(),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Moments:
        """Return moments as they were when ``state`` was called."""
        moments = cls(0)
        moments.count = state["count"]
        moments.mean, moments._products = state["mean"].clone(), state["products"].clone()
        return moments
