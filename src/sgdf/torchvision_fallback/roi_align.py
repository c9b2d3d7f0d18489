"""Features of regions: each region of a map is sampled on a grid and averaged in bins."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

ENTRIES = 2**22
"""How many values of a map are looked up at once, for one channel: it bounds the memory."""


def roi_align(
    inputs: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the features of regions, (regions, channels, pooled_height, pooled_width).

    A region is divided into bins, and a bin has the mean of the map at points on a regular grid in
    it. Between the centres of its cells the map is interpolated bilinearly, up to one cell beyond
    the outermost centres it goes on as it is there, and further out it is 0. Gradients go to the
    inputs, and not to the regions.

    Args:
        inputs: maps, (images, channels, height, width).
        rois: (regions, 5): the number of the image, and left, top, right, bottom.
        spatial_scale: cells of the map per unit of the regions.
        pooled_height: how many rows of bins.
        pooled_width: how many columns of bins.
        sampling_ratio: the grid in a bin has as many rows and columns. If it is not positive, they
            are as many as the bin has cells of the map, rounded up.
        aligned: the centre of the first cell is at half a cell. If not, it is at 0, and a region is
            at least one cell wide and high, as in the first versions of this operator.
    """
    _refuse_misfits(inputs, rois)
    dtype = torch.promote_types(torch.promote_types(inputs.dtype, rois.dtype), torch.float32)
    channels, height, width = inputs.shape[1:]
    rois = rois.detach().to(dtype)
    images = rois[:, 0].long()
    left, top, right, bottom = (rois[:, 1:] * spatial_scale - 0.5 * aligned).unbind(1)
    widths, heights = right - left, bottom - top
    if not aligned:
        widths, heights = widths.clamp(min=1), heights.clamp(min=1)
    table = inputs.to(dtype).permute(0, 2, 3, 1).reshape(-1, channels)
    # Zero rows of the inputs, so that there is a gradient, of zeros, even if no region follows.
    parts, of_regions = [table[:0].reshape(0, channels, 1, 1)], [images[:0]]
    parts = [parts[0].expand(0, channels, pooled_height, pooled_width)]
    for chosen, rows, columns in _alike(
        heights / pooled_height, widths / pooled_width, sampling_ratio, pooled_height * pooled_width
    ):
        down, down_weights = _points(top[chosen], heights[chosen], pooled_height, rows, height)
        across, across_weights = _points(left[chosen], widths[chosen], pooled_width, columns, width)
        first = (images[chosen] * height * width).view(-1, 1, 1, 1, 1)
        cells = first + down[:, :, None, :, None] * width + across[:, None, :, None, :]
        weights = down_weights[:, :, None, :, None] * across_weights[:, None, :, None, :]
        bins = functional.embedding_bag(
            cells.flatten(3).flatten(0, 2),
            table,
            mode="sum",
            per_sample_weights=weights.flatten(3).flatten(0, 2) / (rows * columns),
        )
        bins = bins.view(-1, pooled_height, pooled_width, channels)
        parts.append(bins.permute(0, 3, 1, 2))
        of_regions.append(chosen)
    pooled = table.new_zeros(len(rois), channels, pooled_height, pooled_width)
    return pooled.index_copy(0, torch.cat(of_regions), torch.cat(parts)).to(inputs.dtype)


def _alike(
    bin_heights: Tensor, bin_widths: Tensor, sampling_ratio: int, bins: int
) -> Iterator[tuple[Tensor, int, int]]:
    """Yield regions whose bins have the same grid, and its rows and columns.

    A region without a point in its bins is left out.
    """
    sides = torch.stack([bin_heights, bin_widths], 1)
    wanted = torch.full_like(sides, sampling_ratio) if sampling_ratio > 0 else sides.ceil()
    grids, numbers = torch.unique(wanted, dim=0, return_inverse=True)
    for number, (rows, columns) in enumerate(grids.long().tolist()):
        if rows > 0 and columns > 0:
            at_once = max(1, ENTRIES // (4 * rows * columns * bins))
            for chosen in (numbers == number).nonzero().flatten().split(at_once):
                yield chosen, rows, columns


def _points(
    starts: Tensor, sizes: Tensor, bins: int, samples: int, side: int
) -> tuple[Tensor, Tensor]:
    """Return along one axis the two cells around each point of each bin, and their weights.

    Both have the shape (regions, bins, 2 * samples).
    """
    in_bins = (torch.arange(samples, dtype=sizes.dtype, device=sizes.device) + 0.5) / samples
    offsets = torch.arange(bins, dtype=sizes.dtype, device=sizes.device)[:, None] + in_bins
    places = starts[:, None, None] + offsets * (sizes / bins)[:, None, None]
    is_inside = (places >= -1) & (places <= side)
    places = torch.where(is_inside, places, 0).clamp(0, side - 1)
    lower = places.floor()
    share = places - lower
    lower = lower.long()
    cells = torch.stack([lower, (lower + 1).clamp(max=side - 1)], -1)
    weights = torch.stack([1 - share, share], -1) * is_inside[..., None]
    return cells.flatten(2), weights.flatten(2)


def _refuse_misfits(inputs: Tensor, rois: Tensor) -> None:
    if inputs.dim() != 4:
        raise RuntimeError(f"roi_align: the input has 4 dimensions, not {inputs.dim()}")
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise RuntimeError(f"roi_align: regions have the shape (n, 5), not {tuple(rois.shape)}")
    # Autocast computes in float32, whatever comes in.
    if inputs.dtype != rois.dtype and not torch.is_autocast_enabled(inputs.device.type):
        raise RuntimeError(
            f"roi_align: the input is {inputs.dtype}, but the regions are {rois.dtype}"
        )
