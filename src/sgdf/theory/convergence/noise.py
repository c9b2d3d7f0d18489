"""Bounded noise, and the fixed sequences of an adversary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor


def check_finite(values: Sequence[float]) -> None:
    """Raise a ``ValueError`` if there is no value, or one that is not finite."""
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"Invalid values, expected one finite number or more: {values}")


class Draws(Protocol):
    """What chance, or an adversary, adds to each step: bounded numbers, one for each element."""

    @property
    def bound(self) -> float:
        """The largest absolute value."""

    @property
    def mean(self) -> float:
        """The mean."""

    def draw(self, generator: Generator, first: int, steps: int, shape: Sequence[int]) -> Tensor:
        """Return the values of so many steps from step ``first`` on; the first axis counts them."""


@dataclass(frozen=True)
class DiscreteNoise:
    """Independent values from a finite list.

    Attributes:
        values: the values.
        odds: the probability of each.

    Raises:
        ValueError: if the probabilities do not fit the values, or do not add up to 1.

    Example:
        >>> from sgdf.theory import DiscreteNoise
        >>> DiscreteNoise((9.0, -1.0), (0.1, 0.9)).bound
        9.0
    """

    values: tuple[float, ...]
    odds: tuple[float, ...]

    def __post_init__(self) -> None:
        check_finite(self.values)
        if len(self.values) != len(self.odds):
            raise ValueError(f"Invalid odds, expected {len(self.values)} of them: {self.odds}")
        if min(self.odds) < 0.0 or not math.isclose(sum(self.odds), 1.0):
            raise ValueError(f"Invalid odds, not probabilities that add up to 1: {self.odds}")

    @property
    def bound(self) -> float:
        """The largest absolute value."""
        return max(map(abs, self.values))

    @property
    def mean(self) -> float:
        """The mean; what rounding leaves of a sum that cancels counts as 0."""
        parts = [value * odds for value, odds in zip(self.values, self.odds, strict=True)]
        total = math.fsum(parts)
        return total if abs(total) > 1e-15 * math.fsum(map(abs, parts)) else 0.0

    def draw(self, generator: Generator, first: int, steps: int, shape: Sequence[int]) -> Tensor:
        """Return the values of so many steps; ``first`` makes no difference."""
        del first
        limits = torch.tensor(self.odds, dtype=torch.float64).cumsum(0)[:-1]
        uniform = torch.rand((steps, *shape), generator=generator, dtype=torch.float64)
        values = torch.tensor(self.values, dtype=torch.float64)
        return values[torch.bucketize(uniform, limits, right=True)]


@dataclass(frozen=True)
class Cycle:
    """The same values for all elements, in a fixed order that begins anew at its end.

    Example:
        >>> import torch
        >>> from sgdf.theory.convergence.noise import Cycle
        >>> Cycle((2.0, -1.0)).draw(torch.Generator(), first=2, steps=3, shape=()).tolist()
        [-1.0, 2.0, -1.0]
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check_finite(self.values)

    @property
    def bound(self) -> float:
        """The largest absolute value."""
        return max(map(abs, self.values))

    @property
    def mean(self) -> float:
        """The mean over one cycle."""
        return math.fsum(self.values) / len(self.values)

    def draw(self, generator: Generator, first: int, steps: int, shape: Sequence[int]) -> Tensor:
        """Return the values of steps ``first``, ``first + 1``, …; step 1 has the first value."""
        del generator
        places = (torch.arange(steps) + first - 1) % len(self.values)
        values = torch.tensor(self.values, dtype=torch.float64)[places]
        return values.reshape(steps, *(1 for _ in shape)).expand(steps, *shape)


SKEWED = DiscreteNoise((9.0, -1.0), (0.1, 0.9))
"""Mean 0, standard deviation 3, skewed: three times the law ``"rare"`` of ``NOISE_LAWS``."""
SYMMETRIC = DiscreteNoise((3.0, -3.0), (0.5, 0.5))
"""Mean 0, standard deviation 3, symmetric."""
