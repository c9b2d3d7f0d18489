"""Training examples that stay the same, for measurements of a trained model's loss."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from ..bench.errors import SpecError
from ..bench.tasks import Supervised, Task
from ..bench.tasks.cifar.data import deal_by_class
from ..bench.training.randomness import seeded
from .example_counts import count_examples


class TrainingBatches(Sequence[Any]):
    """Batches of a task that ``task.loss`` accepts.

    A task may carry a state from one batch to the next, such as a hidden state. So every pass over
    the batches puts the task back into the state that it had when they were made: the losses of
    all passes are the same.

    Args:
        task: the task, in the state that the first batch is to begin with.
        batches: its batches.
    """

    def __init__(self, task: Task, batches: Sequence[Any]) -> None:
        self._task, self._batches = task, batches
        self._state = copy.deepcopy(task.state())

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self._batches[index]

    def __iter__(self) -> Iterator[Any]:
        self._task.load_state(copy.deepcopy(self._state))
        yield from self._batches


def training_batches(
    task: Task, count: int, batch_size: int = 250, seed: int = 0
) -> TrainingBatches:
    """Return training examples in batches that ``task.loss`` accepts, the same for every run.

    A task that holds its data in memory (``Supervised``) gives them as they are, without
    augmentation, and as many of each class as can be. Of any other task they are the first batches
    of an epoch, with the augmentation that it trains with.

    Args:
        task: the task of a run.
        count: how many examples; all if there are fewer.
        batch_size: examples in a batch; the last one may have fewer.
        seed: chooses the examples.

    Raises:
        SpecError: if the task has no loss of a batch.
    """
    if type(task).loss is Task.loss:
        raise SpecError(
            f"{type(task).__name__} has no loss(batch): it trains in a step of its own, so no loss "
            "of its model can be measured"
        )
    order = torch.Generator().manual_seed(seed)
    if isinstance(task, Supervised):
        inputs, targets = task.data["train"]
        chosen = _choose(targets, order)[:count].to(inputs.device)
        parts = torch.split(chosen, batch_size)
        return TrainingBatches(task, [(inputs[part], targets[part]) for part in parts])
    with seeded(seed):  # a loader may shuffle or augment with the random numbers of all
        batches = task.batches(min(batch_size, count), order)
        return TrainingBatches(task, list(itertools.islice(batches, -(-count // batch_size))))


def describe_examples(task: Task, batches: Sequence[Any]) -> str:
    """Return in words which examples ``training_batches`` has returned."""
    if isinstance(task, Supervised):
        count = sum(map(count_examples, batches))
        return f"{count:,} training examples, without augmentation"
    return f"the first batches of an epoch ({len(batches)}), as the task makes them for training"


def mean_loss(task: Task, batches: Sequence[Any]) -> float:
    """Return the mean loss over examples, of the task's model as it is.

    No gradient is computed. The loss draws the same random numbers each time, and the state that
    a task carries from one batch to the next is the same before and after.
    """
    state, total, weight = task.state(), 0.0, 0
    try:
        with torch.no_grad(), seeded(0):
            for batch in batches:
                count = _weight(batch)
                total, weight = total + count * float(task.loss(batch)), weight + count
    finally:
        task.load_state(state)
    return total / weight


def _weight(batch: Any) -> int:
    """Return how many examples a batch has; batches that cannot be counted weigh the same."""
    try:
        return count_examples(batch)
    except ValueError:
        return 1


def _choose(targets: Tensor, order: torch.Generator) -> Tensor:
    """Return an order of the examples by chance; classes take turns."""
    shuffled = torch.randperm(len(targets), generator=order)
    if targets.ndim != 1 or targets.is_floating_point() or bool((targets < 0).any()):
        return shuffled
    return shuffled[deal_by_class(targets.cpu()[shuffled])]
