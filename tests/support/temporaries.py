"""How many bytes of temporaries operations of torch hold at once."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakTemporaries(TorchDispatchMode):
    """Counts the memory that was allocated while it is active and is still in use.

    ``peak`` is the largest number of bytes; what a step leaves in its state is part of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._known: set[int] = set()
        self._new: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # torch's signature
        for tensor in self._tensors((args, kwargs)):
            storage = StorageWeakRef(tensor.untyped_storage())
            if storage.cdata not in self._new:
                self._known.add(storage.cdata)
        result = func(*args, **(kwargs or {}))
        for tensor in self._tensors(result):
            storage = StorageWeakRef(tensor.untyped_storage())
            if storage.cdata not in self._known:
                self._new[storage.cdata] = storage, tensor.untyped_storage().nbytes()
        self._new = {key: row for key, row in self._new.items() if not row[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._new.values()))
        return result

    @staticmethod
    def _tensors(values: Any) -> list[torch.Tensor]:
        return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
