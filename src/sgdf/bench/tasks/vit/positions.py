"""Position embeddings for images of another size than those that they were trained on."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def resized_positions(positions: Tensor, grid: int) -> Tensor:
    """Return position embeddings for a grid of another side.

    They are interpolated bilinearly in both directions, with the corners on the corners. The one
    of the token that stands for the whole image is kept.

    Args:
        positions: (1, 1 + g², h): that of the whole image, then those of a square grid, by rows.
        grid: the side of the other grid.

    >>> resized_positions(torch.tensor([[[9.0], [0.0], [2.0], [4.0], [6.0]]]), 3).flatten()
    tensor([9., 0., 1., 2., 2., 3., 4., 4., 5., 6.])
    """
    whole, places = positions[:, :1], positions[:, 1:]
    side = math.isqrt(places.shape[1])
    if side == grid:
        return positions
    plane = places.transpose(1, 2).reshape(1, -1, side, side)
    plane = functional.interpolate(plane, size=(grid, grid), mode="bilinear", align_corners=True)
    return torch.cat([whole, plane.flatten(2).transpose(1, 2)], dim=1)
