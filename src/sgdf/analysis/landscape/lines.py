"""The straight line between the weights of two runs, and the barrier of the loss on it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..runs import AnalysedRun
from .slices import Loss, leaving_as_found

Statistics = Literal["recomputed", "interpolated"]
"""The statistics of BatchNorm between two networks: computed anew from the examples at
every point, or those of the two networks interpolated as the weights are."""


@dataclass(frozen=True)
class Line(AnalysedRun):
    """The line from the weights of a run to those of another one.

    Attributes:
        other: the run that it ends at; all else is of the run that it begins at.
    """

    other: AnalysedRun | None = None

    @classmethod
    def between(cls, start: AnalysedRun, end: AnalysedRun) -> Line:
        """Return the line between two runs."""
        return cls(**{**vars(start), "other": end})

    @property
    def end(self) -> AnalysedRun:
        """The run that it ends at."""
        assert self.other is not None, "made by Line.between"
        return self.other

    @property
    def key(self) -> str:
        """The keys of both runs."""
        return f"{super().key}-{self.end.key}"

    @property
    def name(self) -> str:
        """Both runs."""
        seeds = (self.run.seed, self.end.run.seed)
        if self.setting == self.end.setting:
            return f"{self.setting}, seeds {seeds[0]} and {seeds[1]}"
        return f"{super().name} – {self.end.name}"

    @property
    def weights(self) -> str:
        """The digests of both ends."""
        return f"{super().weights} {self.end.weights}"


def lines_between(runs: Sequence[AnalysedRun], within_settings: bool = True) -> list[Line]:
    """Return the lines between any two runs of the same task.

    Args:
        runs: the runs.
        within_settings: only between runs that differ in the seed alone.
    """
    return [
        Line.between(start, end)
        for start, end in itertools.combinations(runs, 2)
        if start.run.task == end.run.task and (start.setting == end.setting or not within_settings)
    ]


def line_losses(
    model: nn.Module,
    loss: Loss,
    end: Mapping[str, Tensor],
    positions: Sequence[float],
    statistics: Statistics = "recomputed",
) -> list[float]:
    """Return the loss on the line from a model to other weights; the model is left as it was.

    Args:
        model: where the line begins, at position 0.
        loss: returns the loss of the model over all examples.
        end: the ``state_dict`` of a network of the same shapes, at position 1.
        positions: where the loss is measured.
        statistics: what is done about BatchNorm.
    """
    start = {name: value.clone() for name, value in model.state_dict().items()}
    losses = []
    with leaving_as_found(model):
        for position in positions:
            for name, value in model.state_dict(keep_vars=True).items():
                if value.is_floating_point():
                    value.data.copy_(torch.lerp(start[name], end[name].to(value), position))
            if statistics == "recomputed":
                recompute_statistics(model, loss)
            losses.append(loss())
    return losses


def recompute_statistics(model: nn.Module, loss: Loss) -> None:
    """Set the statistics of BatchNorm to means over the batches that the loss sees.

    Args:
        model: a network in evaluation mode, in which it is left.
        loss: passes the examples through the network, in batches.
    """
    layers = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over all batches
            layer.train()
        loss()
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
            layer.eval()


def barrier(losses: Sequence[float]) -> float:
    """Return how far the loss on a line rises above the higher one of its ends.

    >>> barrier([1.0, 4.0, 2.0]), barrier([2.0, 1.0, 1.5])
    (2.0, 0.0)
    """
    return max(losses) - max(losses[0], losses[-1])
