"""One evaluation of a task: in evaluation mode, with random numbers of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from ..spec.run import Training
from ..store.records import Figures
from ..tasks import Task
from ..tasks.long_evaluation import LongEvaluation
from ..tasks.metric import Metric
from .meter import as_numbers
from .randomness import seeded
from .ranks import Ranks, has_several_networks
from .update import precision

T = TypeVar("T")


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a task on the splits that the protocol looks at.

    Attributes:
        task: the task.
        model: the model to evaluate, which need not be the one that is trained.
        metric: what the best epoch is chosen by.
        splits: the splits.
        settings: those of the training.
        device: where the model is.
        seed: of the random numbers that evaluations draw: the same in each.
        ranks: the processes that evaluate together; without it, this one does all.
    """

    task: Task
    model: nn.Module
    metric: Metric
    splits: tuple[str, ...]
    settings: Training
    device: torch.device
    seed: int
    ranks: Ranks | None = None

    def metrics(
        self, costly: bool, first: bool, evaluation: LongEvaluation
    ) -> dict[str, Figures] | None:
        """Return the metrics of each split.

        Args:
            costly: include those that the task finds too costly for every evaluation.
            first: of the run. It needs the metric that decides, so that a wrong name is noticed.
            evaluation: what the task tells how far it is.

        Returns:
            The metrics; None if the evaluation has to be done again as a costly one.

        Raises:
            ValueError: if the metric that decides is not among them.
        """
        found: dict[str, Figures] = {}
        if self.ranks:
            self.ranks.share_buffers(self.model)
        with self._evaluating(), _offered(self.task, evaluation):
            self._together(lambda: self.task.begin_evaluation(costly))
            for split in self.splits:
                found[split] = self._evaluate(split)
                if costly:
                    found[split] |= self._evaluate_costly(split)
                missing = self.metric.name not in found[split]
                if missing and costly:
                    raise ValueError(
                        f"the task selects by {self.metric.name!r}, but evaluates "
                        f"{', '.join(found[split])}"
                    )
                if missing and first:
                    return None
        return found

    def _together(self, work: Callable[[], T]) -> T:
        return self.ranks.together(work) if self.ranks else work()

    def _evaluate(self, split: str) -> Figures:
        """Return the task's metrics on a split, of which this process may evaluate a share."""
        ranks = self.ranks
        if not ranks:
            return as_numbers(self.task.evaluate(split))

        def share() -> tuple[Figures, int]:
            means, examples = self.task.evaluate_share(split, ranks.rank, ranks.count)
            return as_numbers(means), examples

        return ranks.shared_means(*ranks.together(share))

    def _evaluate_costly(self, split: str) -> Figures:
        """Return the task's costly metrics; of several processes the first computes them alone."""
        is_first = not self.ranks or self.ranks.rank == 0
        found = self._together(
            lambda: as_numbers(self.task.evaluate_costly(split)) if is_first else {}
        )
        shared: Figures = self.ranks.broadcast(found) if self.ranks else found
        return shared

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Let the task evaluate the model, and restore its own, modes and random numbers."""
        before, self.task.model = self.task.model, self.model
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        mixed = precision(self.settings, self.device)
        try:
            with torch.no_grad(), mixed, seeded(self.seed):
                yield
        finally:
            for module, training in modes:
                module.training = training
            self.task.model = before


def can_be_shared(task: Task, ranks: Ranks) -> bool:
    """Return whether several processes evaluate a task together, a share each.

    Of several networks each process has its own buffers, and those of the first are evaluated.
    """
    has_shares = type(task).evaluate_share is not Task.evaluate_share
    return ranks.count > 1 and has_shares and not has_several_networks(task.model)


@contextmanager
def _offered(task: Task, evaluation: LongEvaluation) -> Iterator[None]:
    """Let a task tell how far its evaluation is; afterwards that has no effect again."""
    before = task.evaluation
    if not isinstance(before, LongEvaluation):  # a task of before may use the name otherwise
        yield
        return
    task.evaluation = evaluation
    try:
        yield
    finally:
        task.evaluation = before
