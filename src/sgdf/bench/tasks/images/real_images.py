"""The real images that drawn ones are compared with, and their features."""

from __future__ import annotations

import contextlib
import hashlib
import io
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ...errors import SpecError, StoreError
from ...fidelity.collected import Collected, Summary
from ...fidelity.features import Extractor
from ...fidelity.reference import reference_of
from ...store import files
from ..assets import data_folder
from ..data_record import digest_rows
from ..long_evaluation import LongEvaluation
from .pixels import resized

BATCH = 250
"""Images whose features are computed at a time."""
KEPT_FROM = 2000
"""Features of at least this many images are kept in the folder of the data, for the next run."""


class RealSet(Protocol):
    """Real images, at least by their statistics."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that drawn images can be compared with."""

    def prepared(self, images: Tensor) -> Tensor:
        """Return drawn images, as bytes, as they are compared: in three colours."""

    def features(
        self, split: str, extractor: Extractor, evaluation: LongEvaluation
    ) -> Collected | Summary:
        """Return what the scores need of the real images of a split.

        Args:
            split: the name of the split.
            extractor: makes features of images.
            evaluation: is told how far it is.
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

    def features(self, split: str, extractor: Extractor, evaluation: LongEvaluation) -> Collected:
        """Return the features of the images of a split; computed once, if they are many."""
        images = self.images[split]
        path = data_folder() / "fidelity" / f"{self._key(split, extractor)}.pt"
        is_kept = len(images) >= KEPT_FROM
        if is_kept:
            with contextlib.suppress(Exception):  # whatever is wrong with it, it is made anew
                state = torch.load(io.BytesIO(files.read(path, most=2**32)), weights_only=True)
                return Collected.of_state(state)
        what = f"features of real images, {split}"
        kept = evaluation.kept(what)
        collected = Collected.of_state(kept) if kept else Collected()
        for part in torch.split(images[collected.count :], BATCH):
            collected.add(extractor(self.prepared(part)))
            evaluation.advance(what, collected.count, len(images), collected.state)
        if is_kept:
            buffer = io.BytesIO()
            torch.save(collected.state(), buffer)
            with contextlib.suppress(StoreError, OSError):  # it serves to save time alone
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write(path, buffer.getvalue())
        return collected

    def digests(self) -> dict[str, str]:
        """Return a digest of the images of each split."""
        return {f"data of {split}": digest_rows(images) for split, images in self.images.items()}

    def _key(self, split: str, extractor: Extractor) -> str:
        content = hashlib.sha256(self.images[split].contiguous().numpy().data)
        content.update(f"{extractor.name} {extractor.digest} {self.side} {self.stretch}".encode())
        return content.hexdigest()[:32]


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

    def features(self, split: str, extractor: Extractor, evaluation: LongEvaluation) -> Summary:
        """Return the statistics, and features of the images that the file has."""

        def tell(done: int, total: int) -> None:
            evaluation.advance(f"features of real images, {split}", done, total, dict)

        return self.reference.summary(extractor, progress=tell)

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
