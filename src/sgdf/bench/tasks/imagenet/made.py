"""CIFAR-100 as class folders of larger pictures, through which ImageNet's pipeline can be tried."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from ...errors import DataError
from ...store.files import TEMPORARY, make_folder, store_errors
from ...store.lock import wait_for
from ..cifar.data import CIFAR100
from ..supervised import Pair
from .data import TEST, TRAIN, folder_of

NAME, SIDE = "cifar100-64", 64
"""The folder, and the side of its pictures, twice that of CIFAR's."""
SOURCE = "source.txt"


def provide_small(official: bool) -> None:
    """Make the folder from the files of CIFAR-100, unless it is there.

    Of several processes that need it at once, one makes it and the others wait.

    Args:
        official: insist on the published files of CIFAR-100.

    Raises:
        DataError: if those files are missing, or the folder was made of others.
        StoreError: if it cannot be written.
    """
    place = folder_of(NAME)
    train, test = CIFAR100.read(official)
    digest = hashlib.sha256(
        b"".join(part.numpy().tobytes() for part in (*train, *test))
    ).hexdigest()
    if not place.is_dir():
        with store_errors(place):
            make_folder(place.parent)
            with wait_for(place.with_name(f".{NAME}.lock")):
                if not place.is_dir():  # it may have been made in the meantime
                    _make(place, digest, train, test)
    if _source_of(place) != digest:
        raise DataError(
            f"{place} was not made of the files in {CIFAR100.archive.place}, or not to its "
            "end. Remove it to have it made again"
        )


def _make(place: Path, digest: str, train: Pair, test: Pair) -> None:
    """Write the folder, which appears whole or not at all; only one process may."""
    print(f"Writing CIFAR-100 as pictures to {place}", file=sys.stderr, flush=True)
    begun = place.with_name(f"{TEMPORARY}{NAME}")
    shutil.rmtree(begun, ignore_errors=True)  # what a killed process left
    try:
        for split, (images, classes) in ((TRAIN, train), (TEST, test)):
            _write(begun / split, images, classes)
        (begun / SOURCE).write_text(digest)
        begun.rename(place)
    finally:
        shutil.rmtree(begun, ignore_errors=True)


def _source_of(place: Path) -> str:
    try:
        return (place / SOURCE).read_text()
    except (OSError, ValueError):
        return ""


def _write(folder: Path, images: Tensor, classes: Tensor) -> None:
    """Write images as PNG files, in class folders of numbers."""
    for number in range(CIFAR100.classes):
        (folder / f"{number:02}").mkdir(parents=True)
    bilinear = Image.Resampling.BILINEAR
    for number, (image, label) in enumerate(zip(images, classes.tolist(), strict=True)):
        small = Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))
        large = small.resize((SIDE, SIDE), bilinear)
        large.save(folder / f"{label:02}" / f"{number:05}.png", compress_level=1)
