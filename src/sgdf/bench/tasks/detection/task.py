"""Tuning a trained Faster R-CNN: torchvision's on PASCAL VOC, and a small one on blood cells."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import DataError, SpecError, suggestion
from ..base import Task
from ..images.extractors import RESNETS
from ..metric import Metric
from ..vision_extra import torchvision
from .average_precision import AveragePrecision
from .batches import GroupedBatches
from .boxes import Found
from .coco_weights import CLASSES, coco_weights_path, load_coco_weights
from .drawing import draw
from .gallery import Gallery
from .losses import detection_losses
from .networks import (
    BATCH_NORMS,
    freeze_beginning,
    large_detector,
    replace_predictor,
    small_detector,
)
from .photographs import BCCD, VOC, PhotographSet, digest_of, refuse_without_pillow
from .pretraining import digest_of_tensors, pretrained, shapes_of

SHOWN = 4
"""Test photographs of which each evaluation shows what was found."""
NETWORKS = ("fasterrcnn_resnet50_fpn",)


class Detection(Task):
    """A detector that learns to find the things of a few classes in photographs.

    Photographs are mirrored at random. Those of a batch have about the same shape. Difficult boxes
    are trained on. The loss is the sum of the four losses of a Faster R-CNN, and an evaluation has
    three average precisions (see ``average_precision``), of which COCO's decides.

    Args:
        model: a detector of torchvision's.
        galleries: the photographs of each split.
        weights: a digest of those that the model has.
    """

    metric = Metric("ap50", unit="%")
    photograph_set: ClassVar[PhotographSet]
    pixels_in_digest: ClassVar[bool]

    def __init__(self, model: nn.Module, galleries: dict[str, Gallery], weights: str) -> None:
        self.model, self.galleries = model, galleries
        self.weights = weights
        content = hashlib.sha256(weights.encode())
        for split in galleries:
            content.update(self._digest_of(split).encode())
        self.digest = content.hexdigest()[:16]

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check that everything is there, and make the model once, which checks the rest."""
        torchvision()
        refuse_without_pillow()
        with torch.random.fork_rng(devices=[]):
            cls(**options)

    def optimizers(self, make: Callable[..., Optimizer]) -> Mapping[str, Optimizer]:
        """Return the optimizer of all parameters that are trained."""
        return {"model": make(p for p in self.model.parameters() if p.requires_grad)}

    def batches(self, batch_size: int, order: torch.Generator) -> GroupedBatches:
        """Return the training photographs in a new order, mirrored anew."""
        train = self.galleries["train"]
        return GroupedBatches(train.groups, train.example, batch_size, order)

    def loss(self, batch: Any) -> Tensor:
        """Return the sum of the four losses, and log each."""
        losses = detection_losses(self.model, batch, self.device)
        for name, loss in losses.items():
            self.log(name, loss)
        return torch.stack(list(losses.values())).sum()

    def begin_evaluation(self, costly: bool) -> None:
        """Show what is found in a few test photographs, always the same ones."""
        test = self.galleries["test"]
        shown = min(SHOWN, len(test))
        for place in range(shown):
            number = place * len(test) // shown
            pixels = test.pixels(number)
            picture = draw(pixels, self._find(pixels), self.photograph_set.classes)
            self.evaluation.show(f"photograph-{place + 1}", picture)
            self.evaluation.advance("pictures", place + 1, shown)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the three average precisions."""
        gallery, what = self.galleries[split], f"finding boxes, {split}"
        kept = self.evaluation.kept(what)
        precision = (
            AveragePrecision.of_state(kept["precision"])
            if kept
            else AveragePrecision(len(self.photograph_set.classes))
        )
        for number in range(kept["done"] if kept else 0, len(gallery)):
            found = gallery.in_file(number, self._find(gallery.pixels(number)))
            precision.add(found, gallery.truth(number))
            state = functools.partial(_state, number + 1, precision)
            self.evaluation.advance(what, number + 1, len(gallery), state)
        return precision.means()

    def _find(self, pixels: Tensor) -> Found:
        """Return what the model finds in a photograph."""
        found = self.model([pixels.to(self.device).float() / 255])[0]
        return Found(found["boxes"], found["scores"], found["labels"])

    def train_on_validation(self) -> None:
        """Train on the validation photographs too."""
        self.galleries["train"] += self.galleries.pop("validation")

    def count_examples(self) -> dict[str, int]:
        """Return the number of photographs of each split."""
        return {split: len(gallery) for split, gallery in self.galleries.items()}

    def describe_data(self) -> dict[str, str]:
        """Return digests of the splits, and of the weights that are tuned."""
        digests = {f"data of {split}": self._digest_of(split) for split in self.galleries}
        return {**digests, "weights before tuning": self.weights}

    def _digest_of(self, split: str) -> str:
        return digest_of(self.galleries[split].photographs, self.pixels_in_digest)


def _state(done: int, precision: AveragePrecision) -> dict[str, Any]:
    """Return what an evaluation has of the photographs that are done."""
    return {"done": done, "precision": precision.state()}


def _together(*found: Callable[[], Any]) -> list[Any]:
    """Return what each function finds; one message lists everything that is missing."""
    results, troubles = [], []
    for find in found:
        try:
            results.append(find())
        except DataError as error:
            troubles.append(str(error))
    if troubles:
        raise DataError("\n\n".join(troubles))
    return results


class PascalVOC(Detection):
    """Torchvision's Faster R-CNN on ResNet-50, trained on COCO, tuned on VOC2007 and VOC2012.

    The last layers, which name classes, are new. Stem and first stage of the ResNet are not
    trained. Tests are on the test photographs of VOC2007.

    Args:
        network: ``"fasterrcnn_resnet50_fpn"``.
        batch_norm: ``"trained"`` as in the published program, or ``"frozen"``: its layers are then
            constants, as they were when the weights were made.
        shorter: pixels that the shorter side of photographs is scaled to,
        longer: unless the longer one would then have more than so many.
        official: insist on the published files; if false, any in their format will do.
    """

    photograph_set = VOC
    pixels_in_digest = False  # there are gigabytes of them

    def __init__(
        self,
        network: str = "fasterrcnn_resnet50_fpn",
        batch_norm: str = "trained",
        shorter: int = 800,
        longer: int = 1_333,
        official: bool = True,
    ) -> None:
        self.check(network=network, batch_norm=batch_norm, shorter=shorter, longer=longer)
        _, splits = _together(coco_weights_path, lambda: self.photograph_set.read(official))
        model = large_detector(CLASSES, batch_norm, min_size=shorter, max_size=longer)
        digest = load_coco_weights(model, official)
        replace_predictor(model, len(self.photograph_set.classes) + 1)
        super().__init__(model, {split: Gallery(part) for split, part in splits.items()}, digest)

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse networks, normalisations and sizes that cannot be."""
        for name, allowed in (("network", NETWORKS), ("batch_norm", BATCH_NORMS)):
            if options[name] not in allowed:
                hint = suggestion(options[name], allowed)
                raise SpecError(f"{name} = {options[name]!r}: must be {' or '.join(allowed)}{hint}")
        if not 1 <= options["shorter"] <= options["longer"]:
            raise SpecError("shorter must be at least 1, and longer no less than it")


class BloodCells(Detection):
    """A small Faster R-CNN on ResNet-20, trained and then tuned on photographs of blood.

    It is trained with Adam on the training photographs, once for all runs. What a run trains is
    that detector with new last layers; stem and first stage of the ResNet are not trained.

    Args:
        longest: pixels of the longer side that photographs are scaled to.
        pretraining_epochs: how long it is trained before.
        official: insist on as many photographs as were published.
    """

    photograph_set = BCCD
    pixels_in_digest = True

    def __init__(
        self, longest: int = 240, pretraining_epochs: int = 8, official: bool = True
    ) -> None:
        self.check(longest=longest, pretraining_epochs=pretraining_epochs)
        resnet = RESNETS["resnet20"]
        _, splits = _together(resnet.provide, lambda: self.photograph_set.read(official))
        weights = resnet.place / next(iter(resnet.files))
        galleries = {split: Gallery(part, longest) for split, part in splits.items()}
        classes = len(self.photograph_set.classes) + 1
        model = small_detector(classes, weights, longest)
        shapes = shapes_of(model.state_dict())
        tensors = pretrained(galleries["train"], classes, weights, pretraining_epochs, shapes)
        model.load_state_dict(tensors)
        freeze_beginning(model)
        replace_predictor(model, classes)
        super().__init__(model, galleries, digest_of_tensors(tensors))

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse sizes and lengths that cannot be."""
        if options["longest"] < 32:
            raise SpecError(f"longest = {options['longest']}: must be at least 32")
        if options["pretraining_epochs"] < 1:
            raise SpecError(
                f"pretraining_epochs = {options['pretraining_epochs']}: must be at least 1"
            )
