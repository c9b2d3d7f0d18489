"""The numbers that steps return: collected without waiting for the device, then averaged."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..store.records import Figures
from .ranks import Ranks


def as_numbers(metrics: Mapping[str, Any]) -> Figures:
    """Return the metrics of an evaluation as plain numbers."""
    if not isinstance(metrics, Mapping):
        returned = type(metrics).__name__
        raise TypeError(f"evaluate() returned {returned}, not metrics by name")
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value.detach() if isinstance(value, Tensor) else value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"the metric {name!r} is not a number: {error}") from error
    return numbers


class Meter:
    """The numbers of the steps since the last reading, and their sums over the epoch.

    Args:
        diverges_at: how many times its first size (at least 1) a number may reach.
        ranks: the processes that the numbers are means over.
    """

    def __init__(self, diverges_at: float, ranks: Ranks) -> None:
        self.diverges_at, self.ranks = diverges_at, ranks
        self.batches = 0
        self.pending: dict[str, list[tuple[int, Tensor | float]]] = {}
        self.limits: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Take the numbers of one batch; not every batch need have all of them."""
        self.batches += 1
        try:
            items = values.items()
        except AttributeError:
            returned = type(values).__name__
            raise TypeError(f"step() returned {returned}, not numbers by name") from None
        for name, value in items:
            if isinstance(value, Tensor):
                value = value.item() if value.is_cpu else value.detach()  # without its graph
            self.pending.setdefault(name, []).append((self.batches, value))

    def read(self) -> tuple[dict[str, float], int | None]:
        """Return the means since the last reading, and how many batches ago the run diverged."""
        means, diverged = {}, []
        for name, entries in self.pending.items():
            numbers = self.ranks.means([float(value) for _, value in entries])
            if name not in self.limits:
                limit = self.diverges_at * max(1.0, abs(numbers[0]))
                self.limits[name] = min(limit, sys.float_info.max)  # which infinity exceeds
            limit = self.limits[name]
            for (batch, _), number in zip(entries, numbers, strict=True):
                if not abs(number) <= limit:  # nor is NaN
                    diverged.append(batch)
                    break
            total = sum(numbers)
            self.totals[name] = self.totals.get(name, 0.0) + total
            self.counts[name] = self.counts.get(name, 0) + len(numbers)
            means[name] = total / len(numbers)
        ago = self.batches - min(diverged) if diverged else None
        self.batches, self.pending = 0, {}
        return means, ago

    def epoch(self) -> dict[str, float]:
        """Return the means over the epoch, and begin the next one."""
        means = {name: total / self.counts[name] for name, total in self.totals.items()}
        self.totals, self.counts = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the state of the meter as plain data."""
        pending = {
            name: [(batch, float(value)) for batch, value in entries]
            for name, entries in self.pending.items()
        }
        names = ("batches", "limits", "totals", "counts")
        return {"pending": pending, **{name: copy.copy(getattr(self, name)) for name in names}}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        for name, value in state.items():
            setattr(self, name, value)
