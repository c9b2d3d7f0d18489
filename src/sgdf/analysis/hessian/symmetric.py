"""A symmetric matrix that is known by its products, and what can be found from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from .arrays import Array
from .density import Density, estimate_density
from .eigenvalues import Eigenvalues, Which, find_eigenvalues
from .trace import Trace, estimate_trace


class SymmetricOperator(ABC):
    """A symmetric matrix, known by its products.

    Attributes:
        shape: the number of rows and the number of columns, which are equal.
        dtype: the dtype of the products, float64.
        products: how many vectors have been multiplied so far.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, size: int) -> None:
        self.shape = (size, size)
        self.products = 0

    @abstractmethod
    def _multiply(self, columns: Tensor) -> Tensor:
        """Return the products with the columns of a matrix in float64, on the CPU."""

    @overload
    def __matmul__(self, vectors: Tensor) -> Tensor: ...

    @overload
    def __matmul__(self, vectors: NDArray[np.number]) -> Array: ...

    def __matmul__(self, vectors: Tensor | NDArray[np.number]) -> Tensor | Array:
        """Return the product with a vector, or with each column of a matrix, in float64."""
        if not isinstance(vectors, Tensor):
            given = np.asarray(vectors)
            if given.dtype.kind not in "fiu":
                raise TypeError(f"the vector is of dtype {given.dtype}, but must be real")
            product = self @ torch.from_numpy(given.astype(np.float64))
            array: Array = product.numpy()
            return array
        if vectors.ndim not in (1, 2) or len(vectors) != self.shape[1]:
            raise ValueError(
                f"an operator of shape {self.shape} cannot multiply one of shape "
                f"{tuple(vectors.shape)}"
            )
        if vectors.is_complex():
            raise TypeError(f"the vector is of dtype {vectors.dtype}, but must be real")
        columns = vectors.detach().to("cpu", torch.float64)
        columns = columns.reshape(len(vectors), -1)
        if not columns.isfinite().all():
            raise ValueError("the vector has elements that are not finite")
        products = self._multiply(columns)
        self.products += columns.shape[1]
        return products.reshape(vectors.shape).to(vectors.device)

    def top(
        self,
        k: int = 50,
        tol: float = 1e-6,
        which: Which = "largest",
        seed: int = 0,
        *,
        vectors: bool = False,
        iterations: int = 300,
    ) -> Eigenvalues:
        """Return the outer eigenvalues; see :func:`find_eigenvalues`."""
        return find_eigenvalues(self, k, tol, which, seed, vectors=vectors, iterations=iterations)

    def trace(self, probes: int = 100, seed: int = 0) -> Trace:
        """Estimate the trace; see :func:`estimate_trace`."""
        return estimate_trace(self, probes, seed)

    def density(self, probes: int = 5, steps: int = 50, seed: int = 0) -> Density:
        """Estimate the density of the eigenvalues; see :func:`estimate_density`."""
        return estimate_density(self, probes, steps, seed)

    def linear_operator(self) -> LinearOperator:
        """Return the operator in the form that the functions of scipy take."""
        return LinearOperator(
            self.shape,
            matvec=lambda vector: self @ np.ravel(vector),
            rmatvec=lambda vector: self @ np.ravel(vector),
            matmat=lambda columns: self @ columns,
            dtype=self.dtype,
        )

    def dense(self) -> Array:
        """Return the whole matrix, which takes as many products as it has columns."""
        matrix = self @ np.eye(self.shape[0])
        return (matrix + matrix.T) / 2
