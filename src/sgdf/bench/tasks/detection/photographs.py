"""Sets of photographs with boxes in the layout of VOC: checked before they are used, then read.

A folder in this layout has ``ImageSets/Main/train.txt`` and its like, with the name of a
photograph in each line, ``JPEGImages/NAME.jpg`` and ``Annotations/NAME.xml``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, SpecError, StoreError, first_line
from ...store import files
from ..assets import DATA_VARIABLE, data_folder
from .annotations import Annotation, NotAnAnnotation, read_annotation

LARGEST_LIST = 16 << 20
"""Bytes of the largest list of names."""
NAMED = 3
"""Missing files that a message names."""
MOST_PIXELS = 64_000_000
"""Of a photograph: a damaged header may promise any number."""

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)


@dataclass(frozen=True)
class Photograph:
    """A photograph and what it has.

    Attributes:
        path: the file.
        annotation: its size and its boxes.
    """

    path: Path
    annotation: Annotation

    def pixels(self, size: tuple[int, int] | None = None) -> Tensor:
        """Return bytes (3, height, width).

        Args:
            size: width and height that they are scaled to; else they are as in the file.

        Raises:
            DataError: if the file is no photograph of the size that its annotation has.
        """
        from PIL import Image

        try:
            with Image.open(self.path, formats=("JPEG", "PNG")) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise ValueError(f"it has {image.width} by {image.height} pixels")
                wanted = self.annotation.width, self.annotation.height
                if image.size != wanted:
                    raise ValueError(f"its size is {image.size}, by its annotation {wanted}")
                colours = image.convert("RGB")
                if size:
                    colours = colours.resize(size, Image.Resampling.BILINEAR)
                return torch.from_numpy(np.array(colours)).permute(2, 0, 1).contiguous()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{self.path} cannot be read: {first_line(error)}") from error


def refuse_without_pillow() -> None:
    """Refuse to begin where photographs cannot be read.

    Raises:
        SpecError: says what to install.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise SpecError("photographs need Pillow: pip install 'sgdf[vision]'") from error


@dataclass(frozen=True)
class PhotographSet:
    """A published set of photographs with boxes, which users have to get themselves.

    Attributes:
        title: its name, for messages.
        splits: of each split, the folders in the layout of VOC and the list of names in each.
        counts: how many photographs the published lists of each split have.
        classes: the names of the classes, in the order of their numbers from 1 on.
        origin: where to get it, and how to unpack it so that the folders are where they should.
    """

    title: str
    splits: dict[str, tuple[tuple[str, str], ...]]
    counts: dict[str, int]
    classes: tuple[str, ...]
    origin: str

    def read(self, official: bool = True) -> dict[str, list[Photograph]]:
        """Return the photographs of each split, with what they have.

        Args:
            official: insist on as many photographs as were published.

        Raises:
            DataError: if files are missing, damaged or not what was published.
        """
        missing: list[str] = []
        splits = {}
        for split, parts in self.splits.items():
            found = [
                (Path(folder), name)
                for folder, names in parts
                for name in self._names(Path(folder), names, missing)
            ]
            missing += self._missing(found)
            splits[split] = found
        if missing:
            raise self.refused(f"{data_folder()} lacks {_listed(list(dict.fromkeys(missing)))}")
        for split, found in splits.items():
            if not found or (official and len(found) != self.counts[split]):
                raise self.refused(
                    f"for {split} there are {len(found):,} photographs, not {self.counts[split]:,}"
                    " (official = false in [task] takes any number above 0)"
                )
        return {split: [self._open(*one) for one in found] for split, found in splits.items()}

    def refused(self, trouble: str) -> DataError:
        """Return an error that describes the problem and the remedy."""
        folders = dict.fromkeys(folder for parts in self.splits.values() for folder, _ in parts)
        wanted = "\n".join(f"  {data_folder() / folder}" for folder in folders)
        return DataError(
            f"{self.title}: {trouble}.\n{self.origin}\n"
            f"With that these folders have ImageSets, JPEGImages and Annotations:\n{wanted}\n"
            f"Or name another folder in the place of {data_folder()} with --data FOLDER or "
            f"{DATA_VARIABLE}."
        )

    def _names(self, folder: Path, names: str, missing: list[str]) -> list[str]:
        """Return the names in a list; one that is not there is added to what is missing."""
        relative = folder / "ImageSets" / "Main" / f"{names}.txt"
        path = data_folder() / relative
        if not path.is_file():
            missing.append(str(relative))
            return []
        try:
            found = files.read(path, most=LARGEST_LIST).decode().split()
        except (StoreError, UnicodeDecodeError) as error:
            raise self.refused(f"{path} cannot be read: {first_line(error)}") from error
        for name in found:
            if "/" in name or "\\" in name or name.startswith("."):
                raise self.refused(f"{path}: {name!r} is no name of a photograph")
        if len(set(found)) < len(found):
            raise self.refused(f"{path} has a name twice")
        return found

    def _missing(self, found: Iterable[tuple[Path, str]]) -> list[str]:
        """Return the files that there should be; folders are listed once, since they are large."""
        lacking = []
        there: dict[Path, set[str]] = {}
        for folder, name in found:
            for relative in (folder / "JPEGImages" / f"{name}.jpg", _annotation(folder, name)):
                parent = data_folder() / relative.parent
                if parent not in there:
                    there[parent] = _file_names(parent)
                if relative.name not in there[parent]:
                    lacking.append(str(relative))
        return lacking

    def _open(self, folder: Path, name: str) -> Photograph:
        path = data_folder() / _annotation(folder, name)
        try:
            annotation = read_annotation(path, self.classes)
        except NotAnAnnotation as error:
            raise self.refused(f"{path}: {error}") from error
        return Photograph(data_folder() / folder / "JPEGImages" / f"{name}.jpg", annotation)


def _annotation(folder: Path, name: str) -> Path:
    return folder / "Annotations" / f"{name}.xml"


def _file_names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more files" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def digest_of(photographs: Sequence[Photograph], with_pixels: bool) -> str:
    """Return a digest of photographs and their boxes, and how many there are.

    Args:
        photographs: those of a split, in order.
        with_pixels: hash whole files; else their names and sizes in bytes.
    """
    content = hashlib.sha256()
    for photograph in photographs:
        path, annotation = photograph.path, photograph.annotation
        stored = path.read_bytes() if with_pixels else str(path.stat().st_size).encode()
        content.update(f"{path.name} {len(stored)} ".encode() + stored)
        content.update(f"{annotation.width} {annotation.height}".encode())
        for tensor in annotation.truth:
            content.update(tensor.numpy().tobytes())
    return f"{content.hexdigest()[:16]} of {len(photographs):,} photographs"


OXFORD = "http://host.robots.ox.ac.uk/pascal/VOC"

VOC = PhotographSet(
    title="PASCAL VOC",
    splits={
        "train": (("VOCdevkit/VOC2007", "train"), ("VOCdevkit/VOC2012", "train")),
        "validation": (("VOCdevkit/VOC2007", "val"), ("VOCdevkit/VOC2012", "val")),
        "test": (("VOCdevkit/VOC2007", "test"),),
    },
    counts={"train": 2_501 + 5_717, "validation": 2_510 + 5_823, "test": 4_952},
    classes=VOC_CLASSES,
    origin=(
        "They are not downloaded. Get these archives (by MD5) and unpack all of them in one "
        "folder, so that it has a folder VOCdevkit:\n"
        f"  c52e279531787c972589f7e41ab4ae64  {OXFORD}/voc2007/VOCtrainval_06-Nov-2007.tar\n"
        f"  b6e924de25625d8de591ea690078ad9f  {OXFORD}/voc2007/VOCtest_06-Nov-2007.tar\n"
        f"  6cd6e144f989b92b3379bac3b3de84fd  {OXFORD}/voc2012/VOCtrainval_11-May-2012.tar"
    ),
)
BCCD = PhotographSet(
    title="BCCD",
    splits={
        "train": (("voc_bccd/BCCD", "train"),),
        "validation": (("voc_bccd/BCCD", "val"),),
        "test": (("voc_bccd/BCCD", "test"),),
    },
    counts={"train": 205, "validation": 87, "test": 72},
    classes=("RBC", "WBC", "Platelets"),
    origin=(
        "They are not downloaded. Get https://github.com/Shenggan/BCCD_Dataset (MIT licence), and "
        "copy its folder BCCD into a folder voc_bccd."
    ),
)
"""Photographs of blood, in which red and white cells and platelets are marked."""
