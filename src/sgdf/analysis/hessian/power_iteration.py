"""Eigenvalues one after the other by power iteration: the slow reference, and the usual way.

PyHessian (Yao et al., 2020) finds eigenvalues so, with the defaults of this function. Compared
with Lanczos' method it takes many more products, and it stops early: where eigenvalues are close
to each other, the relative change gets small long before the vector has converged, and the value
is then too small in modulus. Values after it can be too large: the space that is orthogonal to an
inexact vector contains a part of the exact one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from .arrays import Array, Multiplies, norms, relative_residuals
from .eigenvalues import Eigenvalues


def power_iteration(
    operator: Multiplies,
    k: int = 50,
    tol: float = 1e-3,
    iterations: int = 100,
    seed: int = 0,
    *,
    stop: Literal["change", "residual"] = "change",
    vectors: bool = False,
) -> Eigenvalues:
    """Return eigenvalues that are large in modulus, negative ones included.

    Each is sought in the space that is orthogonal to the vectors of those before it.

    Args:
        operator: a symmetric operator.
        k: how many eigenvalues; all of them if the operator has fewer.
        tol: when an eigenvalue counts as found.
        iterations: how many products each eigenvalue may take; then it counts as found too.
        seed: the seed of the first vectors.
        stop: what ``tol`` bounds: ``"change"``, the relative change of the value in an
            iteration, as PyHessian does, or ``"residual"``, the relative residual within the
            space that is searched.
        vectors: return the vectors too.

    Raises:
        ValueError: if k or the number of iterations is not positive, or ``stop`` is none of
            the two.
    """
    if k < 1 or iterations < 1:
        raise ValueError(f"k is {k} and iterations is {iterations}, but both must be positive")
    if stop not in ("change", "residual"):
        raise ValueError(f"stop is {stop!r}, but must be change or residual")
    size = operator.shape[0]
    k = min(k, size)
    values, found, residuals = np.empty(k), np.empty((size, k)), np.empty(k)
    count = 0
    for index in range(k):
        earlier = found[:, :index]
        product = np.random.default_rng([seed, index]).standard_normal(size)
        value = np.nan
        for _ in range(iterations):
            vector = _orthogonal_unit(product, earlier)
            product = operator @ vector
            count += 1
            before, value = value, float(vector @ product)
            if stop == "change":
                distance = abs(value - before)
            else:
                distance = float(norms(product - earlier @ (earlier.T @ product) - value * vector))
            if distance <= tol * abs(value) or not product.any():
                break
        values[index], found[:, index] = value, vector
        residuals[index] = relative_residuals(product, value, vector)
    order = np.argsort(-np.abs(values), kind="stable")
    return Eigenvalues(values[order], residuals[order], count, found[:, order] if vectors else None)


def _orthogonal_unit(vector: Array, earlier: Array) -> Array:
    for _ in range(2):  # once leaves rounding errors of the size of what was removed
        vector = vector - earlier @ (earlier.T @ vector)
    length = norms(vector)
    return vector / length if length else vector
