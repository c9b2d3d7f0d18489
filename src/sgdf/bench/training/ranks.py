"""The processes that train one run together: this one alone, or those that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import StoreError, first_line

T = TypeVar("T")
LONGEST_WAIT = timedelta(days=7)
"""How long the others wait while rank 0 evaluates, which may take hours. They need not wait for a
process that has died: torchrun ends them."""


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
            # With gloo for what is on the CPU, nccl for CUDA.
            dist.init_process_group(timeout=LONGEST_WAIT)
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

    def together(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns in this process, once it has ended in all of them.

        So a process in which it failed does not let the others wait for it where they communicate
        next, and the first one, which writes the records, knows why.

        Raises:
            StoreError: if it failed with one in another process.
            RuntimeError: if it failed otherwise in another process.
        """
        try:
            result = work()
        except Exception as error:
            self.gather((isinstance(error, StoreError), first_line(error)))
            raise
        for rank, failure in enumerate(self.gather(None)):
            if failure:
                is_of_store, line = failure
                kind = StoreError if is_of_store else RuntimeError
                raise kind(f"in process {rank}: {line}")
        return result

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

    def shared_means(self, means: dict[str, float], examples: int) -> dict[str, float]:
        """Return the means over the examples of all processes, given those of this one."""
        values = [*(mean * examples for mean in means.values()), float(examples)]
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums)
        *totals, count = sums.tolist()
        return {name: total / count for name, total in zip(means, totals, strict=True)}

    def share_buffers(self, model: nn.Module) -> None:
        """Give every process the buffers that rank 0 has, such as BatchNorm's statistics."""
        for buffer in model.buffers():
            dist.broadcast(buffer.detach(), src=0)

    def parallel(self, model: nn.Module) -> nn.Module:
        """Return the model as the processes train it together.

        One network is wrapped, so that its gradients are means over the processes. Several networks
        begin equal and are returned as they are; ``average_gradients`` does the rest. Torch's
        wrapper waits in each backward pass for the gradients of all networks that took part in the
        forward pass, but a task updates one network at a time.
        """
        if self.count == 1:
            return model
        if has_several_networks(model):
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)
            return model
        return DistributedDataParallel(model)

    def average_gradients(self, params: Sequence[Tensor]) -> None:
        """Replace the gradients of parameters by their means over the processes, all at once.

        A gradient that only some processes have counts as zero in the others.
        """
        sizes = [param.numel() for param in params]
        found = [params[0].new_tensor([param.grad is not None for param in params])]
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        flat = torch.cat([*(gradient.detach().flatten() for gradient in own), *found])
        dist.all_reduce(flat)
        *means, counts = torch.split(flat / self.count, [*sizes, len(params)])
        for param, mean, count in zip(params, means, counts.tolist(), strict=True):
            if count:
                param.grad = mean.view_as(param).to(param.dtype)

    def own_buffers(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the buffers of this process if each has its own, as with several networks.

        Torch's wrapper gives those of rank 0 to all. Here they stay apart: evaluations and the
        saved model have those of rank 0, and a resumed run gives each process its own again.
        """
        if self.count == 1 or not has_several_networks(model):
            return {}
        params = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        state = model.state_dict()
        return {name: value.cpu() for name, value in state.items() if name not in params}

    def without_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Do not exchange gradients within the block."""
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def has_several_networks(model: nn.Module) -> bool:
    """Return whether a model is only a container of networks that are trained on their own."""
    return isinstance(model, nn.ModuleDict | nn.ModuleList)


def uses_cuda(device: str) -> bool:
    """Return whether a device is one of CUDA's."""
    return torch.device(device).type == "cuda"
