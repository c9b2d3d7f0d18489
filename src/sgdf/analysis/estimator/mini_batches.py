"""Mini-batches at the parameters of a training that stands still, and their gradients."""

from __future__ import annotations

import copy
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ...bench.errors import SpecError
from ...bench.tasks import Task
from ..example_counts import count_examples
from ..examples import training_batches
from .shadow_filter import Observation

Gradients = dict[str, Tensor]
"""By the parameter's name."""
LARGE_BATCH = 256
"""Examples in a batch where its size does not matter, and a small one would take longer."""


class MiniBatches:
    """The training data of a task, with gradients at the present parameters of its model.

    The passes run on a copy of the model, so that gradients and running statistics of the
    training stay as they are. Anything else that ``task.loss`` may change is for the caller to
    restore, as the bench does around every probe.

    Args:
        task: whose model and data.
        names: the parameters that gradients are wanted of.
        batch_size: examples in a mini-batch.
        examples: how many training examples the full-batch gradient is over; 0 for all. A task
            that holds its data in memory gives them without augmentation.

    Raises:
        SpecError: if mini-batches of the task cannot be drawn at random.
    """

    def __init__(
        self, task: Task, names: Sequence[str], batch_size: int, examples: int = 0
    ) -> None:
        if task.sequential:
            raise SpecError("its batches follow on each other, and cannot be drawn at random")
        self.task, self.names, self.batch_size = task, names, batch_size
        # The gradient of a network with BatchNorm depends on the size of its batches.
        depends = any(isinstance(module, _BatchNorm) for module in task.model.modules())
        size = batch_size if depends else max(batch_size, LARGE_BATCH)
        found = training_batches(task, examples or sys.maxsize, size)
        whole = [batch for batch in found if count_examples(batch) == size]
        self.examples = whole if depends and whole else found
        self.example_count = sum(map(count_examples, self.examples))

    def draw(self, random: torch.Generator) -> Any:
        """Return a mini-batch drawn at random, without replacement within it."""
        return next(iter(self.task.batches(self.batch_size, random)))

    def gradient(self, batch: Any) -> Gradients:
        """Return the gradient of the mean loss of a batch."""
        with _on_a_copy(self.task):
            return self._gradient(batch)

    def observe(self, batch: Any, gradients: Gradients | None = None) -> dict[str, Observation]:
        """Return the gradient of a batch, with a sample of its noise from its two halves.

        The sample has the variance of n independent examples. A batch of n out of N examples,
        without replacement, has 1 − n/N of it: the sample is a little too large. With BatchNorm
        each half has statistics of its own, and the mean of the halves' gradients is not the
        gradient of the batch.

        Args:
            batch: the batch.
            gradients: its gradient, if it is known.
        """
        first, second, share = halve(batch)
        with _on_a_copy(self.task):
            whole = gradients or self._gradient(batch)
            ones, others = self._gradient(first), self._gradient(second)
        # The difference of equal halves has four times the variance of their mean; of shares w
        # and 1 − w, as in a batch of an odd number, it has 1 / (w (1 − w)) times.
        scale = math.sqrt(share * (1.0 - share))
        return {
            name: Observation(grad, scale * (ones[name] - others[name]))
            for name, grad in whole.items()
        }

    def full_gradient(self) -> Gradients:
        """Return the gradient of the mean loss over the training examples that count.

        Dropout is off: its noise is an error of the mini-batches.
        """
        total: Gradients = {}
        with _on_a_copy(self.task):
            for module in self.task.model.modules():
                if not isinstance(module, _BatchNorm):
                    module.training = False
            for batch in self.examples:
                share = count_examples(batch) / self.example_count
                for name, grad in self._gradient(batch).items():
                    total[name] = total.get(name, 0.0) + share * grad.double()
        return total

    def _gradient(self, batch: Any) -> Gradients:
        params = dict(self.task.model.named_parameters())
        with torch.enable_grad():
            loss = self.task.loss(batch)
            grads = torch.autograd.grad(
                loss, [params[name] for name in self.names], materialize_grads=True
            )
        return dict(zip(self.names, grads, strict=True))


@contextmanager
def _on_a_copy(task: Task) -> Iterator[None]:
    """Give the task a copy of its model within the block."""
    model = task.model
    task.model = copy.deepcopy(model)
    try:
        yield
    finally:
        task.model = model


def halve(batch: Any) -> tuple[Any, Any, float]:
    """Return the first and the second half of a batch, and which share of it the first is.

    Raises:
        SpecError: if its parts are not tensors with a row for each example.
    """
    count = len(next(_tensors(batch)))
    half = count // 2
    if count < 2 or any(len(tensor) != count for tensor in _tensors(batch)):
        raise SpecError(
            "half-batch Kalman needs batches of at least 2 examples, whose tensors have a row "
            "for each example"
        )
    return _sliced(batch, slice(0, half)), _sliced(batch, slice(half, count)), half / count


def _tensors(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors of a batch: it is one, or a table or list of them, also nested."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        yield from itertools.chain.from_iterable(map(_tensors, batch.values()))
    elif isinstance(batch, Sequence) and not isinstance(batch, str):
        yield from itertools.chain.from_iterable(map(_tensors, batch))
    else:
        raise SpecError(f"a batch has a part that is a {type(batch).__name__}, not a tensor")


def _sliced(batch: Any, rows: slice) -> Any:
    if isinstance(batch, Tensor):
        return batch[rows]
    if isinstance(batch, Mapping):
        return {name: _sliced(part, rows) for name, part in batch.items()}
    parts = [_sliced(part, rows) for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
