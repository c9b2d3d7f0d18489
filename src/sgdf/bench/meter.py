"""What steps return: gathered without making the device wait, and judged for divergence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .processes import Processes


class Meter:
    """The numbers of the steps since the last reading, and their sums over the epoch.

    Args:
        diverges_at: how many times its first size (at least 1) a number may reach.
        processes: the numbers are means over these.
    """

    def __init__(self, diverges_at: float, processes: Processes) -> None:
        self.diverges_at, self.processes = diverges_at, processes
        self.pending: list[dict[str, Tensor | float]] = []
        self.limits: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Take the numbers of one batch; not every batch need have all of them."""
        self.pending.append(
            {
                name: value.detach() if isinstance(value, Tensor) else value  # drops its graph
                for name, value in values.items()
            }
        )

    def read(self) -> tuple[dict[str, float], int | None]:
        """Return the means since the last reading, and how many batches ago it diverged."""
        last = len(self.pending) - 1
        rows = self._floats()
        self.pending = []
        means, ago = {}, None
        for name in dict.fromkeys(name for row in rows for name in row):
            places = [(place, row[name]) for place, row in enumerate(rows) if name in row]
            values = self.processes.mean(torch.tensor([v for _, v in places], dtype=torch.float64))
            numbers = values.tolist()
            limit = self.limits.setdefault(name, self.diverges_at * max(1.0, abs(numbers[0])))
            for (place, _), number in zip(places, numbers, strict=True):
                if not math.isfinite(number) or abs(number) > limit:
                    ago = max(ago or 0, last - place)
                    break
            total = sum(numbers)
            self.totals[name] = self.totals.get(name, 0.0) + total
            self.counts[name] = self.counts.get(name, 0) + len(numbers)
            means[name] = total / len(numbers)
        return means, ago

    def epoch(self) -> dict[str, float]:
        """Return the means over the epoch, and begin the next one."""
        means = {name: total / self.counts[name] for name, total in self.totals.items()}
        self.totals, self.counts = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return all of it, as plain data."""
        return {
            "pending": self._floats(),
            "limits": dict(self.limits),
            "totals": dict(self.totals),
            "counts": dict(self.counts),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        for name, value in state.items():
            setattr(self, name, value)

    def _floats(self) -> list[dict[str, float]]:
        return [{name: float(value) for name, value in row.items()} for row in self.pending]
