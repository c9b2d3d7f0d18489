"""Fixed vectors for numbers and for the places of a grid, made of sines and cosines."""

from __future__ import annotations

import torch
from torch import Tensor

LONGEST = 10_000.0
"""The longest wave, in units of 2π."""


def waves(numbers: Tensor, width: int) -> Tensor:
    r"""Return the sines, then the cosines, of numbers at falling frequencies.

    These are :math:`\sin(x\,\omega_k)` and :math:`\cos(x\,\omega_k)` with :math:`\omega_k =
    10000^{-2k/w}` for each k below w/2, where w is the width (Vaswani et al., 2017).

    Args:
        numbers: floats (n,).
        width: of the vectors; even.

    Returns:
        The vectors (n, width).

    >>> waves(torch.tensor([0.0]), 4)
    tensor([[0., 0., 1., 1.]])
    """
    half = width // 2
    powers = torch.arange(half, dtype=numbers.dtype, device=numbers.device) / half
    angles = numbers[:, None] * torch.pow(LONGEST, -powers)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def grid_positions(side: int, width: int) -> Tensor:
    """Return a vector for each place of a square grid, row by row (side², width).

    One half of each vector tells the row, the other the column.

    Args:
        side: how many places a row has.
        width: of the vectors; a multiple of four.
    """
    axis = waves(torch.arange(side, dtype=torch.float64), width // 2)
    rows, columns = axis.repeat_interleave(side, dim=0), axis.repeat(side, 1)
    return torch.cat([rows, columns], dim=1).to(torch.get_default_dtype())
