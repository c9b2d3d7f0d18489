"""Precision and recall of drawn images, by the neighbours of their features."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import SpecError

BLOCK = 2048
"""Features whose distances to as many others are in memory at a time: 34 MB."""
ROUNDING = 1e-12
"""By how much a squared distance may be off, as a share of the squared lengths of the two."""


def precision_and_recall(real: Tensor, drawn: Tensor, neighbours: int = 3) -> tuple[float, float]:
    """Return the share of drawn features among real ones, and of real ones among drawn ones.

    Each feature of a set is the centre of a ball that reaches to its k-th nearest other feature of
    that set. Precision is the share of drawn features within at least one ball of the real ones,
    recall the reverse (Kynkäänniemi et al., 2019).

    Distances are those of float64, from features with the mean of the real ones removed. What is
    as far from a centre as its ball reaches, up to rounding, is within it. So a copy
    of a feature is always within its ball, even of radius 0, which duplicates have.

    Args:
        real: (n, size).
        drawn: (m, size).
        neighbours: k.

    Returns:
        Precision and recall; NaN if a feature is not finite.

    Raises:
        SpecError: if a set has no k-th neighbour.
    """
    for features in (real, drawn):
        if not 0 < neighbours < len(features):
            raise SpecError(
                f"neighbours = {neighbours}: must be at least 1, and less than the number of "
                f"images, which is {len(features)}"
            )
    if not (real.isfinite().all() and drawn.isfinite().all()):
        return math.nan, math.nan
    centre = real.mean(0, dtype=torch.float64)
    drawn_covered, real_covered = _covered(drawn, real, neighbours, centre)
    return _share(drawn_covered), _share(real_covered)


def _covered(drawn: Tensor, real: Tensor, neighbours: int, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Return which features of each set are within a ball of the other."""
    real_reaches = _reaches(real, neighbours, centre)
    drawn_reaches = _reaches(drawn, neighbours, centre)
    drawn_covered, real_covered = (
        torch.zeros(len(features), dtype=torch.bool, device=features.device)
        for features in (drawn, real)
    )
    for first, rows in _blocks(drawn, centre):
        for start, others in _blocks(real, centre):
            distances = _squared_distances(rows, others, slack=ROUNDING)
            of_rows = slice(first, first + len(rows))
            of_others = slice(start, start + len(others))
            drawn_covered[of_rows] |= (distances <= real_reaches[of_others]).any(1)
            real_covered[of_others] |= (distances <= drawn_reaches[of_rows, None]).any(0)
    return drawn_covered, real_covered


def _share(covered: Tensor) -> float:
    return float(covered.double().mean())


def _reaches(features: Tensor, neighbours: int, centre: Tensor) -> Tensor:
    """Return the squared distance of each feature to its k-th nearest other one."""
    found = []
    for first, rows in _blocks(features, centre):
        nearest = rows.new_full((len(rows), neighbours), math.inf)
        for start, others in _blocks(features, centre):
            distances = _squared_distances(rows, others)
            if start == first:
                distances.fill_diagonal_(math.inf)
            together = torch.cat([nearest, distances], 1)
            nearest = together.topk(neighbours, dim=1, largest=False).values
        found.append(nearest[:, -1])
    return torch.cat(found)


def _blocks(features: Tensor, centre: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield blocks of centred features in float64, each with the number of its first row."""
    for start in range(0, len(features), BLOCK):
        yield start, features[start : start + BLOCK].to(torch.float64) - centre


def _squared_distances(rows: Tensor, others: Tensor, slack: float = 0.0) -> Tensor:
    """Return squared distances, each less the squared lengths of the two times the slack."""
    lengths = rows.square().sum(1)[:, None] + others.square().sum(1)
    return lengths.addmm_(rows, others.T, beta=1 - slack, alpha=-2).clamp_(min=0)
