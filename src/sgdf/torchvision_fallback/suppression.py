"""Non-maximum suppression: of boxes that overlap much, the one with the highest score stays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ROWS = 256
"""How many boxes are compared with all others at once: it bounds the memory."""


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the numbers of the boxes that stay, with falling scores.

    A box goes if its intersection with a box that stays and has a higher score, divided by their
    union, exceeds the threshold. Of equal scores, the box that comes first counts as higher. Boxes
    without an area suppress none and stay.

    Args:
        boxes: (n, 4), as left, top, right, bottom.
        scores: (n,).
        iou_threshold: the intersection over union that is still allowed.
    """
    _refuse_misfits(boxes, scores)
    order = scores.sort(descending=True, stable=True).indices
    ranked = boxes[order].to(torch.promote_types(boxes.dtype, torch.float32))
    stays = np.ones(len(order), dtype=bool)
    for start in range(0, len(order), ROWS):
        rows = start + np.flatnonzero(stays[start : start + ROWS])
        # The bound is not rounded to the precision of the boxes, nor is it by torchvision.
        shares = _intersections_over_unions(ranked[rows], ranked[start:]).double()
        exceed = (shares > iou_threshold).cpu().numpy()
        for row, exceeds in zip(rows, exceed, strict=True):
            if stays[row]:
                stays[row + 1 :] &= ~exceeds[row + 1 - start :]
    return order[torch.from_numpy(stays).to(order.device)]


def _intersections_over_unions(boxes: Tensor, others: Tensor) -> Tensor:
    """Return a row for each box and a column for each other; 0/0 is not a number."""
    left, top, right, bottom = boxes.unsqueeze(1).unbind(2)
    other_left, other_top, other_right, other_bottom = others.unbind(1)
    widths = (torch.minimum(right, other_right) - torch.maximum(left, other_left)).clamp(min=0)
    heights = (torch.minimum(bottom, other_bottom) - torch.maximum(top, other_top)).clamp(min=0)
    intersections = widths * heights
    areas = (right - left) * (bottom - top)
    other_areas = (other_right - other_left) * (other_bottom - other_top)
    return intersections / (areas + other_areas - intersections)


def _refuse_misfits(boxes: Tensor, scores: Tensor) -> None:
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"nms: boxes have the shape (n, 4), not {tuple(boxes.shape)}")
    if scores.shape != boxes.shape[:1]:
        raise RuntimeError(
            f"nms: {len(boxes)} boxes need scores of the shape ({len(boxes)},), "
            f"not {tuple(scores.shape)}"
        )
    if boxes.dtype != scores.dtype:
        raise RuntimeError(f"nms: the boxes are {boxes.dtype}, but the scores {scores.dtype}")
