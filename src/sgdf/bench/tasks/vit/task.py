"""A vision transformer, trained before on many images, tuned to another data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import DataError, SpecError, suggestion
from ..assets import DATA_VARIABLE, data_folder
from ..base import Batches, Task, draw_classes
from ..imagenet.data import split_by_class
from ..images.crops import RandomCrop
from ..metric import Metric
from ..shared_means import SharedMeans
from ..supervised import Pair, ShuffledBatches
from .data import check_data, read_data
from .features import features_of
from .google import read_weights
from .pretraining import images_to_learn, pretrained
from .transformer import SIZES, Classifier, VisionTransformer

PUBLISHED = {"vit-b-32": "ViT-B_32.npz", "vit-l-32": "ViT-L_32.npz"}
"""The files with the weights of the published networks."""
WEIGHTS_FOLDER = "weights/imagenet21k"
WEIGHTS_URL = "https://storage.googleapis.com/vit_models/imagenet21k/"
RANDOM = "random"
TUNED = ("all", "head")
PRETRAINING_EPOCHS = 20
DROPOUT = 0.1
CROP = RandomCrop(area=(0.05, 1.0), flip=0.0)
"""The pieces that are trained on. They are not turned."""
EVALUATION_BATCH = 100


class ViT(Task):
    """A vision transformer with a new head, tuned to another data set.

    Args:
        network: vit-b-32 or vit-l-32, with published weights from a file, or vit-tiny-4, which
            learns CIFAR-100 before the first run.
        data: cifar10, cifar100, pets, flowers102, food101, imagenet or digits.
        tune: "all" to train all parameters, "head" to train only the new head. The rest is then
            in evaluation mode, without dropout.
        augment: train on random pieces of the images. Without it, and with tune = "head", the
            features of all images are computed once and kept.
        side: of the images that the network gets, a multiple of the side of its patches. Position
            embeddings are interpolated.
        dropout: the share of numbers that are dropped in training with tune = "all".
        weights: a file with weights in place of the published one, in the folder of the data; or
            "random" for none.
        pretraining_epochs: how long vit-tiny-4 learns CIFAR-100, where no weights are named.
        train_images: how many images are trained on, as many of each class; 0 for all that are not
            held back.
        validation_images: how many are held back for choosing; under the paper's protocol they are
            trained on too.
        test_images: how many of the test images are used, as many of each class; 0 for all.
        official: insist on the published files; if false, any in their format will do.
    """

    metric = Metric("accuracy")
    model: Classifier

    def __init__(
        self,
        network: str = "vit-b-32",
        data: str = "cifar10",
        tune: str = "all",
        augment: bool = True,
        side: int = 384,
        dropout: float = DROPOUT,
        weights: str = "",
        pretraining_epochs: int = PRETRAINING_EPOCHS,
        train_images: int = 0,
        validation_images: int = 1_000,
        test_images: int = 0,
        official: bool = True,
    ) -> None:
        self.check(
            network=network,
            data=data,
            tune=tune,
            side=side,
            dropout=dropout,
            weights=weights,
            pretraining_epochs=pretraining_epochs,
            train_images=train_images,
            validation_images=validation_images,
            test_images=test_images,
        )
        self.side, self.augment = side, augment
        found = read_data(data, official)
        used, held_back = split_by_class(found.train.classes, train_images, validation_images)
        if test_images > len(found.test):
            raise SpecError(f"test_images = {test_images}: there are {len(found.test)}")
        self.images = {
            "train": found.train.part(used),
            "validation": found.train.part(held_back),
            "test": found.test.part(torch.arange(test_images or len(found.test))),
        }
        backbone = _backbone(network, side, dropout, weights, pretraining_epochs, official)
        self.digest = "" if weights == RANDOM else backbone.digest()
        self.model = Classifier(backbone, found.class_count, is_frozen=tune == "head")
        self._classifier = self.model  # which the loop may wrap
        self.is_cached = tune == "head" and not augment
        self._features: dict[str, Pair] = {}

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse networks, data, modes and numbers that cannot be."""
        network, tune, side = options["network"], options["tune"], options["side"]
        for key, value, allowed in (("network", network, SIZES), ("tune", tune, TUNED)):
            if value not in allowed:
                hint = suggestion(value, allowed)
                raise SpecError(f"{key} = {value!r}: must be one of {', '.join(allowed)}{hint}")
        check_data(options["data"])
        patch = SIZES[network].patch
        if side < patch or side % patch:
            raise SpecError(f"side = {side}: must be a multiple of the patches' side, {patch}")
        if not 0 <= options["dropout"] < 1:
            raise SpecError(f"dropout = {options['dropout']}: must be at least 0 and below 1")
        for key in ("pretraining_epochs", "validation_images"):
            if options[key] < 1:
                raise SpecError(f"{key} = {options[key]}: must be at least 1")
        for key in ("train_images", "test_images"):
            if options[key] < 0:
                raise SpecError(f"{key} = {options[key]}: must not be negative; 0 for all")
        for key, default, is_read, reader in (
            ("dropout", DROPOUT, tune == "all", 'tune = "all"'),
            (
                "pretraining_epochs",
                PRETRAINING_EPOCHS,
                _learns_before(network, options["weights"]),
                "vit-tiny-4 without weights",
            ),
        ):
            # It would make another run of the same experiment.
            if not is_read and options[key] != default:
                raise SpecError(
                    f"{key} = {options[key]}: has an effect only with {reader}; leave it out"
                )

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check data and weights, and with them the options; train the small network if need be."""
        network, weights, official = (options[key] for key in ("network", "weights", "official"))
        looks: list[Callable[[], object]] = [
            partial(_weights_file, network, weights),
            partial(read_data, options["data"], official),
        ]
        if _learns_before(network, weights):
            looks.append(partial(images_to_learn, official))
        missing = []
        for look in looks:
            try:
                look()
            except DataError as error:
                missing.append(str(error))
        if missing:
            raise DataError("\n".join(dict.fromkeys(missing)))  # two may miss the same
        with torch.random.fork_rng(devices=[]):
            cls(**options)

    def to(self, device: torch.device) -> None:
        """Move the model, and images that are held in memory, to the device."""
        super().to(device)
        for images in self.images.values():
            images.to(device)

    def optimizers(self, make: Callable[..., Optimizer]) -> Mapping[str, Optimizer]:
        """Return one optimizer of the parameters that are trained."""
        trained = self.model.head if self.model.is_frozen else self.model
        return {"model": make(trained.parameters())}

    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return the training images in a new order, as random pieces; or their features."""
        if self.is_cached:
            return FeatureBatches(
                len(self.images["train"]), partial(self.features, "train"), batch_size, order
            )
        crop = CROP if self.augment else None
        return self.images["train"].shuffled(self.side, batch_size, order, crop)

    def loss(self, batch: Any) -> Tensor:
        """Return the loss of the batch, and log its accuracy before the step."""
        scores, classes = self._scores(batch)
        self.log("accuracy", (scores.argmax(1) == classes).float().mean())
        return nn.functional.cross_entropy(scores, classes)

    def sampled_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the loss on classes drawn from the predictions."""
        scores, _ = self._scores(batch)
        return nn.functional.cross_entropy(scores, draw_classes(scores)), len(scores)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return loss and accuracy on the images of a split, each resized as a whole."""
        return self.evaluate_share(split, 0, 1)[0]

    def evaluate_share(self, split: str, rank: int, count: int) -> tuple[dict[str, float], int]:
        """Return them for every ``count``-th image, and how many these are."""
        rows, what = torch.arange(rank, len(self.images[split]), count), f"images of {split}"
        means = SharedMeans(self.evaluation, what, len(rows), ("loss", "accuracy"))
        for batch in self._evaluated(split, rows[means.seen :]):
            scores, classes = self._scores(batch)
            loss = nn.functional.cross_entropy(scores.float(), classes, reduction="sum").item()
            right = int((scores.argmax(1) == classes).sum())
            means.add(len(classes), loss=loss, accuracy=right)
        return means.result()

    def features(self, split: str) -> Pair:
        """Return the features of the images of a split, computed when they are first needed."""
        if split not in self._features:
            self._features[split] = features_of(
                self._classifier, self.images[split], self.side, EVALUATION_BATCH
            )
        return self._features[split]

    def count_examples(self) -> dict[str, int]:
        """Return the number of images of each split."""
        return {split: len(images) for split, images in self.images.items()}

    def describe_data(self) -> dict[str, str]:
        """Return digests of the images and of the weights that training began with."""
        facts = {f"data of {split}": images.digest for split, images in self.images.items()}
        return {**facts, "weights before tuning": self.digest or RANDOM}

    def train_on_validation(self) -> None:
        """Train on the validation images too."""
        self.images["train"] += self.images.pop("validation")

    def _evaluated(self, split: str, rows: Tensor) -> Iterator[Pair]:
        """Return batches of some of the images of a split, in their order."""
        if not self.is_cached:
            return self.images[split].part(rows).squares(self.side, EVALUATION_BATCH)
        chosen = (tensor[rows.to(tensor.device)] for tensor in self.features(split))
        return zip(*(torch.split(tensor, EVALUATION_BATCH) for tensor in chosen), strict=True)

    def _scores(self, batch: Pair) -> Pair:
        """Return the scores of the images of a batch, and their classes."""
        inputs, classes = (tensor.to(self.device) for tensor in batch)
        return self.model(inputs), classes


class FeatureBatches(ShuffledBatches):
    """The batches of one epoch over features, which are computed when the first one is needed.

    Args:
        count: how many features there are.
        features: returns them, with their classes.
        batch_size: features in a batch; the last one may have fewer.
        order: the epoch's generator.
    """

    def __init__(
        self, count: int, features: Callable[[], Pair], batch_size: int, order: torch.Generator
    ) -> None:
        self.features = features
        self.chunks = torch.split(torch.randperm(count, generator=order), batch_size)

    def __iter__(self) -> Iterator[Pair]:
        features, classes = self.features()
        for rows in self.chunks:
            chosen = rows.to(features.device)
            yield features[chosen], classes[chosen]


def _backbone(
    network: str, side: int, dropout: float, weights: str, pretraining_epochs: int, official: bool
) -> VisionTransformer:
    """Return the transformer that training begins with.

    Raises:
        DataError: if its weights are missing or do not fit.
    """
    if weights == RANDOM:
        return VisionTransformer(SIZES[network], side, dropout)
    if path := _weights_file(network, weights):
        backbone = read_weights(path, network, SIZES[network], dropout)
    else:
        backbone = pretrained(network, pretraining_epochs, official, dropout)
    backbone.resize(side)
    return backbone


def _learns_before(network: str, weights: str) -> bool:
    """Return whether the network learns CIFAR-100 before the first run."""
    return not weights and network not in PUBLISHED


def _weights_file(network: str, given: str) -> Path | None:
    """Return the file with the weights; None if there are none, or they are made on the spot.

    Raises:
        DataError: if it is missing; says where to get it.
    """
    if given == RANDOM or not (given or network in PUBLISHED):
        return None
    if given:
        path = data_folder() / Path(given).expanduser()
        if not path.is_file():
            raise DataError(f"weights = {given!r}: there is no file {path}")
        return path
    path = data_folder() / WEIGHTS_FOLDER / PUBLISHED[network]
    if not path.is_file():
        raise DataError(
            f"Weights of {network}: there is no file {path}.\n"
            f"It is not downloaded, and no checksum of it is published. Get "
            f"{WEIGHTS_URL}{path.name} and copy it to {path.parent}; or name another folder with "
            f"--data FOLDER or {DATA_VARIABLE}, which must contain {WEIGHTS_FOLDER}/{path.name}"
        )
    return path
