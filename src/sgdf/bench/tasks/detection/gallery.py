"""The photographs of a split as a detector sees them: scaled, mirrored, kept in memory or not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .batches import Example, shape_group
from .boxes import Found, Truth, flipped
from .photographs import Photograph


class Gallery:
    """Photographs with what they have.

    Args:
        photographs: the photographs, in order.
        longest: pixels of the longer side that each is scaled to, and they are then kept in
            memory, as bytes; 0 leaves them as they are, and reads each when it is wanted.

    Raises:
        DataError: if one that is to be kept cannot be read.
    """

    def __init__(self, photographs: Sequence[Photograph], longest: int = 0) -> None:
        self.photographs = list(photographs)
        self.longest = longest
        self._kept = [self._read(number) for number in range(len(self))] if longest else []

    def __len__(self) -> int:
        return len(self.photographs)

    def __add__(self, other: Gallery) -> Gallery:
        both = Gallery([])
        both.longest = self.longest
        both.photographs = self.photographs + other.photographs
        both._kept = self._kept + other._kept
        return both

    @property
    def groups(self) -> list[int]:
        """The group of shapes of each photograph."""
        found = (photograph.annotation for photograph in self.photographs)
        return [shape_group(one.width, one.height) for one in found]

    def pixels(self, number: int) -> Tensor:
        """Return the bytes (3, height, width) of a photograph, scaled.

        Raises:
            DataError: if it cannot be read.
        """
        return self._kept[number] if self._kept else self._read(number)

    def truth(self, number: int) -> Truth:
        """Return what a photograph has, in the pixels of the file."""
        return self.photographs[number].annotation.truth

    def example(self, number: int, flip: bool) -> Example:
        """Return a photograph to learn from, mirrored if wanted. Difficult boxes are among its own.

        Raises:
            DataError: if it cannot be read.
        """
        truth = self.truth(number)
        pixels, boxes = self.pixels(number), truth.boxes * self._scale(number)
        if flip:
            pixels, boxes = pixels.flip(2), flipped(boxes, pixels.shape[2])
        return Example(pixels, boxes, truth.classes)

    def in_file(self, number: int, found: Found) -> Found:
        """Return what was found in a scaled photograph, in the pixels of the file."""
        return found._replace(boxes=found.boxes.cpu() / self._scale(number))

    def _read(self, number: int) -> Tensor:
        return self.photographs[number].pixels(self._size(number) if self.longest else None)

    def _size(self, number: int) -> tuple[int, int]:
        """Return width and height of a photograph, scaled."""
        annotation = self.photographs[number].annotation
        width, height = annotation.width, annotation.height
        if not self.longest:
            return width, height
        factor = self.longest / max(width, height)
        return max(1, round(width * factor)), max(1, round(height * factor))

    def _scale(self, number: int) -> Tensor:
        """Return what the coordinates of a box in the file are multiplied by."""
        annotation = self.photographs[number].annotation
        width, height = self._size(number)
        across, down = width / annotation.width, height / annotation.height
        return torch.tensor([across, down, across, down])
