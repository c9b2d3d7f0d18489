"""One picture of a file, as bytes of red, green and blue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import DataError, first_line
from .crops import RandomCrop, central_box, resized_for_centre
from .folder_index import FORMATS

BILINEAR = Image.Resampling.BILINEAR
"""With antialiasing: the triangle is as wide as the pixels of the smaller picture."""
Path = str | os.PathLike[str]
Bytes = NDArray[np.uint8]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a picture; whatever is wrong with its file, the error names it.

    Of all formats that Pillow knows, only common ones of pixels: another file would be given to
    programs outside of it by its content, such as Ghostscript, whatever its name.

    Raises:
        DataError: if the file cannot be read, or is not a picture, or a damaged one.
    """
    try:
        with Image.open(path, formats=tuple(FORMATS)) as picture:
            yield picture
    except MemoryError:
        raise
    except Exception as error:  # the decoders have no error in common
        raise DataError(
            f"{os.fspath(path)} cannot be read as a picture: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(str(error)) or type(error).__name__


@dataclass(frozen=True)
class TrainingPicture:
    """A random piece, which is brought to a fixed size.

    Of a JPEG of which much more is taken than is needed, only a half, a quarter or an eighth of
    the lines and columns are decoded, which the format allows. What is left is always at least as
    large as the result, and is made smaller as any other piece.

    Attributes:
        side: of the result.
        crop: the law of the piece.
        reduced: whether a JPEG is decoded smaller where that is possible.
    """

    side: int
    crop: RandomCrop = field(default_factory=RandomCrop)
    reduced: bool = True

    def __call__(self, path: Path, numbers: NDArray[np.float64]) -> Bytes:
        """Return the piece that random numbers choose, (side, side, 3)."""
        with opened(path) as picture:
            width, height = picture.size
            box = self.crop.box(width, height, numbers)
            spare = min(box.right - box.left, box.bottom - box.top) // self.side
            size = width // max(1, spare), height // max(1, spare)
            drafted = picture.draft(None, size) if self.reduced and spare > 1 else None
            piece = _as_rgb(picture)
            if drafted:  # by 2, 4 or 8
                scale = round(width / drafted[1][2])
                piece = piece.resize(
                    (self.side, self.side), BILINEAR, box=tuple(edge / scale for edge in box)
                )
            else:  # cut out first, so that nothing outside of it has an influence
                piece = piece.crop(box).resize((self.side, self.side), BILINEAR)
            if self.crop.is_flipped(numbers):
                piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            return np.asarray(piece)


@dataclass(frozen=True)
class CentralPicture:
    """The centre of a picture whose shorter side is brought to a fixed length.

    Attributes:
        side: of the result.
        shorter: the shorter side before the centre is taken, at least ``side``.
    """

    side: int
    shorter: int

    def __call__(self, path: Path) -> Bytes:
        """Return the centre, (side, side, 3)."""
        with opened(path) as picture:
            size = resized_for_centre(picture.width, picture.height, self.shorter)
            resized = _as_rgb(picture).resize(size, BILINEAR)
            return np.asarray(resized.crop(central_box(*size, self.side)))


def _as_rgb(picture: Any) -> Any:
    """Return a picture in red, green and blue, decoded."""
    picture.load()
    return picture if picture.mode == "RGB" else picture.convert("RGB")
