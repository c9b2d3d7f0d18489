"""Features that are kept one by one, up to a limit: neighbours cannot be found in sums."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class KeptFeatures:
    """The first features of a set.

    Args:
        most: how many are kept; later ones are dropped.
        dtype: what they are kept in; ``torch.float16`` halves the memory.
    """

    def __init__(self, most: int, dtype: torch.dtype = torch.float32) -> None:
        self.most = most
        self.dtype = dtype
        self._parts: list[Tensor] = []
        self.count = 0

    def add(self, features: Tensor) -> None:
        """Keep those of the features (n, size) that there is room for."""
        part = features[: self.most - self.count].detach()
        if len(part):
            self._parts.append(part.to("cpu", self.dtype, copy=True))
            self.count += len(part)

    @property
    def features(self) -> Tensor:
        """All that are kept (count, size)."""
        if len(self._parts) > 1:
            self._parts = [torch.cat(self._parts)]
        return self._parts[0] if self._parts else torch.empty(0, 0, dtype=self.dtype)

    def state(self) -> dict[str, Any]:
        """Return numbers and tensors from which ``of_state`` continues to the bit."""
        return {"most": self.most, "features": self.features}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> KeptFeatures:
        """Return what was kept when ``state`` was called."""
        kept = cls(state["most"], state["features"].dtype)
        kept.add(state["features"])
        return kept
