"""Classifier-free guidance (Ho & Salimans, 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .prediction import Network, split_output


@dataclass(frozen=True)
class Guided:
    r"""A network that exaggerates what the class changes in its prediction.

    It predicts :math:`p_\text{none} + w\,(p_\text{class} - p_\text{none})`. Both come from one
    batch, twice as large. What the network says of the variance is taken as with the class, since
    that is a share between two bounds, which guidance could leave. At scale 1 the network is asked
    once, with the classes, and its answer is returned unchanged.

    Attributes:
        network: the network that is asked.
        scale: the weight w of the class: 0 ignores it, 1 is no guidance.
        no_class: the number that stands for no class.
    """

    network: Network
    scale: float
    no_class: int

    def __call__(self, images: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """Return the guided prediction for images (n, C, H, W) at times (n,)."""
        if self.scale == 1:
            return self.network(images, times, classes)
        none = torch.full_like(classes, self.no_class)
        output = self.network(
            torch.cat([images, images]), torch.cat([times, times]), torch.cat([classes, none])
        )
        predicted, variance = split_output(output, images.shape[1])
        with_class, without = predicted.chunk(2)
        guided = without + self.scale * (with_class - without)
        return guided if variance is None else torch.cat([guided, variance.chunk(2)[0]], dim=1)
