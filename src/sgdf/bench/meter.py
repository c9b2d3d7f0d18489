"""What steps return: gathered without making the device wait, and judged for divergence."""

from __future__ import annotations

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
        self.pending: list[dict[str, Tensor]] = []
        self.limits: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.count = 0

    def add(self, values: dict[str, Tensor]) -> None:
        """Take the numbers of one batch, without the graphs they come from."""
        self.pending.append({name: torch.as_tensor(v).detach() for name, v in values.items()})

    def read(self) -> tuple[dict[str, float], int | None]:
        """Return the means since the last reading, and how many batches ago it diverged."""
        names = list(self.pending[0])
        rows = torch.stack([torch.stack([row[name] for name in names]) for row in self.pending])
        values = self.processes.mean(rows.to(torch.float64)).cpu()
        self.pending = []
        if not self.limits:
            sizes = values[0].abs().clamp(min=1) * self.diverges_at
            self.limits = dict(zip(names, sizes.tolist(), strict=True))
        limits = values.new_tensor([self.limits[name] for name in names])
        sound = (values.abs() <= limits).all(1)  # NaN is not
        ago = None if sound.all() else len(sound) - 1 - int(sound.int().argmin())
        for name, total in zip(names, values.sum(0).tolist(), strict=True):
            self.totals[name] = self.totals.get(name, 0.0) + total
        self.count += len(values)
        return dict(zip(names, values.mean(0).tolist(), strict=True)), ago

    def epoch(self) -> dict[str, float]:
        """Return the means over the epoch, and begin the next one."""
        means = {name: total / self.count for name, total in self.totals.items()}
        self.totals, self.count = {}, 0
        return means

    def state(self) -> dict[str, Any]:
        """Return all of it, as data that ``weights_only`` loads."""
        return {name: getattr(self, name) for name in ("pending", "limits", "totals", "count")}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        for name, value in state.items():
            setattr(self, name, value)
