"""The classifier score: whether drawn images look each like one class, and together like all.

With the published Inception it is the inception score (Salimans et al., 2016).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class ClassifierScore:
    r"""The mean over splits of :math:`\exp \mathrm{E}\, \mathrm{KL}(p(y|x) \,\|\, p(y))`.

    The images are split in the order in which they arrive. The mean divergence of a split is
    the mean of :math:`\sum_y p \log p` less that of the mean probabilities, so two sums are kept
    and no probability. As in the evaluator of ADM (Dhariwal and Nichol, 2021), a last split with
    fewer images counts like the others. A probability of 0 counts nothing; that evaluator
    would return NaN.

    Args:
        split_size: the images of a split. ADM's evaluator takes 5,000.
    """

    def __init__(self, split_size: int = 5000) -> None:
        self.split_size = split_size
        self.count = 0
        self._finished: list[float] = []
        self._probabilities = torch.zeros(0, dtype=torch.float64)
        self._negative_entropy = 0.0

    def add(self, probabilities: Tensor) -> None:
        """Add the probabilities (n, classes) of some more images."""
        while len(probabilities):
            free = self.split_size - self.count % self.split_size
            self._add_to_split(probabilities[:free].detach().to("cpu", torch.float64))
            probabilities = probabilities[free:]

    def _add_to_split(self, probabilities: Tensor) -> None:
        if self.count % self.split_size == 0:
            self._probabilities = torch.zeros(probabilities.shape[1], dtype=torch.float64)
            self._negative_entropy = 0.0
        self._probabilities += probabilities.sum(0)
        self._negative_entropy += float(probabilities.xlogy(probabilities).sum())
        self.count += len(probabilities)
        if self.count % self.split_size == 0:
            self._finished.append(self._of_split(self.split_size))

    def _of_split(self, count: int) -> float:
        mean = self._probabilities / count
        return math.exp(self._negative_entropy / count - float(mean.xlogy(mean).sum()))

    @property
    def value(self) -> float:
        """The score; NaN if there are no images."""
        unfinished = self.count % self.split_size
        scores = [*self._finished, *([self._of_split(unfinished)] if unfinished else [])]
        return sum(scores) / len(scores) if scores else math.nan

    def state(self) -> dict[str, Any]:
        """Return numbers and tensors from which ``of_state`` continues to the bit."""
        return {
            "split_size": self.split_size,
            "count": self.count,
            "finished": list(self._finished),
            "probabilities": self._probabilities.clone(),
            "negative_entropy": self._negative_entropy,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> ClassifierScore:
        """Return a score as it was when ``state`` was called."""
        score = cls(state["split_size"])
        score.count, score._finished = state["count"], list(state["finished"])
        score._probabilities = state["probabilities"].clone()
        score._negative_entropy = state["negative_entropy"]
        return score
