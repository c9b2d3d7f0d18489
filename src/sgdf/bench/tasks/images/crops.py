"""Which piece of a picture is taken: by chance for training, the centre for an evaluation.

The random numbers of a picture depend on its position in the epoch and on the epoch's seed alone.
So a batch does not depend on which ones were loaded before, nor on its size, nor on who loads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

TRIES = 10
NUMBERS = 2 * TRIES + 4
"""Of each picture: area and ratio of every try, place across and down, flip, and one to spare."""
_BLOCK = 4  # numbers that the counter of Philox gives at once


class Box(NamedTuple):
    """A piece of a picture, in pixels from its upper left corner."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class RandomCrop:
    """The law of a piece with a random area and a random shape, at a random place.

    The area is uniform between two shares of the picture's, and the logarithm of width over height
    uniform between two limits. If such a piece is larger than the picture in one direction, both
    are drawn again. After ten tries it is the largest piece in the centre whose shape is allowed.

    Attributes:
        area: the smallest and the largest share.
        ratio: the smallest and the largest width over height.
        flip: how probable it is that the piece is turned left to right.
    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def box(self, width: int, height: int, numbers: NDArray[np.float64]) -> Box:
        """Return the piece of a picture of this size.

        Args:
            width: of the picture.
            height: of the picture.
            numbers: ``NUMBERS`` of them, uniform from 0 to 1.
        """
        across, down, *_ = numbers[2 * TRIES :].tolist()
        low, high = (math.log(ratio) for ratio in self.ratio)
        for first, second in numbers[: 2 * TRIES].reshape(TRIES, 2).tolist():
            area = width * height * (self.area[0] + first * (self.area[1] - self.area[0]))
            ratio = math.exp(low + second * (high - low))
            wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                left, top = int(across * (width - wide + 1)), int(down * (height - tall + 1))
                return Box(left, top, left + wide, top + tall)
        wide = min(width, round(height * self.ratio[1]))
        tall = min(height, round(width / self.ratio[0]))
        return _central(width, height, max(1, wide), max(1, tall))

    def is_flipped(self, numbers: NDArray[np.float64]) -> bool:
        """Return whether the piece is turned left to right."""
        return bool(numbers[2 * TRIES + 2] < self.flip)


def _central(width: int, height: int, wide: int, tall: int) -> Box:
    left, top = (width - wide) // 2, (height - tall) // 2
    return Box(left, top, left + wide, top + tall)


class PositionNumbers:
    """Uniform random numbers of every position of an epoch, from a counter.

    Args:
        order: the epoch's generator, from which one number is drawn.
    """

    def __init__(self, order: torch.Generator) -> None:
        self.seed = int(torch.randint(2**62, (), generator=order))

    def of(self, first: int, count: int) -> NDArray[np.float64]:
        """Return those of some positions, ``NUMBERS`` of each, as rows."""
        counter = np.random.Philox(key=self.seed)
        counter.advance(first * NUMBERS // _BLOCK)
        raw: NDArray[np.uint64] = np.asarray(counter.random_raw(count * NUMBERS), np.uint64)
        # The upper 53 bits, which a float64 has.
        numbers: NDArray[np.float64] = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return numbers.reshape(count, NUMBERS)


def resized_for_centre(width: int, height: int, shorter: int) -> tuple[int, int]:
    """Return the size of a picture whose shorter side becomes ``shorter``; the other is cut off.

    >>> resized_for_centre(500, 375, 256)
    (341, 256)
    """
    if width <= height:
        return shorter, shorter * height // width
    return shorter * width // height, shorter


def central_box(width: int, height: int, side: int) -> Box:
    """Return the square in the centre, half a pixel being rounded to the even one.

    >>> central_box(341, 256, 224)
    Box(left=58, top=16, right=282, bottom=240)
    """
    left, top = round((width - side) / 2), round((height - side) / 2)
    return Box(left, top, left + side, top + side)
