"""Training examples that stay the same, for measurements of a trained model's loss."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..bench.errors import SpecError
from ..bench.tasks import Supervised, Task
from ..bench.tasks.cifar.data import deal_by_class
from ..bench.training.randomness import seeded
from .example_counts import count_examples


def training_batches(task: Task, count: int, batch_size: int = 250, seed: int = 0) -> list[Any]:
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
        return [(inputs[part], targets[part]) for part in torch.split(chosen, batch_size)]
    with seeded(seed):  # a loader may shuffle or augment with the random numbers of all
        batches = task.batches(min(batch_size, count), order)
        return list(itertools.islice(batches, -(-count // batch_size)))


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
