"""How the optimizers store the buffers that have the shape of a parameter."""

from __future__ import annotations

import torch
from torch import Tensor

FORMATS = ("full", "bfloat16", "int8", "block")


def check_format(state_format: str, stochastic_rounding: bool) -> None:
    """Refuse unknown formats, and those that are announced but not there yet."""
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
    """Return float32 or, where it is wider, the parameter's dtype (complex stays complex)."""
    return torch.promote_types(param.dtype, torch.float32)


def new_buffer(param: Tensor) -> Tensor:
    """Return zeros in the shape and memory layout of ``param``."""
    return torch.zeros_like(param, dtype=buffer_dtype(param), memory_format=torch.preserve_format)


def buffer_fault(value: object, param: Tensor) -> str | None:
    """Return why a checkpoint's ``value`` is no buffer for ``param``, if it is none."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return f"is not a dense tensor: {value!r}"
    if value.shape != param.shape:
        return f"has shape {tuple(value.shape)}, the parameter {tuple(param.shape)}"
    if value.is_complex() != param.is_complex():
        return f"has dtype {value.dtype}, the parameter {param.dtype}"
    return None


def loaded_buffer(value: Tensor, param: Tensor) -> Tensor:
    """Return a copy of a checkpoint's buffer as ``param`` needs it, memory layout included."""
    return new_buffer(param).copy_(value.detach())
