"""A step on a loss: precision, accumulation, clipping and scaling, the same for every task."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..catalog.optimizers import MeasuresCurvature, MeasuresLoss
from ..spec.run import PURE_BFLOAT16, Training
from ..tasks import Task
from .ranks import Ranks


def precision(
    settings: Training, device: torch.device, forward: bool = True
) -> AbstractContextManager[Any]:
    """Return the autocast context of the forward pass, or the one around everything else."""
    if settings.precision == "float32":
        return nullcontext()
    # Where the weights are bfloat16, autocast converts what the task's data bring in float32.
    name = "bfloat16" if settings.precision == PURE_BFLOAT16 else settings.precision
    return torch.autocast(device.type, getattr(torch, name), enabled=forward)


def clear_gradients(optimizer: Optimizer) -> None:
    """Do what ``zero_grad`` does, faster.

    Torch's own opens a record for the profiler, which takes 18 µs for the four tensors of a small
    network: a quarter of their step (benchmarks/bench_loop.py). A ``zero_grad`` of an optimizer's
    own may do more and is called.
    """
    if getattr(optimizer.zero_grad, "__func__", None) is not Optimizer.zero_grad:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = None


class LossUpdate:
    """The update that a task calls with a loss: the loop's side of ``tasks.Update``."""

    def __init__(
        self,
        settings: Training,
        optimizers: dict[str, Optimizer],
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.optimizers, self.accumulate = optimizers, settings.accumulate
        self.clip_norm = settings.clip_norm if settings.clip_norm < math.inf else None
        self.params = {
            name: [p for group in optimizer.param_groups for p in group["params"]]
            for name, optimizer in optimizers.items()
        }
        # Contexts and scalers without effect would still cost a part of a tiny task's step.
        self.mixes = settings.precision != "float32"
        self.scales = settings.precision == "float16"
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.scales, init_scale=2.0**16)
        self.outside = precision(settings, device, forward=False)
        for one in optimizers.values():
            if hasattr(one, "update_hessian") and not isinstance(one, MeasuresCurvature):
                raise TypeError(f"{type(one).__name__} has update_hessian but no hessian_every")
        self.curvature = [one for one in optimizers.values() if isinstance(one, MeasuresCurvature)]
        self.observers = {
            name: one for name, one in optimizers.items() if isinstance(one, MeasuresLoss)
        }
        # For probes.
        self.before_step: Callable[[str], None] | None = None
        self.after_step: Callable[[], None] | None = None
        self.at_bad_loss: Callable[[], None] | None = None  # before the step on such a loss
        # The accumulated parts of the current step, for optimizers that measure the loss.
        self.losses: dict[str, float] = {}
        self.settings, self.device, self.ranks = settings, device, ranks
        # Whether the scaler made a step, so that it must be updated when the run's step ends.
        self.stepped = False
        self.used = False
        self.averages = False  # whether gradients of other processes have to be asked for
        self.complete = True  # false for all but the last of the batches that make a step

    def __call__(self, loss: Tensor, optimizer: str = "model") -> None:
        """Run backward from the loss and, if the batch is complete, take the optimizer's step."""
        if self.mixes:
            with self.outside:
                self._make(loss, optimizer)
        else:
            self._make(loss, optimizer)

    def _make(self, loss: Tensor, optimizer: str) -> None:
        self.used = True
        # On the CPU alone: elsewhere this would wait for the device.
        if self.at_bad_loss and loss.is_cpu and not loss.dim() and not math.isfinite(loss.item()):
            self.at_bad_loss()
        if self.accumulate > 1:
            loss = loss / self.accumulate
        if optimizer not in self.params:
            raise ValueError(f"no optimizer {optimizer!r}; allowed: {', '.join(self.params)}")
        params = self.params[optimizer]
        inputs = params if len(self.params) > 1 else None
        torch.autograd.backward(self.scaler.scale(loss) if self.scales else loss, inputs=inputs)
        if self.observers:
            self._show(loss.item(), optimizer)
        if not self.complete:
            return
        if self.averages:
            self.ranks.average_gradients(params)
        chosen = self.optimizers[optimizer]
        if self.clip_norm is not None:
            self.scaler.unscale_(chosen)
            nn.utils.clip_grad_norm_(params, self.clip_norm)
        if self.before_step is not None:
            self.before_step(optimizer)
        if self.scales:
            self.scaler.step(chosen)
            self.stepped = True
        else:
            chosen.step()
        if self.after_step is not None:
            self.after_step()
        clear_gradients(chosen)
        if self.mixes and len(self.params) > 1:
            # Autocast keeps rounded copies of weights until the task's step ends. The next network
            # would learn from this one as it was before its step.
            torch.clear_autocast_cache()

    def predict(self) -> None:
        """Let optimizers that measure the loss move to the point where they measure it."""
        for optimizer in self.observers.values():
            optimizer.predict()

    def _show(self, loss: float, optimizer: str) -> None:
        """Pass the loss of a whole step, over all processes, to an optimizer that measures it."""
        loss += self.losses.pop(optimizer, 0.0)
        if not self.complete:
            self.losses[optimizer] = loss
        elif optimizer in self.observers:
            (mean,) = self.ranks.means([loss])
            self.observers[optimizer].observe(mean)

    def measure_curvature(self, task: Task, batch: Any, step: int) -> None:
        """Let optimizers that measure curvature do so on this batch, if it is due."""
        for optimizer in self.curvature:
            if step % optimizer.hessian_every == 0:
                with precision(self.settings, self.device):
                    loss, count = task.sampled_loss(batch)
                torch.autograd.backward(loss)
                if self.averages:
                    params = [p for group in optimizer.param_groups for p in group["params"]]
                    self.ranks.average_gradients(params)
                optimizer.update_hessian(count)
                clear_gradients(optimizer)

    def end(self) -> None:
        """Update the scaler after the steps of all optimizers."""
        self.scaler.update()
        self.stepped = False
