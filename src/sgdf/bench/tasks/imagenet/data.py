"""ImageNet as class folders: ``train`` and ``val``, each with a folder for every class.

Any pictures in that layout will do, if it is said that they are not the published ones. One such
set is made here: CIFAR-100, for experiments that two cores can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError, SpecError
from ..assets import DATA_VARIABLE, data_folder
from ..cifar.data import deal_by_class
from ..images.folders import ClassFolders

TRAIN, TEST = "train", "val"
PUBLISHED = {TRAIN: 1_281_167, TEST: 50_000}
"""Pictures of ILSVRC2012 by folder."""
PUBLISHED_CLASSES = 1000
CHECKSUMS = {
    "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
    "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
}


def folder_of(name: str) -> Path:
    """Return a folder by its name, which is relative to the folder of the data sets."""
    return data_folder() / Path(name).expanduser()


@dataclass(frozen=True)
class Photographs:
    """The class folders of both splits.

    Attributes:
        train: what is trained on, and chosen by.
        test: what ImageNet calls its validation data.
    """

    train: ClassFolders
    test: ClassFolders

    @classmethod
    def read(cls, folder: str, official: bool = True) -> Photographs:
        """Return those of a folder.

        Args:
            folder: its name, in the folder of the data sets.
            official: insist on as many classes and pictures as ILSVRC2012 has.

        Raises:
            DataError: says what is amiss, and where to get the data.
        """
        place = folder_of(folder)
        remedy = remedy_for(place)
        if not place.is_dir():
            raise DataError(f"ImageNet: there is no folder {place}.\n{remedy}")
        train, test = _both(place, remedy)
        if train.classes != test.classes:
            (name, *others) = sorted({*train.classes} ^ {*test.classes})
            where, lacks = (TRAIN, TEST) if name in train.classes else (TEST, TRAIN)
            more = f", and {len(others):,} others are in only one of both" if others else ""
            raise train.refused(
                f"{place / where} has a class {name}, {place / lacks} has not{more}"
            )
        if official:
            found = {TRAIN: len(train), TEST: len(test)}
            if found != PUBLISHED or len(train.classes) != PUBLISHED_CLASSES:
                raise train.refused(
                    f"{place} has {found[TRAIN]:,} pictures to train on and {found[TEST]:,} to "
                    f"test on, of {len(train.classes):,} classes; ImageNet has "
                    f"{PUBLISHED[TRAIN]:,} and {PUBLISHED[TEST]:,}, of {PUBLISHED_CLASSES:,}. "
                    "Set official = false in [task] to take them knowingly for what they are"
                )
        return cls(train, test)


def _both(place: Path, remedy: str) -> list[ClassFolders]:
    """Return both splits; one message lists everything that is wrong with either."""
    found, troubles = [], []
    for split in (TRAIN, TEST):
        try:
            found.append(ClassFolders(place / split, remedy))
        except DataError as error:
            troubles.append(str(error).removesuffix(f".\n{remedy}"))
    if troubles:
        raise DataError(".\n".join([*troubles, remedy]))
    return found


def remedy_for(place: Path) -> str:
    """Return where to get the data, and where to put them."""
    sums = "\n".join(f"  {md5}  {name}" for name, md5 in CHECKSUMS.items())
    return (
        "Nothing is downloaded, because ImageNet is given to registered users only. Get these "
        f"archives of ILSVRC2012 from image-net.org (MD5):\n{sums}\n"
        f"Unpack them so that {place} has {TRAIN}/CLASS/*.JPEG and {TEST}/CLASS/*.JPEG, with "
        f"CLASS such as n01440764; or name another folder with --data FOLDER or {DATA_VARIABLE}, "
        "or in [task] with folder. The first archive has one of its own for each class. The second "
        "has all pictures in one place: extract_ILSVRC.sh of github.com/pytorch/examples "
        "(imagenet) unpacks both, and moves each picture to the folder of its class."
    )


def split_by_class(
    targets: Tensor, train_images: int, validation_images: int
) -> tuple[Tensor, Tensor]:
    """Return which pictures are trained on, and which are held back: of each class as many.

    They are chosen by chance, and always the same. Those held back are the first of each class in
    an order by chance, and those trained on the last: so of classes of any size as many are of
    each, as long as it has them, and one split does not depend on the size of the other.

    Args:
        targets: the class of each picture.
        train_images: how many to train on; 0 for all that are not held back.
        validation_images: how many to hold back.

    Raises:
        SpecError: if there are not as many.
    """
    left = len(targets) - validation_images
    if left < max(1, train_images):
        raise SpecError(
            f"train_images = {train_images} and validation_images = {validation_images}: there "
            f"are {len(targets)} images for both"
        )
    shuffled = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    held_back = _dealt(shuffled, targets)[:validation_images]
    is_held_back = torch.zeros(len(targets), dtype=torch.bool)
    is_held_back[held_back] = True
    order = _dealt(shuffled.flip(0), targets)
    return order[~is_held_back[order]][: train_images or left], held_back


def _dealt(rows: Tensor, targets: Tensor) -> Tensor:
    """Return them with the first one of each class first, then the second, and so on."""
    return rows[deal_by_class(targets[rows])]
