"""Pictures in files as the task uses them: decoded when they are needed, by several threads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..base import Batches
from ..images.batches import PictureBatches, central_batches
from ..images.crops import RandomCrop
from ..images.pictures import BILINEAR, Bytes, Path, TrainingPicture, opened
from ..supervised import Pair


class Pictures(Protocol):
    """Files with pictures, and their classes."""

    targets: Tensor

    def __len__(self) -> int: ...

    def path(self, number: int) -> str:
        """Return the file of a picture."""

    def digest(self, numbers: Tensor) -> str:
        """Return a digest of some of the pictures."""


@dataclass(frozen=True)
class WholePicture:
    """The whole of a picture, brought to a square whatever its shape.

    Attributes:
        side: of the square.
    """

    side: int

    def __call__(self, path: Path, numbers: object = None) -> Bytes:
        """Return the square (side, side, 3); random numbers have no influence."""
        with opened(path) as picture:
            square = picture.convert("RGB").resize((self.side, self.side), BILINEAR)
            return np.asarray(square)


class PicturesInFiles:
    """Some of the pictures of a data set.

    Args:
        pictures: all of them.
        rows: the numbers of those that are meant; None for all.
    """

    def __init__(self, pictures: Pictures, rows: Tensor | None = None) -> None:
        self.pictures = pictures
        self.rows = torch.arange(len(pictures)) if rows is None else rows
        self.classes = pictures.targets[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def digest(self) -> str:
        """A digest of names and classes, and of sizes or some contents, as ``pictures`` has it."""
        return self.pictures.digest(self.rows)

    def full_digest(self) -> str:
        """Return a digest with the size of every file, and the time when it was last changed."""
        content = hashlib.sha256(self.digest.encode())
        for row in self.rows.tolist():
            facts = os.stat(self.pictures.path(row))
            content.update(f"{facts.st_size} {facts.st_mtime_ns}\n".encode())
        return content.hexdigest()

    def part(self, rows: Tensor) -> PicturesInFiles:
        """Return some of them."""
        return PicturesInFiles(self.pictures, self.rows[rows])

    def __add__(self, others: PicturesInFiles) -> PicturesInFiles:
        """Return them and others of the same data set, which follow."""
        return PicturesInFiles(self.pictures, torch.cat([self.rows, others.rows]))

    def to(self, device: torch.device) -> None:
        """Do nothing: pictures are moved in batches."""

    def squares(self, side: int, batch_size: int) -> Iterator[Pair]:
        """Yield all of them in their order, as squares."""
        pictures: Any = self.pictures  # the pipeline asks for paths and classes alone
        whole: Any = WholePicture(side)
        return central_batches(pictures, self.rows, batch_size, whole)

    def shuffled(
        self, side: int, batch_size: int, order: torch.Generator, crop: RandomCrop | None
    ) -> Batches:
        """Return the batches of one epoch.

        Args:
            side: of the squares in a batch.
            batch_size: pictures in a batch; the last one may have fewer.
            order: the epoch's generator.
            crop: the law of the pieces that are taken; None for the whole of each.
        """
        pictures: Any = self.pictures  # the pipeline asks for paths and classes alone
        taken: Any = WholePicture(side) if crop is None else TrainingPicture(side, crop)
        return PictureBatches(pictures, self.rows, batch_size, order, taken)
