"""The task imagenet, which writes down the pictures that each process opens."""

import os
from dataclasses import dataclass
from pathlib import Path

from sgdf.bench.tasks.imagenet.task import ImageNet
from sgdf.bench.tasks.images.pictures import CentralPicture, TrainingPicture


def _write_down(what, path):
    diary = os.environ.get("SGDF_TEST_DIARY")
    if diary:
        with (Path(diary) / f"{what}-{os.environ['RANK']}").open("a") as file:
            file.write(f"{path}\n")


@dataclass(frozen=True)
class CountedPiece(TrainingPicture):
    """Writes down what is trained on."""

    def __call__(self, path, numbers):
        """Return the piece."""
        _write_down("trained", path)
        return super().__call__(path, numbers)


@dataclass(frozen=True)
class CountedCentre(CentralPicture):
    """Writes down what is evaluated."""

    def __call__(self, path):
        """Return the centre."""
        _write_down("evaluated", path)
        return super().__call__(path)


class Counting(ImageNet):
    """Opens pictures as ever, and writes their names down."""

    def __init__(
        self,
        network: str = "resnet18",
        width: float = 1.0,
        folder: str = "imagenet",
        side: int = 224,
        shorter_side: int = 256,
        validation_images: int = 50_000,
        official: bool = True,
    ) -> None:
        super().__init__(network, width, folder, side, shorter_side, 0, validation_images, official)
        self.picture, self.centre = CountedPiece(side), CountedCentre(side, shorter_side)

    @classmethod
    def check(cls, **options):
        """Check the options."""
        super().check(**{"train_images": 0, **options})

    @classmethod
    def provide(cls, **options):
        """Provide the data."""
        super().provide(**{"train_images": 0, **options})
