"""Small images as bytes, with their classes, for tasks that learn to draw such images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import SpecError, suggestion
from ..cifar.data import CIFAR10
from ..data_record import digest_rows
from ..digits.data import digits

SIDES = {"digits": 8, "cifar10": 32}
"""The data sets, and the sides of their images."""


@dataclass(frozen=True)
class Pixels:
    """Images of one data set.

    Attributes:
        images: bytes (n, colours, side, side) of each split.
        classes: the class of each image.
        class_count: how many classes there are.
    """

    images: dict[str, Tensor]
    classes: dict[str, Tensor]
    class_count: int

    @property
    def colours(self) -> int:
        """How many numbers a pixel has."""
        return self.images["train"].shape[1]

    @property
    def digest(self) -> str:
        """A digest of all images and classes."""
        return "; ".join(
            f"{split} {digest_rows(images, self.classes[split])}"
            for split, images in self.images.items()
        )


def check_pixels(data: str, train_images: int, validation_images: int) -> None:
    """Refuse the options of ``read_pixels`` that cannot be.

    Raises:
        SpecError: names the option and what is allowed.
    """
    if data not in SIDES:
        raise SpecError(
            f"data = {data!r}: must be one of {', '.join(SIDES)}{suggestion(data, SIDES)}"
        )
    if min(train_images, validation_images) < 0:
        raise SpecError("train_images and validation_images: must not be negative")
    if validation_images == 1:
        raise SpecError("validation_images = 1: must be 0, or at least 2 to be compared with")


def splits_of_pixels(data: str, validation_images: int) -> tuple[str, ...]:
    """Return the splits that ``read_pixels`` has beside the training images."""
    return ("validation", "test") if data == "digits" or validation_images else ("test",)


def read_pixels(
    data: str, train_images: int = 0, validation_images: int = 0, official: bool = True
) -> Pixels:
    """Return the images of a data set.

    Args:
        data: ``"digits"`` or ``"cifar10"``.
        train_images: how many to train on, as many of each class; 0 for all that are not held
            back. The digits are always split in the same way.
        validation_images: how many of the training images to hold back; 0 for none.
        official: insist on the published files of CIFAR.

    Raises:
        SpecError: if there are not as many images.
        DataError: if files are missing or damaged.
    """
    check_pixels(data, train_images, validation_images)
    if data == "digits":
        if train_images or validation_images:
            raise SpecError(
                'train_images and validation_images: leave them at 0 with data = "digits", which '
                "is always split in the same way"
            )
        pairs = {
            split: (_as_bytes(images), classes) for split, (images, classes) in _digits().items()
        }
    else:
        pairs = _cifar10(train_images, validation_images, official)
    images, classes = ({split: pair[part] for split, pair in pairs.items()} for part in (0, 1))
    return Pixels(images, classes, class_count=10)


def _digits() -> dict[str, tuple[Tensor, Tensor]]:
    splits = digits()
    return {split: splits[split] for split in ("train", "validation", "test")}


def _cifar10(
    train_images: int, validation_images: int, official: bool
) -> dict[str, tuple[Tensor, Tensor]]:
    (images, classes), (test_images, test_classes) = CIFAR10.read(official)
    wanted = train_images or len(images) - validation_images
    if wanted + validation_images > len(images) or wanted < 1:
        raise SpecError(
            f"train_images = {train_images} and validation_images = {validation_images}: there "
            f"are {len(images)} images for both"
        )
    first = len(images) - validation_images
    return {
        "train": (images[:wanted], classes[:wanted]),
        "validation": (images[first:], classes[first:]),
        "test": (test_images, test_classes),
    }


def _as_bytes(images: Tensor) -> Tensor:
    return (255 * images).round().to(torch.uint8)


def resized(images: Tensor, side: int) -> Tensor:
    """Return images, as bytes, with another side: smaller by averages, larger by interpolation.

    >>> resized(torch.tensor([[[[0, 100], [100, 200]]]], dtype=torch.uint8), 1)
    tensor([[[[100]]]], dtype=torch.uint8)
    """
    if images.shape[-1] == side:
        return images
    numbers = images.float()
    if images.shape[-1] % side == 0:
        numbers = functional.avg_pool2d(numbers, images.shape[-1] // side)
    else:
        numbers = functional.interpolate(
            numbers, size=(side, side), mode="bilinear", align_corners=False, antialias=True
        )
    return numbers.round().clamp(0, 255).to(torch.uint8)


def to_numbers(images: Tensor) -> Tensor:
    """Return bytes as numbers from -1 to 1.

    >>> to_numbers(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([-1.,  1.])
    """
    return images.float() / 127.5 - 1.0


def to_bytes(images: Tensor) -> Tensor:
    """Return numbers from -1 to 1 as bytes; what is beyond is cut off.

    >>> to_bytes(torch.tensor([-1.0, 0.0, 3.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    return ((images.float() + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8)
