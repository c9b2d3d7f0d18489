"""The processes that train one run together: this one alone, or those that torchrun started."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Ranks:
    """How many processes there are, and what they say to each other.

    With one process nothing is said, and torch.distributed is not touched.

    Args:
        alone: whatever torchrun has started, this one is for itself.

    Attributes:
        rank: which of them this is; 0 keeps the records.
        count: how many there are.
    """

    def __init__(self, alone: bool = False) -> None:
        known = {} if alone else os.environ
        self.count = int(known.get("WORLD_SIZE", "1"))
        self.rank = int(known.get("RANK", "0"))
        self.local_rank = int(known.get("LOCAL_RANK", "0"))

    def __enter__(self) -> Ranks:
        if self.count > 1:
            if torch.cuda.is_available():
                torch.cuda.set_device(self.local_rank)
            dist.init_process_group()  # gloo for what is on the CPU, nccl for CUDA
        return self

    def __exit__(self, *error: object) -> None:
        if self.count > 1:
            dist.destroy_process_group()

    def device(self, name: str) -> torch.device:
        """Return this process's own device of a kind."""
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", self.local_rank)
        return device

    def broadcast(self, value: Any) -> Any:
        """Return the first process's value to all of them."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes to each of them."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def means(self, values: list[float]) -> list[float]:
        """Return the mean of each number over the processes."""
        if self.count == 1:
            return values
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums)
        means: list[float] = (sums / self.count).tolist()
        return means

    def parallel(self, model: nn.Module) -> nn.Module:
        """Return the model so that its gradients are the mean over the processes."""
        if self.count == 1:
            return model
        if isinstance(model, nn.ModuleDict | nn.ModuleList):
            raise ValueError("several networks in one task cannot be trained under torchrun")
        return DistributedDataParallel(model)

    def without_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Keep gradients to this process meanwhile."""
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def uses_cuda(device: str) -> bool:
    """Return whether a device is one of CUDA's."""
    return torch.device(device).type == "cuda"
