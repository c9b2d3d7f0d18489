"""Supervised tasks whose inputs and targets fit in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from .base import Batches, Task, draw_classes
from .data_record import can_be_hashed, count_shared_rows, digest_rows

Pair = tuple[Tensor, Tensor]
EVALUATION_BATCH = 1024


class ShuffledBatches:
    """The batches of one epoch, none of which depends on those before it.

    Attributes:
        chunks: what each batch is made of.
    """

    chunks: Sequence[Any]

    def __len__(self) -> int:
        return len(self.chunks)

    def skip(self, count: int) -> Self:
        """Return them without the first ``count``."""
        return self._only(self.chunks[count:])

    def dealt(self, rank: int, count: int) -> Self:
        """Return those of one of several processes, which take turns."""
        return self._only(self.chunks[rank::count])

    def _only(self, chunks: Sequence[Any]) -> Self:
        rest = copy.copy(self)
        rest.chunks = chunks
        return rest


class ShuffledPairs(ShuffledBatches):
    """The batches of one epoch over tensors in memory."""

    def __init__(self, data: Pair, batch_size: int, order: torch.Generator) -> None:
        self.inputs, self.targets = data
        permutation = torch.randperm(len(self.inputs), generator=order)
        self.chunks = torch.split(permutation.to(self.inputs.device), batch_size)

    def __iter__(self) -> Iterator[Pair]:
        for chunk in self.chunks:
            yield self.inputs[chunk], self.targets[chunk]


class Supervised(Task):
    """A model that maps inputs to targets, with data that are held in memory.

    Whole-number targets are taken for classes: accuracy is then measured, and the best
    epoch has the highest on the validation data; otherwise it has the lowest loss.

    Args:
        model: the network.
        train: inputs and targets.
        validation: the same, for choosing.
        test: the same, for reporting.
        loss: a function of outputs and targets, a mean over the batch.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Pair,
        validation: Pair,
        test: Pair,
        loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    ) -> None:
        self.model, self.criterion = model, loss
        self.data = {"train": train, "validation": validation, "test": test}
        self.classes = not train[1].is_floating_point()
        if self.classes:  # unless the class declares its metric, which comes first
            self.selects, self.largest = "accuracy", True

    def __setattr__(self, name: str, value: Any) -> None:
        """Let subclasses of before set ``self.loss`` to a function of outputs and targets."""
        super().__setattr__("criterion" if name == "loss" else name, value)

    def to(self, device: torch.device) -> None:
        """Move model and data to the device."""
        super().to(device)
        self.data = {
            split: (inputs.to(device), targets.to(device))
            for split, (inputs, targets) in self.data.items()
        }

    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return the training data in a new order."""
        return ShuffledPairs(self.data["train"], batch_size, order)

    def loss(self, batch: Any, targets: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; also of outputs and targets, for older subclasses."""
        if targets is not None:
            return self.criterion(batch, targets)
        inputs, targets = batch
        return self.criterion(self.model(inputs), targets)

    def sampled_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the loss on classes drawn from the predictions."""
        if not self.classes:
            return super().sampled_loss(batch)
        outputs = self.model(batch[0])
        return self.criterion(outputs, draw_classes(outputs)), len(outputs)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return loss and, for classes, accuracy."""
        inputs, targets = self.data[split]
        loss, right = 0.0, 0
        for start in range(0, len(inputs), EVALUATION_BATCH):
            part = targets[start : start + EVALUATION_BATCH]
            outputs = self.model(inputs[start : start + EVALUATION_BATCH])
            loss += self.criterion(outputs, part).item() * len(part)
            if self.classes:
                right += int((outputs.argmax(1) == part).sum())
        metrics = {"loss": loss / len(inputs)}
        return {**metrics, "accuracy": right / len(inputs)} if self.classes else metrics

    def count_examples(self) -> dict[str, int]:
        """Return the number of inputs of each split."""
        return {split: len(inputs) for split, (inputs, _) in self.data.items()}

    def describe_data(self) -> dict[str, str]:
        """Return digests of the splits, and how many test rows are also training rows."""
        data = {split: pair for split, pair in self.data.items() if can_be_hashed(pair)}
        facts = {f"data of {split}": digest_rows(*pair) for split, pair in data.items()}
        if {"train", "test"} <= data.keys():
            shared = count_shared_rows(data["train"], data["test"])
            if shared is not None:
                facts["test rows in train"] = f"{shared:,} of {len(data['test'][0]):,}"
        return facts

    def train_on_validation(self) -> None:
        """Train on the validation data too."""
        added = zip(self.data["train"], self.data.pop("validation"), strict=True)
        inputs, targets = (torch.cat(parts) for parts in added)
        self.data["train"] = inputs, targets
