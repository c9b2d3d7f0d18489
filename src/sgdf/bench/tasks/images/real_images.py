"""The real images that drawn ones are compared with, and their features."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ...errors import SpecError
from ...fidelity.collected import MOST_KEPT, Collected, Summary
from ...fidelity.features import Extractor
from ...fidelity.reference import reference_of
from ..assets import data_folder
from ..data_record import digest_rows
from ..long_evaluation import LongEvaluation
from .pixels import resized
from .real_features import RealFeatures

BATCH = 250
"""Images whose features are computed at a time."""
BATCH_OF_FILE = 64
"""Likewise, of those in a file, which are mostly larger."""


class RealSet(Protocol):
    """Real images, at least by their statistics."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that drawn images can be compared with."""

    def prepared(self, images: Tensor) -> Tensor:
        """Return drawn images, as bytes, as they are compared: in three colours."""

    def features(
        self, split: str, extractor: Extractor, evaluation: LongEvaluation, kept: int = MOST_KEPT
    ) -> Collected | Summary:
        """Return what the scores need of the real images of a split.

        Args:
            split: the name of the split.
            extractor: makes features of images.
            evaluation: receives the progress.
            kept: of how many images the features are kept one by one, for precision and recall.
        """

    def digests(self) -> dict[str, str]:
        """Return a digest of the real images of each split."""


class RealImages:
    """Sets of real images, by split.

    Args:
        images: bytes (n, colours, side, side) of each split.
        side: of the images that are compared; others are resized.
        stretch: whether each image, real or drawn, is stretched to its own smallest and largest
            value before its features are computed, as the published programs for WGAN-GP do.

    Raises:
        SpecError: if a split has a single image, since a covariance needs two.
    """

    def __init__(self, images: dict[str, Tensor], side: int, stretch: bool = False) -> None:
        self.images = {split: part for split, part in images.items() if len(part)}
        for split, part in self.images.items():
            if len(part) == 1:
                raise SpecError(f"there is 1 real image of {split}: to compare takes at least 2")
        self.side, self.stretch = side, stretch

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that there are images of."""
        return tuple(self.images)

    def prepared(self, images: Tensor) -> Tensor:
        """Return images, as bytes, as they are compared: in three colours, stretched if wanted."""
        images = resized(images, self.side)
        if self.stretch:
            images = stretched(images)
        return images.expand(-1, 3, -1, -1)

    def features(
        self, split: str, extractor: Extractor, evaluation: LongEvaluation, kept: int = MOST_KEPT
    ) -> Collected:
        """Return the features of the images of a split; computed once, if they are many."""
        images = self.images[split]
        content = hashlib.sha256(images.cpu().contiguous().numpy().data)
        content.update(f"{self.side} {self.stretch}".encode())
        asked = RealFeatures(
            split,
            len(images),
            lambda first: map(self.prepared, torch.split(images[first:], BATCH)),
            content.hexdigest(),
            kept,
        )
        return asked.collect(extractor, evaluation)

    def digests(self) -> dict[str, str]:
        """Return a digest of the images of each split."""
        return {f"data of {split}": digest_rows(images) for split, images in self.images.items()}


class PublishedImages:
    """The statistics of real images that a file has, as the test data.

    Args:
        path: the file; a relative one is in the folder of the data sets.
    """

    splits = ("test",)

    def __init__(self, path: str) -> None:
        self.reference = reference_of(data_folder() / Path(path).expanduser())

    def prepared(self, images: Tensor) -> Tensor:
        """Return drawn images, as bytes, in three colours."""
        return images.expand(-1, 3, -1, -1)

    def features(
        self, split: str, extractor: Extractor, evaluation: LongEvaluation, kept: int = MOST_KEPT
    ) -> Summary:
        """Return the statistics, and features of the images that the file has, computed once."""
        reference, count = self.reference, min(self.reference.images, kept)
        if not count:
            return reference.summary()
        batches = partial(reference.batches, BATCH_OF_FILE)
        asked = RealFeatures(split, count, batches, reference.digest, kept)
        features = asked.collect(extractor, evaluation).summary().kept
        return Summary(reference.pooled, reference.spatial, features)

    def digests(self) -> dict[str, str]:
        """Return a digest of the statistics."""
        return {"data of test": digest_rows(self.reference.pooled.covariance)}


def stretched(images: Tensor) -> Tensor:
    """Return each image with its smallest value at 0 and its largest at 255.

    >>> stretched(torch.tensor([[[[10, 20], [30, 60]]]], dtype=torch.uint8))
    tensor([[[[  0,  51],
              [102, 255]]]], dtype=torch.uint8)
    """
    numbers = images.flatten(1).float()
    low, high = numbers.amin(1, keepdim=True), numbers.amax(1, keepdim=True)
    numbers = (numbers - low) / (high - low).clamp(min=1e-5) * 255
    return numbers.view(images.shape).round().to(torch.uint8)
