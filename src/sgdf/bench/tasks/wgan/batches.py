"""Shuffled images, resized when their batch has its turn."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..images.pixels import resized, to_numbers
from ..supervised import ShuffledBatches


class ResizedBatches(ShuffledBatches):
    """The batches of one epoch over images in memory, with values from -1 to 1.

    Larger images are interpolated bilinearly between the centres of pixels, and rounded to bytes
    as in a picture that was resized before training.

    Args:
        images: all of them, as bytes.
        side: the side of the images in a batch.
        batch_size: images in a batch; the last one may have fewer.
        order: shuffles the images.
    """

    def __init__(self, images: Tensor, side: int, batch_size: int, order: torch.Generator) -> None:
        self.images, self.side = images, side
        permutation = torch.randperm(len(images), generator=order)
        self.chunks = torch.split(permutation.to(images.device), batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        for chunk in self.chunks:
            yield to_numbers(resized(self.images[chunk], self.side))
