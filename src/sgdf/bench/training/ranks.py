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
    """This process among those that train a run together, and their communication.

    With one process torch.distributed is not used.

    Args:
        alone: ignore the other processes that torchrun has started.

    Attributes:
        rank: the number of this process; rank 0 writes the records.
        count: the number of processes.
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
        """Return the device of this kind that belongs to this process."""
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", self.local_rank)
        return device

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0 in every process."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes in every process."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def has_lost_one(self, error: BaseException) -> bool:
        """Return whether an error says that another of the processes has died."""
        lost = isinstance(error, dist.DistError) or "gloo" in str(error)  # gloo has no class for it
        return self.count > 1 and isinstance(error, RuntimeError) and lost

    def means(self, values: list[float]) -> list[float]:
        """Return the mean of each number over the processes."""
        if self.count == 1:
            return values
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums)
        means: list[float] = (sums / self.count).tolist()
        return means

    def parallel(self, model: nn.Module) -> nn.Module:
        """Return the model wrapped so that gradients are means over the processes."""
        if self.count == 1:
            return model
        if isinstance(model, nn.ModuleDict | nn.ModuleList):
            raise ValueError("several networks in one task cannot be trained under torchrun")
        return DistributedDataParallel(model)

    def without_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Do not exchange gradients within the block."""
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def uses_cuda(device: str) -> bool:
    """Return whether a device is one of CUDA's."""
    return torch.device(device).type == "cuda"
