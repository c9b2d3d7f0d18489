"""The density of a symmetric operator's eigenvalues, by stochastic Lanczos quadrature.

Lanczos' method from a random vector gives the nodes and weights of a Gauss quadrature of the
density as this vector sees it (Golub and Welsch, 1969); the mean over random vectors is the
density itself (Ubaru, Chen and Saad, 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from .arrays import Array, Multiplies, norms
from .probes import rademacher


@dataclass(frozen=True)
class Density:
    """An estimate of the share of eigenvalues in each place.

    Attributes:
        nodes: the places, in ascending order.
        weights: the share of the eigenvalues at each node; they add up to 1.
        products: how many products it took.
    """

    nodes: Array
    weights: Array
    products: int

    def smoothed(
        self, grid: Array | None = None, width: float | None = None
    ) -> tuple[Array, Array]:
        """Return a grid, and a density on it whose integral is 1.

        Args:
            grid: where to evaluate the density; by default 1,000 points that reach 4 widths
                beyond the nodes.
            width: the standard deviation of the normal curve that stands for each node; by
                default 1 % of the range of the nodes.

        Raises:
            ValueError: if the width is not positive, or there is only one node and no width.
        """
        low, high = float(self.nodes[0]), float(self.nodes[-1])
        if width is None:
            width = (high - low) / 100
        if not width > 0:
            raise ValueError(f"the width is {width:g}, but must be positive")
        if grid is None:
            grid = np.linspace(low - 4 * width, high + 4 * width, 1000)
        curves = np.exp(-(((grid[:, None] - self.nodes) / width) ** 2) / 2)
        return grid, curves @ self.weights / (width * np.sqrt(2 * np.pi))


def estimate_density(
    operator: Multiplies, probes: int = 5, steps: int = 50, seed: int = 0
) -> Density:
    """Estimate the density of the eigenvalues with vectors of random signs.

    It keeps as many vectors in memory as it makes steps.

    Args:
        operator: a symmetric operator.
        probes: how many vectors. Each is drawn from the seed and its index, as those of the
            trace are.
        steps: how many products for each vector; also the most nodes that each can give.
        seed: the seed of the vectors.

    Raises:
        ValueError: if there are no vectors or no steps.
    """
    if probes < 1 or steps < 1:
        raise ValueError(f"probes is {probes} and steps is {steps}, but both must be positive")
    size = operator.shape[0]
    parts = [_lanczos(operator, rademacher(size, seed, index), steps) for index in range(probes)]
    nodes, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(nodes, kind="stable")
    return Density(nodes[order], weights[order] / probes, sum(len(part[0]) for part in parts))


def _lanczos(operator: Multiplies, start: Array, steps: int) -> tuple[Array, Array]:
    """Return nodes and weights of the density as one vector sees it."""
    steps = min(steps, len(start))
    basis = np.empty((len(start), steps))
    diagonal: list[float] = []
    beside: list[float] = []
    vector = start / norms(start)
    for step in range(steps):
        basis[:, step] = vector
        vector = operator @ vector
        length = norms(vector)
        diagonal.append(float(basis[:, step] @ vector))
        known = basis[:, : step + 1]
        for _ in range(2):  # against all of them, or eigenvalues appear again and again
            vector = vector - known @ (known.T @ vector)
        rest = float(norms(vector))
        # What remains is rounding: the vectors span a space that the operator does not leave.
        if step + 1 == steps or rest <= len(start) * np.finfo(float).eps * length:
            break
        beside.append(rest)
        vector = vector / rest
    nodes, vectors = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(beside))
    return nodes, vectors[0] ** 2
