"""The trace of a symmetric operator, from its products with random vectors (Hutchinson, 1990)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array, Multiplies
from .probes import rademacher


@dataclass(frozen=True)
class Trace:
    """An estimate of a trace.

    Attributes:
        value: the mean of the samples.
        error: its standard error.
        samples: zᵀHz of each random vector z. Their variance is 2 Σ_{i≠j} H_ij².
        products: how many products it took.
    """

    value: float
    error: float
    samples: Array
    products: int


def estimate_trace(operator: Multiplies, probes: int = 100, seed: int = 0) -> Trace:
    """Estimate the trace with vectors of random signs.

    Args:
        operator: a symmetric operator.
        probes: how many vectors. Each is drawn from the seed and its index: with more of them,
            the first samples stay the same.
        seed: the seed of the vectors.

    Raises:
        ValueError: if there are fewer than two vectors, which have no standard error.
    """
    if probes < 2:
        raise ValueError(f"probes is {probes}, but a standard error needs at least 2")
    samples = np.empty(probes)
    for index in range(probes):
        probe = rademacher(operator.shape[0], seed, index)
        samples[index] = probe @ (operator @ probe)
    error = float(samples.std(ddof=1) / np.sqrt(probes))
    return Trace(float(samples.mean()), error, samples, probes)
