"""CIFAR-10 and CIFAR-100 in their official binary format (Krizhevsky, 2009)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..assets import Archive

SIDE = 32
PIXELS = 3 * SIDE * SIDE
URL = "https://www.cs.toronto.edu/~kriz/"

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Of the channels, from 0 to 1, as most public programs that train on CIFAR have them."""


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets.

    Attributes:
        archive: its files.
        train: the names of those with training images.
        test: the name of the one with test images.
        classes: how many there are.
        labels: the bytes before the pixels of each image; the last of them is its class.
    """

    archive: Archive
    train: tuple[str, ...]
    test: str
    classes: int
    labels: int

    def read(self, official: bool = True) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return training and test data: images as bytes (n, 3, 32, 32), and classes.

        The training images are dealt out by class: of any number of the first ones, or of the
        last ones, as many are of each class, give or take one.

        Args:
            official: insist on the published files, not just on files of the same format.

        Raises:
            DataError: if files are missing, damaged or not CIFAR's.
        """
        parts = [self._file(name, official) for name in self.train]
        images, classes = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        order = deal_by_class(classes)
        return (images[order], classes[order]), self._file(self.test, official)

    def _file(self, name: str, official: bool) -> tuple[Tensor, Tensor]:
        content = self.archive.content(name, official)
        length = self.labels + PIXELS
        if not content or len(content) % length:
            raise self.archive.refused(
                f"{self.archive.place / name} has {len(content)} bytes, which are not images "
                f"of {length}"
            )
        records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, length)
        classes = records[:, self.labels - 1].long()
        if classes.max() >= self.classes:
            raise self.archive.refused(
                f"{self.archive.place / name} has an image of class {classes.max()}, but there "
                f"are {self.classes}"
            )
        return records[:, self.labels :].contiguous().view(-1, 3, SIDE, SIDE), classes


def deal_by_class(classes: Tensor) -> Tensor:
    """Return an order in which the first of each class come first, then the second, and so on."""
    by_class = torch.argsort(classes, stable=True)
    counts = torch.bincount(classes)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    turn = torch.arange(len(classes)) - starts
    return by_class[torch.argsort(turn, stable=True)]


CIFAR10 = Cifar(
    Archive(
        title="CIFAR-10",
        url=URL + "cifar-10-binary.tar.gz",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        size=170_052_171,
        folder="cifar-10-batches-bin",
        files={
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
    ),
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    classes=10,
    labels=1,
)

CIFAR100 = Cifar(
    Archive(
        title="CIFAR-100",
        url=URL + "cifar-100-binary.tar.gz",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        size=168_513_733,
        folder="cifar-100-binary",
        files={
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
    ),
    train=("train.bin",),
    test="test.bin",
    classes=100,
    labels=2,  # the coarse one and the fine one
)
