"""Build the optimizer, schedule and probes of a run once, and take a step on zeros."""

from __future__ import annotations

import torch
from torch import nn

from ..catalog.lookup import find
from ..catalog.optimizers import MeasuresLoss, optimizer_maker, optimizer_options
from ..catalog.probes import PROBES
from ..catalog.schedules import make_scheduler
from ..errors import SpecError, first_line
from ..store.records import Table
from .run import Named, Schedule


def check_optimizer(name: str, options: Table, given: Table) -> None:
    """Raise if the optimizer cannot be made or take a step.

    Args:
        name: the optimizer.
        options: all of its options.
        given: those that the file gives, one of which is to blame.

    Raises:
        SpecError: names the option without which the optimizer would work.
    """
    try:
        _take_step(name, options)
    except Exception as error:
        expected = isinstance(error, TypeError | ValueError | RuntimeError)
        text = str(error) if expected else f"a first step raised {first_line(error)}"
        raise SpecError(f"{_culprit(name, given)}{text}") from error


def check_schedule(schedule: Schedule, optimizer: Named, length: int) -> None:
    """Raise whatever torch raises if the schedule cannot be made for the optimizer."""
    stepped = _take_step(optimizer.name, optimizer.options)
    make_scheduler(stepped, schedule.name, schedule.options, schedule.warmup, length)


def check_probe(name: str, options: Table) -> None:
    """Raise if the probe cannot be made with these options.

    Raises:
        SpecError: has the message of the probe.
    """
    try:
        find(name, PROBES, "probe")(**options)
    except Exception as error:
        expected = isinstance(error, TypeError | ValueError)
        raise SpecError(str(error) if expected else first_line(error)) from error


def _take_step(name: str, options: Table) -> torch.optim.Optimizer:
    parameter = nn.Parameter(torch.zeros(2, 2))
    optimizer = optimizer_maker(name, options)([parameter])
    parameter.grad = torch.zeros(2, 2)
    if isinstance(optimizer, MeasuresLoss):
        optimizer.predict()
        optimizer.observe(0.0)
    try:
        optimizer.step()
    except TypeError as error:
        if "closure" in str(error):
            raise SpecError("needs a closure, which the bench does not give") from error
        raise
    return optimizer


def _culprit(name: str, given: Table) -> str:
    """Return the option without which the optimizer would work, to begin a message with."""
    for key, value in given.items():
        try:
            rest = {other: given[other] for other in given if other != key}
            _take_step(name, optimizer_options(name, rest))
        except Exception:  # it is not this one, or not this one alone
            continue
        return f"{key} = {value!r}: "
    return ""
