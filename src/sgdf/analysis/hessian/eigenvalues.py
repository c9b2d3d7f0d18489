"""The outer eigenvalues of a symmetric operator, by Lanczos' method with restarts (ARPACK)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

from .arrays import Array, Multiplies, relative_residuals

Which = Literal["largest", "smallest", "modulus"]

ROUGH = 0.1
"""The relative accuracy of the largest modulus, where only its size matters."""
_ARPACK = {"largest": "LA", "smallest": "SA", "modulus": "LM"}


@dataclass(frozen=True)
class Eigenvalues:
    """Some eigenvalues of a symmetric operator.

    Attributes:
        values: the eigenvalues: the largest first, the smallest first, or the largest in modulus
            first, as was asked for.
        residuals: ‖Hv − λv‖ / |λ| of each value λ and its unit vector v, measured with a product.
            An eigenvalue of the operator is at most this share of |λ| away. Those of the smallest
            eigenvalues are relative to the largest in modulus instead.
        products: how many products it took, those that measure the residuals included.
        vectors: the vectors as columns, or None if they were not asked for.
    """

    values: Array
    residuals: Array
    products: int
    vectors: Array | None = None


class ConvergenceError(RuntimeError):
    """Not all eigenvalues converged.

    Attributes:
        found: those that did.
    """

    def __init__(self, message: str, found: Eigenvalues) -> None:
        super().__init__(message)
        self.found = found


def find_eigenvalues(
    operator: Multiplies,
    k: int = 50,
    tol: float = 1e-6,
    which: Which = "largest",
    seed: int = 0,
    *,
    vectors: bool = False,
    iterations: int = 300,
) -> Eigenvalues:
    """Return the eigenvalues at one end of the spectrum, or at both.

    It keeps 2k + 1 vectors in memory. If these would be as many as the operator has dimensions,
    the dense matrix is decomposed instead.

    Args:
        operator: a symmetric operator.
        k: how many eigenvalues; all of them if the operator has fewer.
        tol: the relative accuracy of each; that of the smallest is relative to the largest in
            modulus. Where the loss is convex, the smallest is nearly 0, and the rounding of a
            product, which is relative to the largest, hides all of its digits. The residuals can
            be larger, since they are measured: with products in float32, their rounding sets a
            limit.
        which: ``"largest"``, ``"smallest"``, or ``"modulus"``: the largest in modulus.
        seed: the seed of the first vector. The same seed asks for the same products.
        vectors: return the eigenvectors too.
        iterations: how many restarts are allowed.

    Raises:
        ConvergenceError: if fewer than k have converged; it has those that did.
        ValueError: if k is not positive, or ``which`` is none of the three.
    """
    if k < 1:
        raise ValueError(f"k is {k}, but must be positive")
    if which not in get_args(Which):
        raise ValueError(f"which is {which!r}, but must be one of {', '.join(get_args(Which))}")
    size, accuracy = operator.shape[0], tol
    basis = max(2 * k + 1, 20)
    if basis >= size:
        return _from_dense_matrix(operator, k, which, vectors)

    count, is_zero = 0, True
    size_of_largest, shift = None, 0.0
    if which == "smallest":
        # ARPACK's accuracy is relative to the eigenvalue itself. Moved down by twice the largest
        # modulus, each has one to three times that modulus; the vectors stay the same.
        largest = find_eigenvalues(operator, 1, ROUGH, "modulus", seed, iterations=iterations)
        size_of_largest = float(abs(largest.values[0]))
        count, shift, accuracy = largest.products, 2.0 * size_of_largest, tol / 3.0

    def product(vector: Array) -> Array:
        nonlocal count, is_zero
        count += 1
        multiplied = operator @ vector.ravel() - shift * vector.ravel()
        is_zero = is_zero and not multiplied.any()
        return multiplied

    def result(values: Array, columns: Array) -> Eigenvalues:
        values = values + shift
        order = _order(values, which)
        values, columns = values[order], columns[:, order]
        residuals = relative_residuals(operator @ columns, values, columns, size_of_largest)
        return Eigenvalues(values, residuals, count + len(values), columns if vectors else None)

    options: dict[str, Any] = {
        "k": k,
        "which": _ARPACK[which],
        "v0": np.random.default_rng(seed).standard_normal(size),
        "ncv": basis,
        "maxiter": iterations,
        "tol": accuracy,
        # Vectors for the case that the operator has too low a rank for a basis of this size.
        "rng": np.random.default_rng([seed, 1]),
    }
    try:
        return result(*eigsh(LinearOperator((size, size), product, dtype=np.float64), **options))
    except ArpackNoConvergence as error:
        found = result(error.eigenvalues, error.eigenvectors)
        raise ConvergenceError(
            f"{len(found.values)} of {k} eigenvalues converged to {tol:g} within {iterations} "
            f"restarts and {found.products} products; a larger tol or more iterations may help",
            found,
        ) from error
    except ArpackError:
        if not is_zero:
            raise
        return result(np.zeros(k), np.eye(size, k))  # which ARPACK does not start on


def _from_dense_matrix(operator: Multiplies, k: int, which: Which, vectors: bool) -> Eigenvalues:
    size = operator.shape[0]
    matrix = operator @ np.eye(size)
    every, columns = scipy.linalg.eigh((matrix + matrix.T) / 2)
    order = _order(every, which)[:k]
    values, columns = every[order], columns[:, order]
    largest = float(np.abs(every).max()) if which == "smallest" else None
    residuals = relative_residuals(matrix @ columns, values, columns, largest)
    return Eigenvalues(values, residuals, size, columns if vectors else None)


def _order(values: Array, which: Which) -> Any:
    rank = {"largest": -values, "smallest": values, "modulus": -np.abs(values)}[which]
    return np.argsort(rank, kind="stable")
