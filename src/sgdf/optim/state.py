"""How the state of a parameter is stored: a step count, and buffers of the parameter's shape."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FORMATS = ("full", "bfloat16", "int8", "block")


def check_format(state_format: str, stochastic_rounding: bool) -> None:
    """Raise for unknown formats, and for those that are planned but not implemented."""
    if state_format not in FORMATS:
        raise ValueError(f"Invalid state_format: {state_format!r}, expected one of {FORMATS}")
    if state_format != "full":
        raise NotImplementedError(
            f"state_format={state_format!r} is not implemented yet; use state_format='full'"
        )
    if stochastic_rounding:
        raise NotImplementedError(
            "stochastic_rounding=True is not implemented yet; use stochastic_rounding=False"
        )


def buffer_dtype(param: Tensor) -> torch.dtype:
    """Return float32, or the parameter's dtype if that is wider (complex stays complex)."""
    return torch.promote_types(param.dtype, torch.float32)


def new_state(keys: tuple[str, ...], param: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """Return a new state of zeros: the step count under ``keys[0]``, buffers under the others."""
    count, *buffers = keys
    return {count: _count(0.0, param, group), **{key: _new_buffer(param) for key in buffers}}


def loaded_state(
    entry: dict[str, Any], keys: tuple[str, ...], param: Tensor, group: dict[str, Any]
) -> dict[str, Tensor]:
    """Return copies of a checkpoint's values, with the device, dtype and layout ``param`` needs."""
    if not keys:
        return {}
    count, *buffers = keys
    return {
        count: _count(float(entry[count]), param, group),
        **{key: _new_buffer(param).copy_(entry[key].detach()) for key in buffers},
    }


def _count(value: float, param: Tensor, group: dict[str, Any]) -> Tensor:
    """Return a step count: on the CPU, or with ``capturable`` on the parameter's device."""
    device = param.device if group.get("capturable") else "cpu"
    return torch.tensor(value, dtype=torch.float32, device=device)


def _new_buffer(param: Tensor) -> Tensor:
    """Return zeros in the shape and memory layout of ``param``."""
    return torch.zeros_like(param, dtype=buffer_dtype(param), memory_format=torch.preserve_format)


def count_fault(value: object) -> str | None:
    """Return what is wrong with a checkpoint's step count, or None."""
    try:
        # float32, in which it is stored, must be able to hold it.
        valid = 0 <= float(value) <= torch.finfo(torch.float32).max  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        valid = False
    return None if valid else f"is not a count: {value!r}"


def buffer_fault(value: object, param: Tensor) -> str | None:
    """Return why a checkpoint's ``value`` cannot be a buffer of ``param``, or None if it can."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
        return f"is not a dense tensor: {value!r}"
    if value.is_meta and not param.is_meta:
        return "has no values: it is on the device meta"
    if value.shape != param.shape:
        return f"has shape {tuple(value.shape)}, the parameter {tuple(param.shape)}"
    if value.is_complex() != param.is_complex():
        return f"has dtype {value.dtype}, the parameter {param.dtype}"
    return None
