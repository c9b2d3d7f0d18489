"""Published statistics of real images, in the layout of ADM's evaluator."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .collected import MOST_KEPT, Collected, Summary
from .features import Extractor
from .frechet import Normal

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


@dataclass(frozen=True)
class Reference:
    """A file with the moments of one set of real images, and perhaps a part of these images.

    The images are read in batches: the published file for ImageNet has 2 GB of them.

    Attributes:
        path: the file.
        pooled: the moments of the pooled features (``mu``, ``sigma``).
        spatial: those of the spatial features, if it has them (``mu_s``, ``sigma_s``).
        images: how many images it has (``arr_0``); 0 for none.
        checksum: of the images, as the archive states it.
    """

    path: Path
    pooled: Normal
    spatial: Normal | None
    images: int
    checksum: int = 0

    def summary(
        self,
        extractor: Extractor | None = None,
        kept: int = MOST_KEPT,
        batch: int = 64,
    ) -> Summary:
        """Return what scores need: the moments of the file, and features of its images.

        Args:
            extractor: the one that the moments are of. Without it, or without images, there will be
                neither precision nor recall.
            kept: of how many images features are computed, the first ones.
            batch: how many at a time.

        Raises:
            DataError: if the images cannot be read.
        """
        features = None
        if extractor is not None and min(self.images, kept):
            collected = Collected(kept=kept)
            for images in self.batches(batch):
                collected.add(extractor(images))
                if collected.count >= kept:
                    break
            features = collected.summary().kept
        return Summary(self.pooled, self.spatial, features)

    @property
    def digest(self) -> str:
        """A digest of the moments and, by their checksum in the file, of the images."""
        content = hashlib.sha256(f"{self.images} {self.checksum}".encode())
        for normal in (self.pooled, self.spatial):
            for part in normal or ():
                content.update(part.contiguous().numpy().data)
        return content.hexdigest()

    def batches(self, size: int, first: int = 0) -> Iterator[Tensor]:
        """Yield the images as bytes (n, 3, height, width).

        Args:
            size: how many at a time.
            first: the number of the image to begin with.

        Raises:
            DataError: if they cannot be read.
        """
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open("arr_0.npy") as file:
                shape, _, _ = _header(file)
                file.seek(first * int(np.prod(shape[1:])), os.SEEK_CUR)
                for start in range(first, shape[0], size):
                    some = (min(size, shape[0] - start), *shape[1:])
                    content = _read_all(file, int(np.prod(some)))
                    yield torch.frombuffer(content, dtype=torch.uint8).view(some).movedim(3, 1)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise _refused(self.path, f"its images cannot be read: {error}") from error


def reference_of(path: Path) -> Reference:
    """Return a reference file, such as ``VIRTUAL_imagenet256_labeled.npz``.

    Nothing in it is executed, as pickled objects are not loaded.

    Raises:
        DataError: if it is not such a file; the message says what is wrong.
    """
    try:
        # Opened here: where it refuses a file, np.load would leave it open.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "arr_0"}
            images, checksum = _images_in(path) if "arr_0" in file.files else (0, 0)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise _refused(path, str(error)) from error
    pooled = _normal(path, arrays, "mu", "sigma")
    if pooled is None:
        raise _refused(path, f"it has {', '.join(arrays) or 'nothing'} beside images")
    spatial = _normal(path, arrays, "mu_s", "sigma_s")
    return Reference(path, pooled, spatial, images, checksum)


def _normal(path: Path, arrays: dict[str, Any], mean: str, covariance: str) -> Normal | None:
    """Return the moments of these names, or None if there is neither."""
    present = [name for name in (mean, covariance) if name in arrays]
    if not present:
        return None
    if len(present) == 1:
        raise _refused(path, f"of {mean} and {covariance}, it has {present[0]} alone")
    shapes = arrays[mean].shape, arrays[covariance].shape
    size = arrays[mean].size
    if shapes != ((size,), (size, size)):
        raise _refused(path, f"{mean} and {covariance} have the shapes {shapes[0]} and {shapes[1]}")
    if any(arrays[name].dtype.kind != "f" for name in present):
        raise _refused(path, f"{mean} or {covariance} are not floating-point numbers")
    return Normal(*(torch.from_numpy(arrays[name].astype(np.float64)) for name in present))


def _images_in(path: Path) -> tuple[int, int]:
    """Return how many images a file has, and their checksum."""
    with zipfile.ZipFile(path) as archive, archive.open("arr_0.npy") as file:
        checksum = archive.getinfo("arr_0.npy").CRC
        shape, is_fortran, dtype = _header(file)
    if len(shape) != 4 or shape[3] != 3 or dtype != np.uint8 or is_fortran:
        raise ValueError(f"its arr_0 has the shape {shape} and the type {dtype}")
    return shape[0], checksum


def _header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _read_all(file: IO[bytes], size: int) -> bytearray:
    content = bytearray(file.read(size))
    if len(content) != size:
        raise EOFError("the file ends before its last image")
    return content


def _refused(path: Path, trouble: str) -> DataError:
    return DataError(
        f"{path} is no reference file: {trouble}. It must be an .npz file with the arrays mu (d) "
        "and sigma (d, d), and may have mu_s and sigma_s likewise, and arr_0: images as bytes "
        "(n, height, width, 3)"
    )
