"""Average precision, by three definitions that published tables do not always tell apart.

Take the detections of a class in all photographs, the surest first. After each, the recall r is
the share of the true boxes that are found so far, and the precision p the share of the detections
that are right. Let P(r) be the largest precision at a recall of at least r, or 0. Then

- ``ap50`` is the mean of P(0), P(0.01), …, P(1), as COCO's kit has it at an overlap of 0.5,
- ``voc07`` the mean of P(0), P(0.1), …, P(1), as VOC's kit had it until 2009,
- ``voc10`` the integral of P from 0 to 1, as it has had it since,

and each is averaged over the classes that have boxes. They also differ in which detections are
right (see ``matching``). For all three, difficult boxes need not be found, and neither help nor
harm who finds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .boxes import Found, Truth
from .matching import IGNORED, RIGHT, coco_marks, coco_overlaps, voc_marks, voc_overlaps

MOST = 100
"""COCO's kit looks at no more detections of a class in one photograph, the surest ones."""
RECALLS = np.linspace(0.0, 1.0, 101)

Steps = NDArray[np.int64]
"""How many detections are right among the first one, two and so on."""


class AveragePrecision:
    """Collects detections photograph by photograph. Of each, a score and two marks are kept.

    Args:
        class_count: how many classes there are, the background not counted.

    Attributes:
        positives: for each class, how many boxes have to be found.
    """

    def __init__(self, class_count: int) -> None:
        self.positives = torch.zeros(class_count, dtype=torch.long)
        self._scores: list[Tensor] = []
        self._marks: list[Tensor] = []

    def add(self, found: Found, truth: Truth) -> None:
        """Add what was found in a photograph, and what it has."""
        found = Found(*(tensor.detach().cpu() for tensor in found))
        easy = truth.classes[~truth.difficult] - 1
        self.positives += torch.bincount(easy, minlength=len(self.positives))
        for number in sorted(set(found.classes.tolist())):
            own, there = found.classes == number, truth.classes == number
            order = found.scores[own].argsort(descending=True, stable=True)
            boxes = found.boxes[own][order].double()
            marks = _marks(boxes, truth.boxes[there].double(), truth.difficult[there])
            self._scores.append(found.scores[own][order])
            self._marks.append(torch.tensor([[number] * len(order), *marks], dtype=torch.int16).T)

    def by_class(self) -> dict[str, dict[int, float]]:
        """Return the three averages of each class that has boxes, by name and number of class."""
        averages: dict[str, dict[int, float]] = {"ap50": {}, "voc07": {}, "voc10": {}}
        state = self.state()
        order = state["scores"].argsort(descending=True, stable=True)
        classes, coco, voc = state["marks"][order].numpy().T
        for number, positives in enumerate(self.positives.tolist(), start=1):
            if positives:
                of_class = classes == number
                right = _right_so_far(voc[of_class])
                averages["ap50"][number] = _coco(_right_so_far(coco[of_class]), positives)
                averages["voc07"][number] = _eleven_points(right, positives)
                averages["voc10"][number] = _area(right, positives)
        return averages

    def means(self) -> dict[str, float]:
        """Return the three averages over the classes that have boxes.

        Raises:
            ValueError: if no class has any.
        """
        averages = self.by_class()
        if not averages["ap50"]:
            raise ValueError("there is no box to be found, so there is no average precision")
        return {name: float(np.mean(list(values.values()))) for name, values in averages.items()}

    def state(self) -> dict[str, Any]:
        """Return tensors from which ``of_state`` continues to the bit."""
        self._scores = [torch.cat([torch.empty(0), *self._scores])]
        self._marks = [torch.cat([torch.empty(0, 3, dtype=torch.int16), *self._marks])]
        return {"positives": self.positives, "scores": self._scores[0], "marks": self._marks[0]}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> AveragePrecision:
        """Return what was collected when ``state`` was called."""
        collected = cls(len(state["positives"]))
        collected.positives += state["positives"]
        collected._scores, collected._marks = [state["scores"]], [state["marks"]]
        return collected


def _marks(found: Tensor, true: Tensor, difficult: Tensor) -> tuple[list[int], list[int]]:
    """Return the marks of detections of one class, in order, by the rules of COCO and of VOC."""
    flags = difficult.tolist()
    coco = coco_marks(coco_overlaps(found[:MOST], true, difficult).tolist(), flags)
    coco += [IGNORED] * (len(found) - len(coco))
    return coco, voc_marks(voc_overlaps(found, true).tolist(), flags)


def _right_so_far(marks: NDArray[np.int16]) -> Steps:
    return np.cumsum(marks[marks != IGNORED] == RIGHT, dtype=np.int64)


def _highest_after(right: Steps) -> NDArray[np.float64]:
    """Return, for each number of detections, the highest precision of as many or more of them."""
    precision = right / np.arange(1, len(right) + 1)
    return np.maximum.accumulate(precision[::-1])[::-1]


def _coco(right: Steps, positives: int) -> float:
    # Recalls are compared in floating point, as the kit does, to come to its very numbers.
    first = np.searchsorted(right / positives, RECALLS)
    return float(np.append(_highest_after(right), 0.0)[first].mean())


def _eleven_points(right: Steps, positives: int) -> float:
    # Tenths are no floating-point numbers: recalls are compared as whole numbers.
    first = np.searchsorted(10 * right, np.arange(11) * positives)
    return float(np.append(_highest_after(right), 0.0)[first].mean())


def _area(right: Steps, positives: int) -> float:
    gained = np.diff(right, prepend=0) / positives
    return float((gained * _highest_after(right)).sum())
