"""The types of options: flags, numbers, and in checkpoints those of the present options."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..filter import is_number


def is_flag(value: Any) -> bool:
    """Return whether ``value`` is True or False, or None for a flag that is not given."""
    return value is None or (isinstance(value, (Real, np.bool_)) and value in (False, True))


def is_rate(value: Any) -> bool:
    """Return whether ``value`` is a number, or a Tensor with one element."""
    is_single = isinstance(value, Tensor) and value.layout is torch.strided and value.numel() == 1
    return is_number(value.detach().reshape(()) if is_single else value)


def check_like(present: dict[str, Any], loaded: dict[str, Any]) -> None:
    """Raise if an option that was loaded has another type than the present one."""
    for name in present.keys() & loaded.keys() - {"params", "param_names"}:
        if not _is_like(name, present[name], loaded[name]):
            raise ValueError(
                f"Invalid {name}, expected something like {present[name]!r}: {loaded[name]!r}"
            )


def _is_like(name: str, present: Any, value: Any) -> bool:
    if name in ("foreach", "fused") or isinstance(present, bool):  # these two may be None
        return is_flag(value)
    if isinstance(present, (tuple, list)):
        return (
            isinstance(value, (tuple, list))
            and len(value) == len(present)
            and all(_is_like(name, *pair) for pair in zip(present, value, strict=True))
        )
    if is_rate(present):
        return is_rate(value) if name == "lr" else is_number(value)
    return not isinstance(present, str) or isinstance(value, str)
