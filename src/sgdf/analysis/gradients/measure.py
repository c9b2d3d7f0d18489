"""Training a run, with the gradient and the direction taken described every few steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from ...bench.errors import SpecError, suggestion
from ...bench.spec.run import Run
from ...bench.training.probe import Moment
from ...bench.training.trainer import Trainer
from ...optim.sgdf import SGDF
from ...optim.unified_momentum import UnifiedMomentum
from ...present.words import listed
from ..conduct import Progress
from ..replay import replay
from .distribution import Series, describe

ALL = "all parameters"
"""The name that stands for the elements of all tensors together; no tensor's name has a space."""


def steady_scale(optimizer: Optimizer, group: Mapping[str, Any]) -> float | None:
    """Return how many times a steady gradient the direction becomes, without weight decay.

    It is u/(1-β) for momentum: 1 for a running mean, and 10 for classical momentum with β = 0.9.
    Directions that are divided by it can be compared. None if the direction of this optimizer
    does not grow with the gradient, or if nothing is known about it.
    """
    if isinstance(optimizer, UnifiedMomentum):
        weight = 1.0 - group["beta"] if group["u"] is None else group["u"]
        return float(weight / (1.0 - group["beta"]))
    if type(optimizer) is SGD:
        momentum = group["momentum"]
        return float((1.0 - group["dampening"]) / (1.0 - momentum)) if momentum else 1.0
    return 1.0 if isinstance(optimizer, SGDF) else None


def check_tensors(wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuse names that no tensor has.

    Raises:
        SpecError: if there is one.
    """
    for name in wanted:
        if name not in known:
            tensors = listed(known, most=40)
            hint = suggestion(name, known)
            raise SpecError(f"no tensor {name!r}; the model has {tensors}{hint}")


@dataclass(frozen=True)
class _Step:
    """A tensor before a step: its gradient, its values, and how the step will change them."""

    gradient: Tensor
    values: Tensor
    lr: float
    scale: float | None


class Watch:
    """Describes gradients and directions of a run while it trains.

    The direction is what the step really did: the values before minus those after, divided by the
    learning rate, in float64. It contains weight decay, and the rounding of the values.

    Args:
        every: how many steps lie between two descriptions.
        wanted: names of tensors that the model must have.
    """

    def __init__(self, every: int, wanted: Sequence[str] = ()) -> None:
        self.every, self.wanted = every, wanted
        self.tensors: dict[str, dict[str, Any]] = {}
        self.nonfinite: int | None = None
        self._before: dict[str, _Step] = {}

    def before(self, moment: Moment) -> None:
        """Keep gradients and values of the tensors that an optimizer is about to change."""
        params = dict(moment.task.model.named_parameters())
        check_tensors(self.wanted, list(params))
        if moment.step % self.every or self.nonfinite is not None:
            return
        optimizer = moment.optimizers[moment.optimizer]
        groups = {param: group for group in optimizer.param_groups for param in group["params"]}
        for name, gradient in moment.gradients().items():
            param, group = params[name], groups[params[name]]
            self._before[name] = _Step(
                gradient.double(),
                param.detach().double().clone(),
                float(group["lr"]),
                steady_scale(optimizer, group),
            )

    def after(self, trainer: Trainer) -> None:
        """Describe the step that was taken, if it is one of those that are described."""
        steps, self._before = self._before, {}
        if not steps:
            return
        params = dict(trainer.model.named_parameters())
        gradients = {name: step.gradient for name, step in steps.items()}
        directions = {
            name: (step.values - params[name].detach().double()) / step.lr
            for name, step in steps.items()
        }
        if not all(x.isfinite().all() for x in (*gradients.values(), *directions.values())):
            self.nonfinite = trainer.step
            return
        scales = {step.scale for step in steps.values()}
        for name, step in steps.items():
            self._add(trainer.step, name, step.scale, gradients[name], directions[name])
        self._add(
            trainer.step,
            ALL,
            scales.pop() if len(scales) == 1 else None,
            torch.cat([gradient.flatten() for gradient in gradients.values()]),
            torch.cat([direction.flatten() for direction in directions.values()]),
        )

    def _add(
        self, step: int, name: str, scale: float | None, gradient: Tensor, direction: Tensor
    ) -> None:
        if name not in self.tensors:
            tensor = {"shape": list(gradient.shape), "gradient": {}, "direction": {}}
            self.tensors[name] = tensor if scale is None else {**tensor, "scale": scale}
        for kind, values in (("gradient", gradient), ("direction", direction)):
            series: Series = self.tensors[name][kind]
            for key, value in {"step": step, **describe(values)}.items():
                series.setdefault(key, []).append(value)


def measure_run(
    run: Run, every: int, steps: int, progress: Progress, wanted: Sequence[str] = ()
) -> dict[str, Any]:
    """Train a run from its beginning, and return the distributions and the loss of its steps.

    Args:
        run: the run, with device and threads filled in.
        every: how many steps lie between two descriptions.
        steps: how many are taken at most.
        progress: is called with the share of the steps that are done.
        wanted: names of tensors that the model must have.

    Returns:
        ``tensors``: by name its shape, the scale of its directions if there is one, and the
        series of distributions of its gradient and its direction. ``loss``: of every step.
        ``nonfinite``, only of a run that diverged: the step at which it did, or at which gradients
        or directions ceased to be finite. If that was before the first description, ``tensors``
        is empty.

    Raises:
        SpecError: if the run is too short for any description.
    """
    watch = Watch(every, wanted)

    def after(trainer: Trainer) -> None:
        watch.after(trainer)
        progress(trainer.step / min(steps, trainer.steps))

    # The log then has the loss of each step; what is trained does not depend on it.
    logged = replace(run, train=replace(run.train, log_every=1))
    trainer = replay(logged, watch.before, after, steps, every)
    loss = [
        row["train"].get("loss", math.nan)
        for row in trainer.rows
        if row["kind"] == "train" and "train" in row
    ]
    found: dict[str, Any] = {"tensors": watch.tensors, "loss": loss}
    nonfinite = [step for step in (watch.nonfinite, trainer.diverged) if step is not None]
    return {**found, "nonfinite": min(nonfinite)} if nonfinite else found
