"""Boxes (left, top, right, bottom): what a photograph has, what was found, and how they overlap."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Truth(NamedTuple):
    """What a photograph has.

    Attributes:
        boxes: (n, 4), in pixels.
        classes: (n,), from 1 on: 0 is the background.
        difficult: (n,), whether a box is one that nobody is expected to find.
    """

    boxes: Tensor
    classes: Tensor
    difficult: Tensor


class Found(NamedTuple):
    """What a detector has found in a photograph.

    Attributes:
        boxes: (n, 4), in pixels.
        scores: (n,), the higher the surer.
        classes: (n,), from 1 on.
    """

    boxes: Tensor
    scores: Tensor
    classes: Tensor


def areas(boxes: Tensor, edge: float = 0.0) -> Tensor:
    """Return the areas of boxes (n, 4).

    Args:
        boxes: the boxes.
        edge: what is added to each width and height: 1 where both ends are pixels of the box.
    """
    return (boxes[:, 2] - boxes[:, 0] + edge) * (boxes[:, 3] - boxes[:, 1] + edge)


def intersections(boxes: Tensor, others: Tensor, edge: float = 0.0) -> Tensor:
    """Return the areas (n, m) that boxes (n, 4) and others (m, 4) have in common.

    >>> intersections(torch.tensor([[0.0, 0, 4, 4]]), torch.tensor([[2.0, 1, 6, 3], [4, 0, 8, 4]]))
    tensor([[4., 0.]])
    """
    left_top = torch.maximum(boxes[:, None, :2], others[:, :2])
    right_bottom = torch.minimum(boxes[:, None, 2:], others[:, 2:])
    return (right_bottom - left_top + edge).clamp(min=0).prod(2)


def flipped(boxes: Tensor, width: float) -> Tensor:
    """Return boxes as they are in the mirror image of a photograph of this width.

    >>> flipped(torch.tensor([[1.0, 2, 4, 8]]), 10)
    tensor([[6., 2., 9., 8.]])
    """
    left, top, right, bottom = boxes.unbind(1)
    return torch.stack([width - right, top, width - left, bottom], 1)
