"""Normal distributions in the variational bound of a diffusion, in nats."""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 256
"""The values of a pixel that a likelihood distinguishes, evenly spaced from -1 to 1."""


def kl_of_normals(
    mean: Tensor, log_variance: Tensor, other_mean: Tensor, other_log_variance: Tensor
) -> Tensor:
    """Return the Kullback-Leibler divergence of a normal distribution from another, by element."""
    ratio = log_variance - other_log_variance
    squares = (mean - other_mean).square() * torch.exp(-other_log_variance)
    return (ratio.exp() - ratio - 1 + squares) / 2


def log_likelihood_of_levels(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the log-probability that a normal number falls as near to each value as to no other.

    A value stands for all numbers that are at most half a level away; the lowest and the highest
    stand for all numbers beyond them, too (Ho et al., 2020, equation 13).

    Args:
        values: one of 256 levels each; latents are no levels, but are taken in the same way.
        mean: of the normal distribution of each.
        log_variance: the logarithm of its variance.
    """
    inverse = torch.exp(-log_variance / 2)
    half = inverse / (LEVELS - 1)
    centre = (values - mean) * inverse
    # The interval is mirrored into the lower tail, where the difference of two logarithms
    # is exact: in the upper one, both probabilities round to 1.
    upper = torch.special.log_ndtr(half - centre.abs())
    lower = torch.special.log_ndtr(-half - centre.abs())
    inside = upper + torch.log1p(-torch.exp(lower - upper))
    edge = 1 - 1 / (LEVELS - 1)
    result = torch.where(values < -edge, torch.special.log_ndtr(centre + half), inside)
    return torch.where(values > edge, torch.special.log_ndtr(half - centre), result)
