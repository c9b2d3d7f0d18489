"""The errors of filters in units of the raw gradient's, over training and by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..record import Record
from .errors import Errors, total_errors
from .filters import RawGradient

Steps = Sequence[Mapping[str, Any]]
"""What was measured at each step, as a record keeps it."""


def measured_steps(record: Record) -> Steps:
    """Return what was measured at each step, in order."""
    return [record[name] for name in sorted(record.values, key=int)]


def relative_errors(steps: Steps, tensor: str | None = None) -> dict[str, Errors]:
    """Return the errors of each filter, divided by the mean squared error of the raw gradient.

    Both are means over the steps: steps at which the gradients scatter widely count for more, as
    they do in the training.

    Args:
        steps: at least one.
        tensor: only of this one; by default of all together.
    """
    total = {
        name: total_errors(error for step in steps for error in _errors(step, name, tensor))
        for name in steps[0]["errors"]
    }
    unit = _unit(total[RawGradient.name])
    return {name: Errors(*(part / unit for part in one)) for name, one in total.items()}


def relative_curve(steps: Steps, name: str) -> list[float]:
    """Return the mean squared error of a filter at each step, divided by the raw gradient's."""
    return [
        total_errors(_errors(step, name)).mse / _unit(total_errors(_errors(step, RawGradient.name)))
        for step in steps
    ]


def tensors(steps: Steps) -> list[str]:
    """Return the names of the tensors."""
    return list(steps[0]["squared gradient"])


def _unit(raw: Errors) -> float:
    """Return the error to divide by; NaN if the raw gradient has none, as if a tensor is unused."""
    return raw.mse or math.nan


def _errors(step: Mapping[str, Any], name: str, tensor: str | None = None) -> Iterable[Errors]:
    by_tensor = step["errors"][name]
    chosen = by_tensor if tensor is None else [tensor]
    return (Errors(*by_tensor[one]) for one in chosen)
