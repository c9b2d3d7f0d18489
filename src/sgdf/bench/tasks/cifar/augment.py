"""Random crops and flips of a whole batch at once, on the device that has the images."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..supervised import ShuffledBatches

PADDING = 4


def crop(images: Tensor, down: Tensor, right: Tensor, flipped: Tensor) -> Tensor:
    """Return a piece of each image after it was padded with zeros, as large as it was.

    Args:
        images: a batch (n, channels, height, width).
        down: where each piece begins in the padded image: 0 to twice the padding.
        right: the same across.
        flipped: which pieces are turned left to right.
    """
    height, width = images.shape[2:]
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: nothing is copied yet
    pieces = windows[torch.arange(len(images), device=images.device), :, down, right]
    return torch.where(flipped[:, None, None, None], pieces.flip(3), pieces)


class AugmentedPairs(ShuffledBatches):
    """The batches of one epoch over images in memory, each cropped and perhaps flipped.

    All that is random is drawn at once from the epoch's generator. So a batch does not depend
    on which ones were loaded before, nor on the device.

    Args:
        images: all of them, as bytes.
        targets: their classes.
        batch_size: images in a batch; the last one may have fewer.
        order: where the random numbers come from.
    """

    def __init__(
        self, images: Tensor, targets: Tensor, batch_size: int, order: torch.Generator
    ) -> None:
        self.images, self.targets = images, targets
        count, places = len(images), 2 * PADDING + 1
        drawn = (
            torch.randperm(count, generator=order),
            torch.randint(places, (count,), generator=order),
            torch.randint(places, (count,), generator=order),
            torch.randint(2, (count,), generator=order, dtype=torch.bool),
        )
        chunks = (torch.split(numbers.to(images.device), batch_size) for numbers in drawn)
        self.chunks = list(zip(*chunks, strict=True))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen, down, right, flipped in self.chunks:
            yield crop(self.images[chosen], down, right, flipped), self.targets[chosen]
