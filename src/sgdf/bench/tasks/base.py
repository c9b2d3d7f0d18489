"""The contract between a task and the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import SpecError
from .long_evaluation import LongEvaluation
from .metric import Metric


def draw_classes(scores: Tensor) -> Tensor:
    """Return a class for each row of scores, drawn from their softmax."""
    return torch.multinomial(scores.detach().float().softmax(-1), 1).squeeze(-1)


class Batches(Protocol):
    """The batches of one epoch: they can be counted and gone through.

    They may also have ``skip(count)``, which returns the batches without the first ``count`` of
    them. A resumed run then does not load again what it has used. Only batches that do not depend
    on those before them can be skipped.

    With ``dealt(rank, count)``, which returns every ``count``-th of them from number ``rank`` on,
    each of several processes loads only its own.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Update(Protocol):
    """Lets an optimizer take a step on a loss.

    This is the loop's part of a step, with precision, accumulation, clipping and several
    processes: ``backward`` into the parameters of that optimizer alone, the optimizer's step, and
    the clearing of its gradients.
    """

    def __call__(self, loss: Tensor, optimizer: str = "model") -> None:
        """Run backward from the loss and take the step."""


class Task(ABC):
    """A model, its data, and how one is fitted to the other.

    Most tasks write ``loss``, ``batches`` and ``evaluate``. One that makes several updates in a
    step, or none, writes ``step`` instead of ``loss``.

    A task is made with the random seed of its run set, so that its model is initialised
    by it. The data must not depend on the seed. Keyword arguments of its constructor are
    the options that an experiment can give; they need plain defaults (numbers, strings, lists).

    Attributes:
        model: all that is trained. Other networks belong in it too, in a ``ModuleDict``.
        metric: what the best epoch is chosen by. Declare it on the class, so that it is known
            before any data are loaded.
        splits: the data that ``evaluate`` knows. A report shows ``"test"``, which must be among
            them; without ``"validation"`` only the protocols ``"paper"`` and ``"last"`` are
            possible.
        selects: the older way to name the metric.
        largest: the older way to state its direction.
        sequential: whether each batch continues where the one before it ended. Such batches
            can be neither accumulated nor dealt out to several processes.
        accumulates: whether the batch of a step can be computed in parts. It cannot where one
            network has to take its step before the next one learns from it.
        digest: of the data, where they come from files that could be others.
        averaged: the name of the part of the model that ``train.ema_decay`` averages, as in
            ``model.get_submodule``; all of it by default.
        evaluation: what a long evaluation tells how far it is; the loop sets it.
        device: where the model is, and where batches have to be.
    """

    model: nn.Module
    metric: Metric | None = None
    splits: tuple[str, ...] = ("validation", "test")
    selects: str = "loss"
    largest: bool | None = None
    sequential: bool = False
    accumulates: bool = True
    digest: str = ""
    averaged: str = ""
    evaluation: LongEvaluation = LongEvaluation()
    device: torch.device = torch.device("cpu")

    @classmethod  # noqa: B027  # most have nothing to fetch
    def provide(cls, **options: Any) -> None:
        """Fetch and check the data that a task with these options needs.

        Called once before any run begins.

        Raises:
            SpecError: if an option is invalid.
            StoreError: if data are missing and cannot be fetched.
        """

    @classmethod  # noqa: B027  # most take any option of the right type
    def check(cls, **options: Any) -> None:
        """Refuse invalid options without loading data; called when an experiment is read.

        Raises:
            SpecError: names the option and what is allowed.
        """

    @classmethod
    def splits_with(cls, **options: Any) -> tuple[str, ...]:
        """Return the splits that a task with these options has, without loading data.

        The protocol of an experiment is checked against them when it is read.
        """
        return splits_of(cls)

    def to(self, device: torch.device) -> None:
        """Move the model, and data that are held whole, to the device."""
        self.device = device
        self.model.to(device)

    def optimizers(self, make: Callable[..., Optimizer]) -> Mapping[str, Optimizer]:
        """Return the optimizers by name, each made by ``make`` for its parameters.

        ``make(params)`` has the options of the spec; ``make(params, lr=0.1)`` has another lr.
        """
        return {"model": make(self.model.parameters())}

    @abstractmethod
    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return an epoch's batches: anything with a length that can be gone through.

        They are iterated once. A run that resumes in the middle of an epoch skips the batches
        that it has used (see ``Batches``) or loads them again. A ``DataLoader`` will do.

        Args:
            batch_size: examples in a batch, of which ``accumulate`` make up a step.
            order: a generator for shuffling, seeded anew for each epoch.
        """

    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss of one batch. Move the batch to ``self.device`` if it is not there.

        ``self.log("accuracy", value)`` adds a number to the log of the step.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither loss(batch) nor a step")

    def log(self, name: str, value: Tensor | float) -> None:
        """Add a number to the log of this step; called within ``loss``."""
        self.__dict__.setdefault("_logged", {})[name] = value

    def step(self, batch: Any, update: Update) -> Mapping[str, Tensor | float]:
        """Train on one batch, and return numbers to log.

        By default that is one update on ``loss(batch)``. A task of several networks writes its
        own: it calls ``update(loss, name)`` once for each optimizer that has its turn, and
        returns numbers such as ``{"loss": loss}``, not necessarily all of them in every step.
        The run has diverged where one is not finite, or far above its first value.
        """
        logged: dict[str, Tensor | float] = self.__dict__.setdefault("_logged", {})
        logged.clear()
        loss = self.loss(batch)
        if not isinstance(loss, Tensor):
            raise TypeError(f"loss(batch) returned {type(loss).__name__}, not a Tensor")
        numbers = {"loss": loss, **logged}
        update(loss)
        return numbers

    def sampled_loss(self, batch: Any) -> tuple[Tensor, int]:
        """Return the mean loss on targets drawn from the model's predictions, and their number.

        Only optimizers that measure curvature by it ask for it (SophiaG), right after ``step``
        with the same batch.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no sampled_loss(batch), which this optimizer needs"
        )

    def begin_evaluation(self, costly: bool) -> None:  # noqa: B027  # most have nothing to share
        """Prepare what the evaluations of all splits share; called before the first of them.

        Called in every process that evaluates.

        Args:
            costly: whether ``evaluate_costly`` follows.
        """

    @abstractmethod
    def evaluate(self, split: str) -> dict[str, float]:
        """Return metrics on one of ``splits``.

        The model is in evaluation mode, without gradients, and the random numbers drawn
        are the same each time.
        """

    def evaluate_share(self, split: str, rank: int, count: int) -> tuple[dict[str, float], int]:
        """Return metrics on one of ``count`` equal shares of a split, and its number of examples.

        A task may have this if all its metrics are means over examples. Several processes then
        evaluate one share each, instead of all but the first waiting, and the metrics are the means
        over all examples. One process calls ``evaluate``, which should come to the same.
        """
        raise NotImplementedError(f"{type(self).__name__} is evaluated by one process")

    def evaluate_costly(self, split: str) -> dict[str, float]:
        """Return more metrics, too costly for every evaluation.

        Called at the last epoch, and every ``train.costly_every`` epochs if that is set. Of several
        processes only the first calls it, also where all of them evaluate a share.
        """
        return {}

    def count_examples(self) -> Mapping[str, int]:
        """Return how many examples each split has, ``"train"`` included, for the report to show.

        Splits whose number is not known are left out.
        """
        return {}

    def train_on_validation(self) -> None:
        """Add the validation data to the training data, for the protocol of the paper."""
        raise NotImplementedError(f"{type(self).__name__} has no paper protocol")

    def describe_data(self) -> dict[str, str]:
        """Return what to record about the data, such as a digest of ``"data of test"``.

        Called once when a run begins or resumes. A report does not compare runs whose digests
        differ.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """Return whatever else later steps depend on (a hidden state, a count), as plain data."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027  # most have none
        """Continue from what ``state`` returned."""


def metric_of(task: Task | type[Task]) -> Metric:
    """Return the metric that a task, or a class of tasks, is judged by.

    Raises:
        SpecError: if its direction is neither stated nor known from the name.
    """
    if isinstance(task.metric, str) and task.selects == Task.selects:
        raise SpecError(f'metric = "{task.metric}": write metric = Metric("{task.metric}")')
    # A task of before may use the name for something else.
    declared = task.metric if isinstance(task.metric, Metric) else None
    metric = declared or Metric(task.selects, task.largest)
    _ = metric.is_maximized
    return metric


def splits_of(task: Task | type[Task]) -> tuple[str, ...]:
    """Return the splits that a task, or a class of tasks, can evaluate."""
    # A task of before may use the name for something else, such as its data by split.
    named = isinstance(task.splits, list | tuple) and all(isinstance(s, str) for s in task.splits)
    return tuple(task.splits if named else Task.splits)


def refuse_to_split(task: Task | type[Task], processes: int, accumulate: int) -> None:
    """Refuse to split the batches of a step where the task, or class of tasks, does not allow it.

    Args:
        task: says it.
        processes: that a batch is dealt out to.
        accumulate: the parts that each of them computes one after the other.

    Raises:
        SpecError: if batches continue each other, or cannot be accumulated.
    """
    parts = processes * accumulate
    if accumulate > 1 and not task.accumulates:
        raise SpecError(
            f"train.accumulate = {accumulate}: must be 1, since a network of this task has to take "
            "its step before the next one learns from it"
        )
    # Of a class, a property says nothing: only the instance has its value.
    if parts > 1 and task.sequential and not isinstance(task.sequential, property):
        raise SpecError(
            "each batch continues where the one before it ended, so none can be split into "
            f"{parts} parts (train.accumulate times the processes)"
        )
