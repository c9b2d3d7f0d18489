"""Batches of photographs of about the same shape, so that little of them is padding."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..supervised import ShuffledBatches

GROUPS_PER_SIDE = 3
EDGES = [2.0 ** (k / GROUPS_PER_SIDE) for k in range(-GROUPS_PER_SIDE, GROUPS_PER_SIDE + 1)]
"""Ratios of width to height, from 1/2 to 2, at which one group ends and the next begins."""


class Example(NamedTuple):
    """A photograph as a detector learns from it.

    Attributes:
        pixels: bytes (3, height, width).
        boxes: (n, 4), in its pixels.
        classes: (n,), from 1 on.
    """

    pixels: Tensor
    boxes: Tensor
    classes: Tensor


def shape_group(width: int, height: int) -> int:
    """Return the number of the group of shapes.

    >>> shape_group(500, 375), shape_group(375, 500), shape_group(400, 400)
    (5, 2, 4)
    """
    return bisect.bisect_right(EDGES, width / height)


class GroupedBatches(ShuffledBatches):
    """The batches of one epoch, each of photographs of one group of shapes.

    Only the last ones, of what is left over of each group, can have several groups. There are as
    many batches as without groups. All that is random is drawn from ``order`` at once, so that
    batches can be skipped.

    Args:
        groups: the group of each photograph.
        load: returns a photograph by its number, mirrored or not.
        batch_size: photographs in a batch; the last one may have fewer.
        order: shuffles the photographs, and says which are mirrored.
    """

    def __init__(
        self,
        groups: Sequence[int],
        load: Callable[[int, bool], Example],
        batch_size: int,
        order: torch.Generator,
    ) -> None:
        self.load = load
        shuffled = torch.randperm(len(groups), generator=order).tolist()
        flips = (torch.rand(len(groups), generator=order) < 0.5).tolist()
        waiting: dict[int, list[tuple[int, bool]]] = {}
        self.chunks: list[list[tuple[int, bool]]] = []
        for number, flip in zip(shuffled, flips, strict=True):
            group = waiting.setdefault(groups[number], [])
            group.append((number, flip))
            if len(group) == batch_size:
                self.chunks.append(waiting.pop(groups[number]))
        left = [one for group in sorted(waiting) for one in waiting[group]]
        self.chunks += [left[i : i + batch_size] for i in range(0, len(left), batch_size)]

    def __iter__(self) -> Iterator[list[Example]]:
        for chunk in self.chunks:
            yield [self.load(number, flip) for number, flip in chunk]
