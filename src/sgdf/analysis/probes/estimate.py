"""The probe ``estimate``: how near gradient, running mean and filter are to the true gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...bench.training.probe import Moment
from ..estimator.filters import Filtered
from ..estimator.mini_batches import MiniBatches
from .filter_beside import FilterBeside, all_gradients, join


class Estimate:
    """Cosine and relative squared error against the gradient of many examples.

    Three estimates are measured: the raw gradient of the step's batch, its running mean (EMA,
    corrected for its start at zero) and SGDF's estimate. Both filters see every gradient of the
    run, whatever its optimizer is, and take no part in it. The examples are training examples,
    always the same, without augmentation. BatchNorm uses the statistics of each of their batches,
    as in training, and dropout is off: its noise is an error of the estimates.

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
        self._mini_batches: MiniBatches | None = None

    def watch(self, moment: Moment) -> None:
        """Filter the gradient of a step."""
        self._seen = self.beside.see(moment.optimizer, join(all_gradients(moment).values()))

    def __call__(self, moment: Moment) -> dict[str, float]:
        """Return the numbers of this step."""
        assert self._seen is not None, "watch sees each step before"
        truth = self._true_gradient(moment)
        estimates = {
            "raw": self._seen.corrected_mean + self._seen.residual,
            "ema": self._seen.corrected_mean,
            "sgdf": self._seen.estimate,
        }
        cosines = {f"cosine_{name}": _cosine(one, truth) for name, one in estimates.items()}
        errors = {f"error_{name}": _error(one, truth) for name, one in estimates.items()}
        return {**cosines, **errors}

    def _true_gradient(self, moment: Moment) -> Tensor:
        """Return the gradient of the mean loss over the examples, as one row."""
        gradients, params = all_gradients(moment), dict(moment.task.model.named_parameters())
        if self._mini_batches is None:
            names = [name for name in gradients if params[name].requires_grad]
            self._mini_batches = MiniBatches(moment.task, names, self.batch_size, self.examples)
        found = self._mini_batches.full_gradient()
        return join(found.get(name, torch.zeros_like(one)) for name, one in gradients.items())

    def state(self) -> dict[str, Any]:
        """Return the state of the filter."""
        return self.beside.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.beside.load_state(state)


def _cosine(one: Tensor, other: Tensor) -> float:
    one, other = one.double(), other.double()
    return float(one @ other / (one.norm() * other.norm()))


def _error(estimate: Tensor, truth: Tensor) -> float:
    """Return the squared distance from the truth, relative to its square."""
    truth = truth.double()
    return float((estimate.double() - truth).square().sum() / truth.square().sum())
