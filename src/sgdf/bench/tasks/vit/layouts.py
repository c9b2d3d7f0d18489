"""Oxford-IIIT Pet, Flowers-102 and Food-101 in the layouts that they are published in.

Their files are not downloaded. Of each, the archives are unpacked into a folder of the data; lists
in it say which images are for training, and which for testing.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, StoreError, first_line
from ...store import files
from ..assets import DATA_VARIABLE, data_folder


class ListedPictures:
    """Pictures in files that a list names.

    Args:
        folder: the folder of the files.
        names: of the files, relative to the folder.
        targets: the class of each.
    """

    def __init__(self, folder: Path, names: Sequence[str], targets: Tensor) -> None:
        self.folder, self.names, self.targets = folder, names, targets

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> str:
        """Return the file of a picture."""
        return os.path.join(self.folder, self.names[number])

    def digest(self, numbers: Tensor) -> str:
        """Return a digest of the names and classes of some of the pictures, and of their sizes."""
        content = hashlib.sha256(self.targets[numbers].numpy().data)
        for number in numbers.tolist():
            size = os.path.getsize(self.path(number))
            content.update(f"{self.names[number]} {size}\n".encode())
        return f"{content.hexdigest()[:16]} of {len(numbers):,} pictures"


Listed = tuple[list[str], list[int]]
"""Names of files, and the class of each."""


@dataclass(frozen=True)
class Layout:
    """A published data set of images in files.

    Attributes:
        title: its name, for messages.
        folder: its folder, in the folder of all data sets.
        needs: what the folder has: files, and folders of images.
        archives: where to get it: addresses, and the published MD5 of each file.
        unpacked_in: where the archives are unpacked, seen from the folder of all data sets.
        classes: how many there are.
        counts: how many images are for training, and for testing.
        lists: makes both lists of a reader of files; names are relative to the folder.
    """

    title: str
    folder: str
    needs: tuple[str, ...]
    archives: dict[str, str]
    unpacked_in: str
    classes: int
    counts: tuple[int, int]
    lists: Callable[[Callable[[str], bytes]], tuple[Listed, Listed]]

    @property
    def place(self) -> Path:
        """The folder in which the files are expected."""
        return data_folder() / self.folder

    def read(self, official: bool = True) -> tuple[ListedPictures, ListedPictures]:
        """Return the images for training, and those for testing.

        Args:
            official: insist on the published lists, not just on lists of the same format.

        Raises:
            DataError: if files are missing or damaged.
        """
        missing = [name for name in self.needs if not (self.place / name).exists()]
        if missing:
            raise self.refused(f"{self.place} lacks {', '.join(missing)}")
        try:
            lists = self.lists(lambda name: self._content(name, official))
        except DataError:
            raise
        except Exception as error:  # whatever a damaged list makes of it
            raise self.refused(f"its lists cannot be read: {first_line(error)}") from error
        train, test = (self._listed(*found) for found in lists)
        if official and (len(train), len(test)) != self.counts:
            raise self.refused(
                f"it lists {len(train):,} images for training and {len(test):,} for testing in "
                f"place of {self.counts[0]:,} and {self.counts[1]:,}; set official = false in "
                "[task] to take it knowingly for what it is"
            )
        return train, test

    def refused(self, trouble: str) -> DataError:
        """Return an error that describes the problem and the remedy."""
        wanted = "\n".join(f"  {url} (MD5 {md5})" for url, md5 in self.archives.items())
        target = data_folder() / self.unpacked_in
        return DataError(
            f"{self.title}: {trouble}.\n"
            f"It is not downloaded. Get these files, and unpack or copy them in {target}:\n"
            f"{wanted}\n"
            f"Or name another folder with --data FOLDER or {DATA_VARIABLE}. It must contain a "
            f"folder {self.folder} with {', '.join(self.needs)}"
        )

    def _content(self, name: str, official: bool) -> bytes:
        try:
            content = files.read(self.place / name)
        except StoreError as error:
            raise self.refused(str(error)) from error
        published = {url.rpartition("/")[2]: md5 for url, md5 in self.archives.items()}
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if official and digest != published.get(name, digest):
            raise self.refused(
                f"{self.place / name} is damaged, or not the published file: its MD5 is {digest}; "
                "set official = false in [task] to take it knowingly for what it is"
            )
        return content

    def _listed(self, names: Sequence[str], classes: Sequence[int]) -> ListedPictures:
        if not names:
            raise self.refused("a list of images is empty")
        if not all(0 <= number < self.classes for number in classes):
            raise self.refused(
                f"there are classes from {min(classes)} to {max(classes)} in place of 0 to "
                f"{self.classes - 1}"
            )
        pictures = ListedPictures(self.place, names, torch.tensor(classes))
        paths = map(pictures.path, range(len(pictures)))
        if missing := [path for path in paths if not os.path.isfile(path)]:
            raise self.refused(f"{len(missing):,} of its images are missing, as {missing[0]}")
        return pictures


def _pets(content: Callable[[str], bytes]) -> tuple[Listed, Listed]:
    """Read lines such as ``Abyssinian_201 1 1 1``: name, class, kind of animal, breed."""

    def listed(name: str) -> Listed:
        rows = [line.split() for line in _lines(content(f"annotations/{name}.txt"))]
        rows = [row for row in rows if not row[0].startswith("#")]
        return [f"images/{row[0]}.jpg" for row in rows], [int(row[1]) - 1 for row in rows]

    return listed("trainval"), listed("test")


def _flowers(content: Callable[[str], bytes]) -> tuple[Listed, Listed]:
    """Read numbers of images from 1, by split, and the class of each image from 1.

    The images for training come first, then those for validation, which are trained on too.
    """
    from scipy.io import loadmat

    def numbers(name: str, *keys: str) -> list[int]:
        found: dict[str, Any] = loadmat(io.BytesIO(content(name)), variable_names=keys)
        return [int(n) for n in np.concatenate([found[key].ravel() for key in keys])]

    labels = numbers("imagelabels.mat", "labels")

    def listed(*keys: str) -> Listed:
        chosen = numbers("setid.mat", *keys)
        if min(chosen) < 1:
            raise ValueError("an image has a number below 1")
        return [f"jpg/image_{n:05d}.jpg" for n in chosen], [labels[n - 1] - 1 for n in chosen]

    return listed("trnid", "valid"), listed("tstid")


def _food(content: Callable[[str], bytes]) -> tuple[Listed, Listed]:
    """Read lines such as ``apple_pie/1005649``: class, and number of the image."""
    kinds = {name: number for number, name in enumerate(_lines(content("meta/classes.txt")))}

    def listed(name: str) -> Listed:
        lines = _lines(content(f"meta/{name}.txt"))
        return (
            [f"images/{line}.jpg" for line in lines],
            [kinds[line.partition("/")[0]] for line in lines],
        )

    return listed("train"), listed("test")


def _lines(content: bytes) -> Iterable[str]:
    return [line.strip() for line in content.decode().splitlines() if line.strip()]


_PETS = "https://www.robots.ox.ac.uk/~vgg/data/pets/data/"
_FLOWERS = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"

LAYOUTS = {
    "pets": Layout(
        title="Oxford-IIIT Pet",
        folder="oxford-iiit-pet",
        needs=("images", "annotations/trainval.txt", "annotations/test.txt"),
        archives={
            f"{_PETS}images.tar.gz": "5c4f3ee8e5d25df40f4fd59a7f44e54c",
            f"{_PETS}annotations.tar.gz": "95a8c909bbe2e81eed6a22bccdf3f68f",
        },
        unpacked_in="oxford-iiit-pet",
        classes=37,
        counts=(3_680, 3_669),
        lists=_pets,
    ),
    "flowers102": Layout(
        title="Oxford Flowers-102",
        folder="flowers-102",
        needs=("jpg", "imagelabels.mat", "setid.mat"),
        archives={
            f"{_FLOWERS}102flowers.tgz": "52808999861908f626f3c1f4e79d11fa",
            f"{_FLOWERS}imagelabels.mat": "e0620be6f572b9609742df49c70aed4d",
            f"{_FLOWERS}setid.mat": "a5357ecc9cb78c4bef273ce3793fc85c",
        },
        unpacked_in="flowers-102",
        classes=102,
        counts=(2_040, 6_149),
        lists=_flowers,
    ),
    "food101": Layout(
        title="Food-101",
        folder="food-101",
        needs=("images", "meta/classes.txt", "meta/train.txt", "meta/test.txt"),
        archives={
            "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz": "85eeb15f3717b99a5da872d97d918f87"
        },
        unpacked_in=".",
        classes=101,
        counts=(75_750, 25_250),
        lists=_food,
    ),
}
"""By the name that an experiment has for it."""
