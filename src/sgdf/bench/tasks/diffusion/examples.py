"""Pixels or latents with their classes, as a diffusion model learns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

from ...errors import SpecError
from ..base import Batches
from ..images.pixels import Pixels, resized, to_numbers
from ..supervised import Pair, ShuffledPairs
from .latents import LatentBatches, Latents


class Examples(Protocol):
    """What a model is trained on.

    Attributes:
        shape: of one example (channels, side, side).
        class_count: how many classes there are.
        digest: of the examples.
    """

    shape: tuple[int, int, int]
    class_count: int
    digest: str

    def count(self) -> dict[str, int]:
        """Return how many examples each split has."""

    def to(self, device: torch.device) -> None:
        """Move what is held in memory to a device."""

    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return an epoch's batches of examples and classes."""

    def held_out(self, split: str) -> Pair | None:
        """Return the examples of a split and their classes; None if there are none."""


class PixelExamples:
    """Images themselves, with values from -1 to 1.

    Args:
        pixels: the images.
        side: of the examples; images of another side are resized.
        flip: mirror half of the images of a batch, chosen at random.
    """

    def __init__(self, pixels: Pixels, side: int, flip: bool) -> None:
        self.images = {split: resized(images, side) for split, images in pixels.images.items()}
        self.classes, self.class_count, self.flip = dict(pixels.classes), pixels.class_count, flip
        self.shape = (pixels.colours, side, side)
        self.digest = pixels.digest

    def count(self) -> dict[str, int]:
        """Return how many images each split has."""
        return {split: len(images) for split, images in self.images.items()}

    def to(self, device: torch.device) -> None:
        """Move the images to a device."""
        self.images = {split: images.to(device) for split, images in self.images.items()}
        self.classes = {split: classes.to(device) for split, classes in self.classes.items()}

    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return the training images in a new order."""
        return PixelBatches(
            (self.images["train"], self.classes["train"]), batch_size, order, self.flip
        )

    def held_out(self, split: str) -> Pair | None:
        """Return the images of a split as numbers, and their classes."""
        return to_numbers(self.images[split]), self.classes[split]


class PixelBatches(ShuffledPairs):
    """The batches of one epoch over images, as numbers from -1 to 1, some of them mirrored.

    Args:
        data: images as bytes, and their classes.
        batch_size: images in a batch; the last one may have fewer.
        order: shuffles the images, and says which are mirrored.
        flip: whether any is.
    """

    def __init__(self, data: Pair, batch_size: int, order: torch.Generator, flip: bool) -> None:
        super().__init__(data, batch_size, order)
        # Drawn for all images at once, so that batches can be skipped.
        share = 0.5 if flip else 0.0
        self.is_mirrored = torch.rand(len(self.inputs), generator=order) < share

    def __iter__(self) -> Iterator[Pair]:
        for chunk in self.chunks:
            images, mirrored = self.inputs[chunk], self.is_mirrored[chunk.cpu()].to(chunk.device)
            images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
            yield to_numbers(images), self.targets[chunk]


class LatentExamples:
    """Latents from a folder, all of them to train on.

    Args:
        latents: the folder.
        flip: take those of the mirrored image for half of the images, chosen at random.

    Raises:
        SpecError: if the folder has none of mirrored images.
    """

    def __init__(self, latents: Latents, flip: bool) -> None:
        if flip and not latents.has_flipped:
            raise SpecError(
                f"flip = true: {latents.folder} has no latents of mirrored images; make them with "
                "examples/make_latents.py --flip"
            )
        self.latents, self.flip = latents, flip
        self.shape, self.class_count = latents.shape, latents.class_count
        self.digest = latents.digest

    def count(self) -> dict[str, int]:
        """Return how many latents there are."""
        return {"train": self.latents.count}

    def to(self, device: torch.device) -> None:
        """Leave them on disk: batches are moved one by one."""

    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return the latents in a new order."""
        return LatentBatches(self.latents, batch_size, order, self.flip)

    def held_out(self, split: str) -> None:
        """Return None: no latents are held out."""
        return
