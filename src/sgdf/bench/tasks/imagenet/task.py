"""ImageNet with the networks of the paper, or narrower ones on other class folders."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import SpecError, suggestion
from ..base import Task, draw_classes
from ..images.batches import PictureBatches, central_batches
from ..images.crops import RandomCrop
from ..images.normalised import IMAGENET, Normalised
from ..images.pictures import CentralPicture, TrainingPicture
from ..metric import Metric
from ..shared_means import SharedMeans
from .data import Photographs, split_by_class
from .made import NAME as SMALL
from .made import provide_small
from .networks import NETWORKS

EVALUATION_BATCH = 256
LIKELIEST = 5


class ImageNet(Task):
    """Photographs of a thousand kinds of things, read from class folders in every epoch.

    The metrics are ``accuracy`` (top-1) and ``top5_accuracy``. The published validation pictures
    are the ``test`` data here, since the published numbers are those of the best epoch on them.

    Args:
        network: one of vgg11, vgg13, vgg11_bn, vgg13_bn, resnet18, resnet34, resnet50, resnet101,
            densenet121 and densenet161.
        width: the share of its channels that the network keeps.
        folder: with the folders train and val; a relative name is taken in the folder of the data
            sets. "cifar100-64" is made of CIFAR-100.
        side: of the pictures that the network sees.
        shorter_side: of a picture before its centre is taken, in evaluations.
        train_images: how many are trained on, as many of each class; 0 for all that are not held
            back.
        validation_images: how many of the training pictures are held back for choosing; under the
            paper's protocol they are trained on too.
        official: insist on as many pictures and classes as were published; with "cifar100-64", on
            the published files of CIFAR-100.
    """

    metric = Metric("accuracy")

    def __init__(
        self,
        network: str = "resnet18",
        width: float = 1.0,
        folder: str = "imagenet",
        side: int = 224,
        shorter_side: int = 256,
        train_images: int = 0,
        validation_images: int = 50_000,
        official: bool = True,
    ) -> None:
        self.check(
            network=network,
            width=width,
            side=side,
            shorter_side=shorter_side,
            train_images=train_images,
            validation_images=validation_images,
        )
        self.photographs = Photographs.read(folder, official and folder != SMALL)
        train, test = self.photographs.train, self.photographs.test
        used, held_back = split_by_class(train.targets, train_images, validation_images)
        self.rows = {"train": used, "validation": held_back, "test": torch.arange(len(test))}
        self.model = nn.Sequential(
            Normalised(*IMAGENET), NETWORKS[network](len(train.classes), width)
        )
        self.picture = TrainingPicture(side, RandomCrop())
        self.centre = CentralPicture(side, shorter_side)
        self._digests = {split: self._digest_of(split) for split in self.rows}
        self.digest = hashlib.sha256(repr(self._digests).encode()).hexdigest()[:16]

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse networks, widths, sizes and numbers of pictures that cannot be."""
        network, width = options["network"], options["width"]
        if network not in NETWORKS:
            allowed, hint = ", ".join(NETWORKS), suggestion(network, NETWORKS)
            raise SpecError(f"network = {network!r}: must be one of {allowed}{hint}")
        if not 0 < width < math.inf:
            raise SpecError(f"width = {width}: must be above 0, and finite")
        side, shorter = options["side"], options["shorter_side"]
        if side < 32:
            raise SpecError(
                f"side = {side}: must be at least 32, which the networks halve five times"
            )
        if shorter < side:
            raise SpecError(f"shorter_side = {shorter}: must be at least side = {side}")
        if options["train_images"] < 0 or options["validation_images"] < 1:
            raise SpecError("train_images must not be negative, and validation_images at least 1")

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check that the folders have what they should, and make those that are made here."""
        folder, official = options["folder"], options["official"]
        if folder == SMALL:
            provide_small(official)
        train = Photographs.read(folder, official and folder != SMALL).train
        split_by_class(train.targets, options["train_images"], options["validation_images"])

    def batches(self, batch_size: int, order: torch.Generator) -> PictureBatches:
        """Return the training pictures in a new order, a random piece of each."""
        train = self.photographs.train
        return PictureBatches(train, self.rows["train"], batch_size, order, self.picture)

    def loss(self, batch: Any) -> Tensor:
        """Return the loss of the batch, and log its accuracy before the step."""
        pictures, classes = (tensor.to(self.device) for tensor in batch)
        scores = self.model(pictures)
        self.log("accuracy", (scores.argmax(1) == classes).float().mean())
        return nn.functional.cross_entropy(scores, classes)

    def sampled_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the loss on classes drawn from the predictions."""
        scores = self.model(batch[0].to(self.device))
        return nn.functional.cross_entropy(scores, draw_classes(scores)), len(scores)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the loss and both accuracies."""
        return self.evaluate_share(split, 0, 1)[0]

    def evaluate_share(self, split: str, rank: int, count: int) -> tuple[dict[str, float], int]:
        """Return them for every ``count``-th picture, and how many these are."""
        rows, what = self.rows[split][rank::count], f"pictures of {split}"
        names = ("loss", "accuracy", "top5_accuracy")
        means = SharedMeans(self.evaluation, what, len(rows), names)
        left = rows[means.seen :]
        batches = central_batches(self._folders(split), left, EVALUATION_BATCH, self.centre)
        for pictures, classes in batches:
            scores = self.model(pictures.to(self.device)).float()
            classes = classes.to(self.device)
            likeliest = scores.topk(min(LIKELIEST, scores.shape[1])).indices
            hits = likeliest == classes[:, None]
            means.add(
                len(classes),
                loss=nn.functional.cross_entropy(scores, classes, reduction="sum").item(),
                accuracy=int(hits[:, 0].sum()),
                top5_accuracy=int(hits.sum()),
            )
        return means.result()

    def count_examples(self) -> dict[str, int]:
        """Return the number of pictures of each split."""
        return {split: len(rows) for split, rows in self.rows.items()}

    def describe_data(self) -> dict[str, str]:
        """Return digests of the splits."""
        return {f"data of {split}": self._digests[split] for split in self.rows}

    def train_on_validation(self) -> None:
        """Train on the pictures too that were held back."""
        self.rows["train"] = torch.cat([self.rows["train"], self.rows.pop("validation")])
        self._digests["train"] = self._digest_of("train")

    def _digest_of(self, split: str) -> str:
        digest: str = self._folders(split).digest(self.rows[split])
        return digest

    def _folders(self, split: str) -> Any:
        return self.photographs.test if split == "test" else self.photographs.train
