"""Looking at gradients while a run trains: between the backward pass and the step.

A probe is not part of a run: the run's key does not contain it, and it must not change the run.
The state of all random generators is restored after it, and a probe that changes a tensor of the
run in place is an error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..catalog.lookup import find
from ..catalog.probes import PROBES
from ..spec.run import ProbeSpec
from ..tasks import Task
from .randomness import capture, restore


@dataclass(frozen=True)
class Moment:
    """A step about to be taken, as a probe sees it.

    Attributes:
        step: the number of the step, from 1.
        epoch: how many epochs are complete.
        optimizer: the name of the optimizer whose step it is.
        task: with its model and data.
        optimizers: all of them, by name.
        batch: the batch that the gradients are of; the last one, if they are of several.
        scale: what the gradients are multiplied by, in float16; else 1.
    """

    step: int
    epoch: int
    optimizer: str
    task: Task
    optimizers: Mapping[str, Optimizer]
    batch: Any = None
    scale: float = 1.0

    def gradients(self) -> dict[str, Tensor]:
        """Return copies of the gradients that the step will use, by the parameter's name."""
        groups = self.optimizers[self.optimizer].param_groups
        own = {param for group in groups for param in group["params"]}
        return {
            name: param.grad.detach() / self.scale
            for name, param in self.task.model.named_parameters()
            if param in own and param.grad is not None
        }


class Probe(Protocol):
    """The object that a ``[[probe]]`` of an experiment names: made once for each run."""

    def __call__(self, moment: Moment, /) -> Mapping[str, float] | None:
        """Return the numbers to keep, if any."""


class GradientNorm:
    """The norm of the whole gradient."""

    def __call__(self, moment: Moment) -> dict[str, float]:
        """Return the norm."""
        norms = [torch.linalg.vector_norm(grad) for grad in moment.gradients().values()]
        return {"norm": float(torch.linalg.vector_norm(torch.stack(norms)))} if norms else {}


class Probes:
    """The probes of one run, and the rows that they have made.

    Args:
        specs: which, how often, and their options.
    """

    def __init__(self, specs: Sequence[ProbeSpec]) -> None:
        self.probes: list[tuple[str, int, Probe]] = []
        self.rows: list[dict[str, Any]] = []
        for spec in specs:
            self.add(find(spec.name, PROBES, "probe")(**spec.options), spec.name, spec.every)

    def add(self, probe: Probe, name: str, every: int = 1) -> None:
        """Add a probe.

        Args:
            probe: the probe.
            name: what its rows and errors call it.
            every: how many steps lie between two of its looks.
        """
        self.probes.append((name, every, probe))

    def look(self, moment: Moment) -> None:
        """Let each probe whose turn it is look at a step."""
        for name, every, probe in self.probes:
            if moment.step % every:
                continue
            with _unchanged(moment, name), torch.no_grad():
                numbers = probe(moment)
            if numbers:
                row = {"probe": name, "step": moment.step, "optimizer": moment.optimizer}
                self.rows.append({**row, **{key: float(v) for key, v in numbers.items()}, **row})


@contextmanager
def _unchanged(moment: Moment, name: str) -> Iterator[None]:
    """Restore random numbers, modes and the task; raise if tensors of the run were changed."""
    task, randomness = moment.task, capture()
    modes = [(module, module.training) for module in task.model.modules()]
    versions = _versions(moment)
    # A probe may call ``task.loss``, which may carry a hidden state on, or log a number.
    attributes, state = dict(vars(task)), copy.deepcopy(task.state())
    try:
        yield
    finally:
        restore(randomness)
        for module, training in modes:
            module.training = training
        vars(task).clear()
        vars(task).update(attributes)
        if state:
            task.load_state(state)
    if _versions(moment) != versions:
        raise RuntimeError(
            f"the probe {name!r} changed parameters, buffers, gradients or optimizer state in "
            "place; a probe must work on copies"
        )


def _versions(moment: Moment) -> list[tuple[int, int]]:
    """Return the identity and the number of changes of every tensor that the run depends on."""
    model = moment.task.model
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [param.grad for param in model.parameters() if param.grad is not None]
    for optimizer in moment.optimizers.values():
        for state in optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return [(id(tensor), tensor._version) for tensor in tensors]
