"""Laws of noise that the filter is tried on, each of mean 0 and variance 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Draw = Callable[["np.random.Generator", "tuple[int, ...]"], "Array"]
"""Returns independent numbers in a shape."""


def two_point(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return 1 or −1 with equal probability."""
    return np.where(random.integers(0, 2, shape) == 1, 1.0, -1.0)


def uniform(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return numbers between −√3 and √3."""
    return random.uniform(-math.sqrt(3.0), math.sqrt(3.0), shape)


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return standard normal numbers."""
    return random.standard_normal(shape)


def laplace(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return numbers of Laplace's law, whose two tails are exponential."""
    return random.laplace(0.0, math.sqrt(0.5), shape)


def student(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return numbers of Student's law with three degrees of freedom: the fourth moment is none."""
    return random.standard_t(3.0, shape) / math.sqrt(3.0)


def exponential(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return exponential numbers less their mean: skewed."""
    return random.standard_exponential(shape) - 1.0


def rare(random: np.random.Generator, shape: tuple[int, ...], probability: float = 0.1) -> Array:
    """Return a large number with a small probability, and else a small one: skewed.

    With probability p it is √((1−p)/p), for p = 0.1 that is 3, and else −√(p/(1−p)), −1/3. Three
    times that, 9 and −1, is ``SKEWED``, the noise that convergence is measured with.
    """
    odds = math.sqrt((1.0 - probability) / probability)
    return np.where(random.random(shape) < probability, odds, -1.0 / odds)


NOISE_LAWS: dict[str, Draw] = {
    "two-point": two_point,
    "uniform": uniform,
    "normal": normal,
    "laplace": laplace,
    "student-3": student,
    "exponential": exponential,
    "rare": rare,
}
"""The laws by name."""
