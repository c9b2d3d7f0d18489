"""The Fréchet distance between two normal distributions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Normal(NamedTuple):
    """A normal distribution.

    Attributes:
        mean: (d,) in float64.
        covariance: (d, d) in float64.
    """

    mean: Tensor
    covariance: Tensor


def frechet_distance(mean_a: Tensor, cov_a: Tensor, mean_b: Tensor, cov_b: Tensor) -> float:
    r"""Return the squared Fréchet distance of two normal distributions, as FIDs are given.

    It is :math:`\|\mu_a-\mu_b\|^2 + \mathrm{tr}(\Sigma_a + \Sigma_b - 2(\Sigma_a\Sigma_b)^{1/2})`
    (Dowson and Landau, 1982; Heusel et al., 2017). The trace of the root is that of
    :math:`(\Sigma_a^{1/2}\Sigma_b\Sigma_a^{1/2})^{1/2}`. With :math:`\Sigma = FF^\top`, it is the
    sum of the singular values of :math:`F_a^\top F_b`. The root of a matrix (``sqrtm``) is not
    taken: the product is not symmetric, and where it has no full rank, as with fewer images than
    features, its root may not exist, or comes out complex. The eigenvalues of the symmetric
    product would do, but the root would then lose half of their digits.

    Returns:
        The distance, which is never negative; NaN if a moment is not finite.

    Raises:
        ValueError: if the distributions do not have equally many dimensions.

    >>> one, two = torch.ones(1), torch.ones(1, 1)
    >>> round(frechet_distance(0 * one, 4 * two, 3 * one, two), 9)
    10.0
    """
    if mean_a.shape != mean_b.shape or cov_a.shape != cov_b.shape:
        raise ValueError(f"features of {len(mean_a):,} and of {len(mean_b):,} numbers")
    moments = [part.to(torch.float64) for part in (mean_a, cov_a, mean_b, cov_b)]
    if not all(part.isfinite().all() for part in moments):
        return math.nan
    mean_a, cov_a, mean_b, cov_b = moments
    overlap = torch.linalg.svdvals(_factor(cov_a).T @ _factor(cov_b)).sum()
    spread = cov_a.trace() + cov_b.trace() - 2 * overlap
    return max(0.0, float((mean_a - mean_b).square().sum() + spread))


def _factor(covariance: Tensor) -> Tensor:
    """Return a matrix F with F Fᵀ = covariance."""
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt()
