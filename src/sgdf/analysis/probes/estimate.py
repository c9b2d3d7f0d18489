"""The probe ``estimate``: how near gradient, running mean and filter are to the true gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...bench.training.probe import Moment
from ..estimator.filters import Filtered
from ..examples import count_examples, training_batches
from .filter_beside import FilterBeside, all_gradients, join


class Estimate:
    """Cosine and relative squared error against the gradient of many examples.

    Three estimates are measured: the raw gradient of the step's batch, its running mean (EMA,
    corrected for its start at zero) and SGDF's estimate. Both filters see every gradient of the
    run, whatever its optimizer is, and take no part in it. The examples are training examples,
    always the same, without augmentation. Their gradient is taken as in training, with the
    statistics of each batch in BatchNorm and with dropout.

    Args:
        examples: how many.
        batch_size: in how many at a time their gradient is computed; batches of the size that
            the run has make BatchNorm do the same as in training.
        betas: of the filter; the running mean has the first.
    """

    def __init__(
        self,
        examples: int = 1024,
        batch_size: int = 128,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        if min(examples, batch_size) < 1:
            raise ValueError("examples and batch_size must be at least 1")
        self.examples, self.batch_size = examples, batch_size
        self.beside = FilterBeside(betas)
        self._seen: Filtered | None = None  # of the step that was watched last
        self._batches: list[Any] = []

    def watch(self, moment: Moment) -> None:
        """Filter the gradient of a step."""
        self._seen = self.beside.see(moment.optimizer, join(all_gradients(moment).values()))

    def __call__(self, moment: Moment) -> dict[str, float]:
        """Return the numbers of this step."""
        assert self._seen is not None, "watch sees each step before"
        if not self._batches:
            found = training_batches(moment.task, self.examples, self.batch_size)
            # A last one of a few examples would have strange statistics in BatchNorm.
            whole = [batch for batch in found if count_examples(batch) == self.batch_size]
            self._batches = whole or found
        truth = _mean_gradient(moment, self._batches)
        estimates = {
            "raw": self._seen.corrected_mean + self._seen.residual,
            "ema": self._seen.corrected_mean,
            "sgdf": self._seen.estimate,
        }
        cosines = {f"cosine_{name}": _cosine(one, truth) for name, one in estimates.items()}
        errors = {f"error_{name}": _error(one, truth) for name, one in estimates.items()}
        return {**cosines, **errors}

    def state(self) -> dict[str, Any]:
        """Return the state of the filter."""
        return self.beside.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.beside.load_state(state)


def _mean_gradient(moment: Moment, batches: Sequence[Any]) -> Tensor:
    """Return the gradient of the mean loss over all examples, as one row."""
    sums, weight = all_gradients(moment), 0
    named = dict(moment.task.model.named_parameters())
    trained = {name: named[name] for name in sums if named[name].requires_grad}
    sums = {name: torch.zeros_like(one) for name, one in sums.items()}
    with torch.enable_grad(), _keeping_statistics(moment.task.model):
        for batch in batches:
            count, loss = count_examples(batch), moment.task.loss(batch)
            found = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
            for name, one in zip(trained, found, strict=True):
                sums[name] += count * one
            weight += count
    return join(sums.values()) / weight


@contextmanager
def _keeping_statistics(model: nn.Module) -> Iterator[None]:
    """Let BatchNorm use the statistics of a batch without adding them to its running ones."""
    tracking: list[Any] = [
        module for module in model.modules() if getattr(module, "track_running_stats", False)
    ]
    for module in tracking:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True


def _cosine(one: Tensor, other: Tensor) -> float:
    one, other = one.double(), other.double()
    return float(one @ other / (one.norm() * other.norm()))


def _error(estimate: Tensor, truth: Tensor) -> float:
    """Return the squared distance from the truth, relative to its square."""
    truth = truth.double()
    return float((estimate.double() - truth).square().sum() / truth.square().sum())
