"""The four losses of a Faster R-CNN on a batch of photographs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .batches import Example


def detection_losses(
    network: Any, batch: Sequence[Example], device: torch.device
) -> dict[str, Tensor]:
    """Return the losses by name: of both stages, of classes and of boxes.

    Args:
        network: a detector of torchvision's, in training mode.
        batch: the photographs.
        device: where the detector is.
    """
    images = [example.pixels.to(device).float() / 255 for example in batch]
    targets = [
        {"boxes": example.boxes.to(device), "labels": example.classes.to(device)}
        for example in batch
    ]
    losses: dict[str, Tensor] = network(images, targets)
    return {name.removeprefix("loss_"): loss for name, loss in losses.items()}
