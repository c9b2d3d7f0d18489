"""CIFAR-10 and CIFAR-100 with the networks of the paper, or narrower ones."""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...errors import SpecError, suggestion
from ..images.normalised import Normalised
from ..metric import Metric
from ..supervised import Supervised
from .augment import AugmentedPairs
from .data import CIFAR10, CIFAR100, DEVIATION, MEAN, Cifar
from .networks import NETWORKS


class CifarTask(Supervised):
    """Small photographs, cropped and flipped at random, with a network trained from scratch.

    Args:
        network: one of mlp, vgg11, vgg11_bn, resnet8, resnet18, resnet20, resnet34, resnet56
            and densenet121.
        width: the share of its channels that the network keeps.
        train_images: how many images are trained on, as many of each class.
        validation_images: how many are held back for choosing; under the paper's protocol they
            are trained on too.
        official: insist on the published files; if false, any in their format will do.
    """

    metric = Metric("accuracy")
    data_set: ClassVar[Cifar]

    def __init__(
        self,
        network: str = "vgg11",
        width: float = 1.0,
        train_images: int = 45_000,
        validation_images: int = 5_000,
        official: bool = True,
    ) -> None:
        self.check(
            network=network,
            width=width,
            train_images=train_images,
            validation_images=validation_images,
        )
        (images, classes), test = self.data_set.read(official)
        if train_images + validation_images > len(images):
            raise SpecError(
                f"train_images = {train_images} and validation_images = {validation_images}: "
                f"there are {len(images)} images for both"
            )
        super().__init__(
            nn.Sequential(
                Normalised(MEAN, DEVIATION), NETWORKS[network](self.data_set.classes, width)
            ),
            train=(images[:train_images], classes[:train_images]),
            validation=(images[-validation_images:], classes[-validation_images:]),
            test=test,
        )
        used = hashlib.sha256()
        for tensor in itertools.chain.from_iterable(self.data.values()):
            used.update(tensor.numpy().data)
        self.digest = used.hexdigest()[:16]

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse networks, widths and numbers of images that cannot be."""
        network, width = options["network"], options["width"]
        if network not in NETWORKS:
            allowed, hint = ", ".join(NETWORKS), suggestion(network, NETWORKS)
            raise SpecError(f"network = {network!r}: must be one of {allowed}{hint}")
        if not 0 < width < math.inf:
            raise SpecError(f"width = {width}: must be above 0, and finite")
        if min(options["train_images"], options["validation_images"]) < 1:
            raise SpecError("train_images and validation_images: must be at least 1 each")

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Fetch and check the data, and with them the options."""
        with torch.random.fork_rng(devices=[]):
            cls(**options)

    def batches(self, batch_size: int, order: torch.Generator) -> AugmentedPairs:
        """Return the training images in a new order, cropped and flipped anew."""
        return AugmentedPairs(*self.data["train"], batch_size, order)

    def loss(self, batch: Any, targets: Tensor | None = None) -> Tensor:
        """Return the loss of the batch, and log its accuracy before the step."""
        if targets is not None:
            return super().loss(batch, targets)
        images, classes = batch
        scores = self.model(images)
        self.log("accuracy", (scores.argmax(1) == classes).float().mean())
        return self.criterion(scores, classes)


class Cifar10(CifarTask):
    """Photographs of ten kinds of things: a network of the paper, or a narrower one."""

    data_set = CIFAR10


class Cifar100(CifarTask):
    """Photographs of a hundred kinds of things: a network of the paper, or a narrower one."""

    data_set = CIFAR100
