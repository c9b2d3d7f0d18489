"""Which detections of one class in one photograph are right, by the rules of COCO and of VOC.

Detections come in the order of their scores, the highest first. ``overlaps`` has a row for each,
with its overlap with each true box; at ``ENOUGH`` a detection has found the box.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .boxes import areas, intersections

ENOUGH = 0.5
WRONG, RIGHT, IGNORED = 0, 1, 2

Overlaps = Sequence[Sequence[float]]


def coco_overlaps(found: Tensor, true: Tensor, difficult: Tensor) -> Tensor:
    """Return intersection over union; for a difficult box, over the area of the detection.

    That is COCO's rule for crowds: a detection that lies in one overlaps it wholly.
    """
    common = intersections(found, true)
    own = areas(found)[:, None]
    whole = torch.where(difficult, own, own + areas(true) - common)
    return torch.where(common > 0, common / whole, 0.0)


def voc_overlaps(found: Tensor, true: Tensor) -> Tensor:
    """Return intersection over union, where both ends of a box are pixels of it.

    So it is in VOC's kit: a box from 1 to 10 is ten pixels wide.
    """
    common = intersections(found, true, edge=1.0)
    return common / (areas(found, 1.0)[:, None] + areas(true, 1.0) - common)


def coco_marks(overlaps: Overlaps, difficult: Sequence[bool]) -> list[int]:
    """Return whether each detection is right, by COCO's rule.

    Each takes, of the boxes that are neither difficult nor taken, the one that it overlaps the
    most, the last of several. One that is left with none is ignored if a difficult box, which is
    never used up, is overlapped enough.
    """
    marks, taken = [], list(difficult)
    for row in overlaps:
        free = [(overlap, box) for box, overlap in enumerate(row) if not taken[box]]
        best, box = max(free, default=(0.0, -1))
        if best >= ENOUGH:
            taken[box] = True
            marks.append(RIGHT)
        elif any(
            is_difficult and o >= ENOUGH for o, is_difficult in zip(row, difficult, strict=True)
        ):
            marks.append(IGNORED)
        else:
            marks.append(WRONG)
    return marks


def voc_marks(overlaps: Overlaps, difficult: Sequence[bool]) -> list[int]:
    """Return whether each detection is right, by VOC's rule.

    Each is matched to the box that it overlaps the most, the first of several, taken or not. So a
    second detection of a box is wrong even where another box is near, and one of a difficult box
    is ignored.
    """
    marks, taken = [], [False] * len(difficult)
    for row in overlaps:
        best = max(row, default=0.0)
        if best < ENOUGH:
            marks.append(WRONG)
            continue
        box = row.index(best)
        if difficult[box]:
            marks.append(IGNORED)
        else:
            marks.append(WRONG if taken[box] else RIGHT)
            taken[box] = True
    return marks
