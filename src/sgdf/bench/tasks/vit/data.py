"""The data sets that a vision transformer is tuned to, by name."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import SpecError, suggestion
from ..cifar.data import CIFAR10, CIFAR100, Cifar, deal_by_class
from ..digits.data import digits
from ..imagenet.data import Photographs
from .files import PicturesInFiles
from .held import HeldImages
from .image_set import ImageSet
from .layouts import LAYOUTS

CIFARS = {"cifar10": CIFAR10, "cifar100": CIFAR100}
IMAGENET_FOLDER = "imagenet"
NAMES = (*CIFARS, *LAYOUTS, "imagenet", "digits")


@dataclass(frozen=True)
class TuningData:
    """A data set.

    Attributes:
        train: images for training, dealt out by class: of any number of the first ones about as
            many are of each class.
        test: images for testing, dealt out likewise.
        class_count: how many classes there are.
    """

    train: ImageSet
    test: ImageSet
    class_count: int


def check_data(name: str) -> None:
    """Refuse a name that no data set has.

    Raises:
        SpecError: names those that there are.
    """
    if name not in NAMES:
        hint = suggestion(name, NAMES)
        raise SpecError(f"data = {name!r}: must be one of {', '.join(NAMES)}{hint}")


def read_data(name: str, official: bool = True) -> TuningData:
    """Return a data set.

    Args:
        name: of the data set.
        official: insist on the published files, or lists of files.

    Raises:
        DataError: if files are missing or damaged.
    """
    check_data(name)
    if name == "digits":
        return _digits()
    if name in CIFARS:
        return _cifar(CIFARS[name], official)
    if name == "imagenet":
        return _imagenet(official)
    layout = LAYOUTS[name]
    train, test = (PicturesInFiles(pictures) for pictures in layout.read(official))
    return TuningData(_dealt(train), _dealt(test), layout.classes)


def _cifar(cifar: Cifar, official: bool) -> TuningData:
    train, test = (HeldImages(*pair) for pair in cifar.read(official))
    return TuningData(_dealt(train), _dealt(test), cifar.classes)


def _imagenet(official: bool) -> TuningData:
    found = Photographs.read(IMAGENET_FOLDER, official)
    train, test = (_dealt(PicturesInFiles(pictures)) for pictures in (found.train, found.test))
    return TuningData(train, test, len(found.train.classes))


def _digits() -> TuningData:
    parts = digits()
    train, validation, test = (
        HeldImages((255 * images).round().to(torch.uint8), classes)
        for images, classes in (parts["train"], parts["validation"], parts["test"])
    )
    both = HeldImages(
        torch.cat([train.images, validation.images]), torch.cat([train.classes, validation.classes])
    )
    return TuningData(_dealt(both), _dealt(test), class_count=10)


def _dealt(images: ImageSet) -> ImageSet:
    return images.part(deal_by_class(images.classes))
