"""Images with classes, wherever they lie, as the task uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self

import torch
from torch import Tensor

from ..base import Batches
from ..images.crops import RandomCrop
from ..supervised import Pair


class ImageSet(Protocol):
    """Images of one split: held in memory, or in files."""

    classes: Tensor

    def __len__(self) -> int: ...

    @property
    def digest(self) -> str:
        """What is recorded about the images: of many, a part is enough."""

    def full_digest(self) -> str:
        """Return a digest that differs if any of the images does."""

    def part(self, rows: Tensor) -> ImageSet:
        """Return some of them."""

    def __add__(self, others: Self) -> Self:
        """Return them and others of the same data set, which follow."""

    def to(self, device: torch.device) -> None:
        """Move them to the device, if they are held in memory."""

    def squares(self, side: int, batch_size: int) -> Iterator[Pair]:
        """Yield all of them in their order as bytes (n, 3, side, side), with their classes."""

    def shuffled(
        self, side: int, batch_size: int, order: torch.Generator, crop: RandomCrop | None
    ) -> Batches:
        """Return the batches of one epoch.

        Args:
            side: of the squares in a batch.
            batch_size: images in a batch; the last one may have fewer.
            order: the epoch's generator.
            crop: the law of the pieces that are taken, not turned; None for the whole of each.
        """
