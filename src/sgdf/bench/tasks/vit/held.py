"""Small images in memory, brought to the size that a network takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from ..data_record import digest_rows
from ..images.crops import PositionNumbers, RandomCrop
from ..supervised import Pair, ShuffledBatches


class HeldImages:
    """Images as bytes, with classes.

    Args:
        images: (n, colours, height, width), of three colours, or grey.
        classes: (n,).
    """

    def __init__(self, images: Tensor, classes: Tensor) -> None:
        self.images, self.classes = images, classes

    def __len__(self) -> int:
        return len(self.images)

    @property
    def digest(self) -> str:
        """A digest of images and classes; of many, of rows that are evenly spaced."""
        return digest_rows(self.images, self.classes)

    def full_digest(self) -> str:
        """Return a digest of all images; the classes have no part in it."""
        content = hashlib.sha256(str(tuple(self.images.shape)).encode())
        content.update(self.images.cpu().contiguous().numpy().data)
        return content.hexdigest()

    def part(self, rows: Tensor) -> HeldImages:
        """Return some of them."""
        return HeldImages(self.images[rows], self.classes[rows])

    def __add__(self, others: HeldImages) -> HeldImages:
        """Return them and others, which follow."""
        images, classes = (self.images, others.images), (self.classes, others.classes)
        return HeldImages(torch.cat(images), torch.cat(classes))

    def to(self, device: torch.device) -> None:
        """Move them to the device."""
        self.images, self.classes = self.images.to(device), self.classes.to(device)

    def squares(self, side: int, batch_size: int) -> Iterator[Pair]:
        """Yield all of them in their order, as squares."""
        for rows in torch.split(torch.arange(len(self)), batch_size):
            yield as_squares(self.images[rows], side), self.classes[rows]

    def shuffled(
        self, side: int, batch_size: int, order: torch.Generator, crop: RandomCrop | None
    ) -> HeldBatches:
        """Return the batches of one epoch.

        Args:
            side: of the squares in a batch.
            batch_size: images in a batch; the last one may have fewer.
            order: the epoch's generator.
            crop: the law of the pieces that are taken, not turned; None for the whole of each.
        """
        return HeldBatches(self, side, batch_size, order, crop)


class HeldBatches(ShuffledBatches):
    """The batches of one epoch, none of which depends on those before it."""

    def __init__(
        self,
        held: HeldImages,
        side: int,
        batch_size: int,
        order: torch.Generator,
        crop: RandomCrop | None,
    ) -> None:
        self.held, self.side, self.crop = held, side, crop
        chunks = torch.split(torch.randperm(len(held), generator=order), batch_size)
        self.numbers = PositionNumbers(order)
        self.chunks = [(batch * batch_size, rows) for batch, rows in enumerate(chunks)]

    def __iter__(self) -> Iterator[Pair]:
        images, classes = self.held.images, self.held.classes
        for first, rows in self.chunks:
            chosen = rows.to(images.device)
            if self.crop is None:
                yield as_squares(images[chosen], self.side), classes[chosen]
            else:
                yield self._pieces(images[chosen], first, self.crop), classes[chosen]

    def _pieces(self, images: Tensor, first: int, crop: RandomCrop) -> Tensor:
        """Return a piece of each image, given the position of the first of them in the epoch."""
        height, width = images.shape[2:]
        pieces = []
        for image, numbers in zip(images, self.numbers.of(first, len(images)), strict=True):
            left, top, right, bottom = crop.box(width, height, numbers)
            pieces.append(as_squares(image[None, :, top:bottom, left:right], self.side))
        return torch.cat(pieces)


def as_squares(images: Tensor, side: int) -> Tensor:
    """Return images, as bytes, as squares of three colours; where they shrink, by averages.

    >>> as_squares(torch.tensor([[[[0, 100]]]], dtype=torch.uint8), 2)[0, 0]
    tensor([[  0, 100],
            [  0, 100]], dtype=torch.uint8)
    """
    if images.shape[2:] != (side, side):
        numbers = functional.interpolate(
            images.float(), size=(side, side), mode="bilinear", align_corners=False, antialias=True
        )
        images = numbers.round().clamp(0, 255).to(torch.uint8)
    return images.expand(-1, 3, -1, -1)
