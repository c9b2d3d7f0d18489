"""The errors of estimates against the gradient that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .mini_batches import Gradients
from .shadow_filter import Observation, ShadowFilter

Observations = dict[str, Observation]
"""By the parameter's name."""


class Errors(NamedTuple):
    """The error of an estimate, as squared norms: ``mse`` is ``squared_bias`` plus ``variance``."""

    squared_bias: float
    """Free of the part that the finite number of mini-batches adds to it; an unbiased estimate,
    which may therefore be a little below 0."""
    variance: float
    mse: float

    def __add__(self, other: Any) -> Errors:
        """Return the errors of two tensors together."""
        return Errors(*(one + more for one, more in zip(self, other, strict=True)))


class ErrorSums:
    """The errors of estimates, added up as they come.

    Args:
        target: what is estimated.
    """

    def __init__(self, target: Tensor) -> None:
        self.target = target.double()
        self.total, self.squares, self.count = torch.zeros_like(self.target), 0.0, 0

    def add(self, estimate: Tensor) -> None:
        """Take one more estimate."""
        error = estimate.double() - self.target
        self.total += error
        self.squares += float(error.square().sum())
        self.count += 1

    def errors(self) -> Errors:
        """Return the errors of at least two estimates."""
        mse = self.squares / self.count
        squared_mean = float((self.total / self.count).square().sum())
        variance = (mse - squared_mean) * self.count / (self.count - 1)
        return Errors(squared_mean - variance / self.count, variance, mse)


class Watch:
    """Shadow filters that watch one training, each with a state for every tensor.

    Args:
        filters: which; their names differ.
    """

    def __init__(self, filters: Sequence[ShadowFilter]) -> None:
        self.filters = {one.name: one for one in filters}
        self.states: dict[str, dict[str, Any]] = {name: {} for name in self.filters}

    def advance(self, seen: Observations) -> None:
        """Let all filters take a step on the gradients of the training."""
        for name, one in self.filters.items():
            states = self.states[name]
            for tensor, observation in seen.items():
                states[tensor] = one.step(states.get(tensor), observation)[1]

    def estimate(self, name: str, tensor: str, observation: Observation) -> Tensor:
        """Return a filter's estimate if this were the next gradient; its state stays."""
        return self.filters[name].step(self.states[name].get(tensor), observation)[0]


def measure_errors(
    watch: Watch, target: Gradients, draws: Iterable[Observations]
) -> dict[str, dict[str, Errors]]:
    """Return the errors of each filter for each tensor, at one step of a training.

    Every mini-batch is shown to every filter in the state that it has before the step. The
    variance is therefore that of the next estimate, given the past: noise of earlier steps that
    a filter still has in its state counts as bias, as does its lag. The mean squared error
    contains everything.

    Args:
        watch: the filters; their states stay.
        target: the full-batch gradient.
        draws: the gradients of at least two mini-batches, drawn anew at the same parameters.
    """
    sums = {
        name: {tensor: ErrorSums(grad) for tensor, grad in target.items()} for name in watch.filters
    }
    for seen in draws:
        for name, by_tensor in sums.items():
            for tensor, one in by_tensor.items():
                one.add(watch.estimate(name, tensor, seen[tensor]))
    return {
        name: {tensor: one.errors() for tensor, one in by_tensor.items()}
        for name, by_tensor in sums.items()
    }


def total_errors(by_tensor: Iterable[Errors]) -> Errors:
    """Return the errors of all tensors together: squared norms add up."""
    total = Errors(0.0, 0.0, 0.0)
    for errors in by_tensor:
        total += errors
    return total
