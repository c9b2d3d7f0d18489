"""Averaged weights: of a whole model or of one part, and the model that is evaluated with them."""

from __future__ import annotations

import copy

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ..errors import SpecError
from ..tasks import Task


class AveragedPart:
    """The running average of a part of a model.

    Attributes:
        average: the averaged part.
        evaluated: the model with the average in place of the part. It shares all else with the
            model that is trained.

    Args:
        model: the model that is trained.
        name: the name of the part, as in ``model.get_submodule``; empty for the whole model.
        decay: how much of the average stays at each step.

    Raises:
        SpecError: if the model has no such part.
    """

    def __init__(self, model: nn.Module, name: str, decay: float) -> None:
        self.part = _part(model, name)
        multi_avg_fn = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]  # torch's
        self.average = AveragedModel(self.part, multi_avg_fn=multi_avg_fn, use_buffers=True)
        self.evaluated = _with_part(model, name, self.average.module)

    def update(self) -> None:
        """Take the weights as they are now into the average."""
        self.average.update_parameters(self.part)


def average_of(task: Task, decay: float) -> AveragedPart | None:
    """Return the average of the part that a task names; None without a decay."""
    if not decay:
        return None
    # A task of before may use the name for something else.
    name = task.averaged if isinstance(task.averaged, str) else Task.averaged
    return AveragedPart(task.model, name, decay)


def _part(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        known = ", ".join(part for part, _ in model.named_children()) or "none"
        raise SpecError(
            f"the task's averaged = {name!r}: its model has no such part; the largest are {known}"
        ) from None


def _with_part(model: nn.Module, name: str, part: nn.Module) -> nn.Module:
    """Return a model that shares all with another but one part."""
    if not name:
        return part
    child, _, rest = name.partition(".")
    other = copy.copy(model)
    replaced = _with_part(model.get_submodule(child), rest, part)
    other._modules = {**model._modules, child: replaced}
    return other
