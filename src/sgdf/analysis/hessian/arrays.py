"""The kinds of array that the algorithms take and return."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Multiplies(Protocol):
    """A symmetric matrix, known by its products with vectors: all that an algorithm needs."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and the number of columns, which are equal."""

    def __matmul__(self, vectors: Array, /) -> Array:
        """Return the product with a vector, or with each column of a matrix."""


def norms(vectors: Array) -> Array:
    """Return the norm of a vector, or of each column of a matrix."""
    lengths: Array = np.linalg.norm(vectors, axis=0)
    return lengths


def relative_residuals(
    products: Array, values: Array | float, vectors: Array, size: float | None = None
) -> Array:
    """Return ‖Hv − λv‖ / |λ| of a value with its vector, or of each value with its column.

    Args:
        products: the products of the operator with the vectors.
        values: the approximate eigenvalues.
        vectors: their unit vectors.
        size: what the distances are relative to, instead of each |λ|.
    """
    distances = norms(products - vectors * values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distances == 0, 0.0, distances / np.abs(values if size is None else size))
