"""How the state of a parameter is stored: a step count, and buffers in one of the formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .codings import (
    BFLOAT16,
    FLOAT8,
    FULL,
    INT8,
    NEAREST,
    SHARED,
    Coding,
    buffer_dtype,
)
from .noise import Noise
from .rounding import blocks_of

SMALLEST_SIZE = 4096
"""Tensors of fewer elements keep the full state: together they are small, and often sensitive."""
SHORTEST_ROW = 64
"""Tensors of shorter rows are not stored in codes: each row has scales of its own."""

_ROLES = {"exp_avg": "mean", "exp_var": "variance", "exp_avg_sq": "square"}


def _role(buffer: str) -> str:
    return _ROLES[buffer.removeprefix("filter_")]


class Format(NamedTuple):
    """How the buffers of a state are stored.

    The methods take the names of the buffers, as in a direction: ``exp_avg``, ``exp_var`` and
    ``exp_avg_sq``, with or without a prefix.
    """

    name: str
    mean: Coding
    variance: Coding
    square: Coding

    @property
    def shares_variance(self) -> bool:
        """Whether a tensor has one variance, which makes the filter another one."""
        return self.variance is SHARED

    def coding(self, buffer: str) -> Coding:
        """Return how a buffer is stored."""
        coding: Coding = getattr(self, _role(buffer))
        return coding

    def keys(self, buffers: Iterable[str]) -> tuple[str, ...]:
        """Return the state keys of the tensors that the buffers consist of."""
        return tuple(
            buffer + suffix for buffer in buffers for suffix in self.coding(buffer).suffixes
        )

    def new(self, buffers: Iterable[str], param: Tensor) -> dict[str, Tensor]:
        """Return the tensors of buffers of zeros, by their keys."""
        return {
            buffer + suffix: tensor
            for buffer in buffers
            for suffix, tensor in zip(
                self.coding(buffer).suffixes, self.coding(buffer).new(param), strict=True
            )
        }

    def read(self, buffers: Sequence[str], stored: Sequence[Tensor]) -> list[Tensor]:
        """Return the numbers of each buffer, from the tensors of its ``keys``."""
        return [coding.read(tensors) for coding, tensors in self._by_coding(buffers, stored)]

    def write(
        self,
        buffers: Sequence[str],
        stored: Sequence[Tensor],
        numbers: Sequence[Tensor],
        noise: Noise,
    ) -> None:
        """Store the numbers of each buffer."""
        rows = zip(buffers, self._by_coding(buffers, stored), numbers, strict=True)
        for buffer, (coding, tensors), values in rows:
            if coding.is_random:
                coding.write(tensors, values, noise.of(_role(buffer)))
            else:
                coding.write(tensors, values, values)

    def _by_coding(
        self, buffers: Sequence[str], stored: Sequence[Tensor]
    ) -> list[tuple[Coding, Sequence[Tensor]]]:
        pairs, start = [], 0
        for buffer in buffers:
            coding = self.coding(buffer)
            end = start + len(coding.suffixes)
            pairs.append((coding, stored[start:end]))
            start = end
        return pairs


FORMATS = {
    format.name: format
    for format in (
        Format("full", FULL, FULL, FULL),
        Format("bfloat16", BFLOAT16, BFLOAT16, BFLOAT16),
        Format("int8", INT8, FLOAT8, FLOAT8),
        Format("block", FULL, SHARED, FULL),
        Format("bfloat16-block", BFLOAT16, SHARED, BFLOAT16),
        Format("int8-block", INT8, SHARED, FLOAT8),
    )
}
FULL_FORMAT = FORMATS["full"]
_CODED = {
    role: {getattr(format, role) for format in FORMATS.values()} - {FULL}
    for role in _ROLES.values()
}
"""The ways to store a buffer that are not in full, by its role."""


def check_format(name: Any) -> None:
    """Raise for unknown formats."""
    if not isinstance(name, str) or name not in FORMATS:
        raise ValueError(f"Invalid state_format: {name!r}, expected one of {tuple(FORMATS)}")


def check_sharding(param: Tensor, name: str, is_rounded: bool = False) -> None:
    """Raise if a parameter is spread over processes and its state or it needs random numbers."""
    format = stored_format(name, param)
    is_random = any(coding.is_random for coding in (format.mean, format.variance, format.square))
    if hasattr(param, "to_local") and (is_random or is_rounded):
        asked = f"state_format={name!r}" if is_random else "stochastic_rounding=True"
        raise RuntimeError(f"{asked} does not support {type(param).__name__} parameters yet")


def stored_format(name: str, param: Tensor) -> Format:
    """Return the format that the state of ``param`` has where ``name`` is asked for."""
    format = FORMATS[name]
    is_small = (
        param.numel() < SMALLEST_SIZE
        or param.dtype not in (torch.float32, torch.bfloat16, torch.float16)
        or (format.mean is INT8 and blocks_of(param.shape).length < SHORTEST_ROW)
    )
    return FULL_FORMAT if is_small else format


class Layout(NamedTuple):
    """What the state of a parameter consists of."""

    count_key: str
    """The key of the step count."""
    buffers: tuple[str, ...]
    format: Format

    @property
    def all_keys(self) -> set[str]:
        """The state keys of any format."""
        keys = (format.keys(self.buffers) for format in FORMATS.values())
        return {self.count_key, *(key for some in keys for key in some)}

    def new(self, param: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """Return a new state of zeros."""
        return {
            self.count_key: _count(0.0, param, group),
            **self.format.new(self.buffers, param),
        }

    def loaded(
        self, entry: dict[str, Any], param: Tensor, group: dict[str, Any]
    ) -> dict[str, Tensor]:
        """Return copies of a checkpoint's values, in this format, whatever theirs is.

        Tensors that are stored alike are copied bit for bit; others are rounded to nearest.
        """
        state = {self.count_key: _count(float(entry[self.count_key]), param, group)}
        for buffer in self.buffers:
            own, theirs = self.format.coding(buffer), _coding_in(entry, buffer, param)
            stored = own.new(param)
            given = [entry[buffer + suffix].detach() for suffix in theirs.suffixes]
            if theirs is own:
                for tensor, value in zip(stored, given, strict=True):
                    tensor.copy_(value)
            else:
                numbers = theirs.read([value.to(param.device) for value in given])
                if numbers.dim() < param.dim():  # a variance of the whole tensor
                    numbers = numbers.expand(param.shape)
                nearest = torch.full_like(numbers, NEAREST, dtype=torch.int32)
                own.write(stored, numbers.to(buffer_dtype(param)), nearest)
            keys = (buffer + suffix for suffix in own.suffixes)
            state.update(zip(keys, stored, strict=True))
        return state

    def check(self, state: dict[str, Tensor], param: Tensor) -> None:
        """Raise if the state of a parameter is not stored in this format."""
        for key in (self.count_key, *self.format.keys(self.buffers)):
            if key not in state:
                raise RuntimeError(
                    f"a parameter's state has no {key!r}: was its group's direction or "
                    "state_format changed?"
                )
        for buffer in self.buffers:
            if _coding_in(state, buffer, param) is not self.format.coding(buffer):
                raise RuntimeError(
                    f"a parameter's {buffer!r} is not stored as {self.format.name!r}: was its "
                    "group's state_format changed?"
                )

    def numbers(
        self, state: dict[str, Tensor], wanted: Iterable[str], param: Tensor
    ) -> tuple[float, list[Tensor]]:
        """Return the step count of a state, and the wanted buffers in the shape of ``param``."""
        count = float(state[self.count_key])
        found = []
        for buffer in wanted:
            coding = self.format.coding(buffer)
            numbers = coding.read([state[buffer + suffix] for suffix in coding.suffixes])
            found.append(numbers.expand(param.shape) if coding is SHARED else numbers)
        return count, found

    def fault(self, entry: dict[str, Any], param: Tensor) -> tuple[str, str] | None:
        """Return a key of a checkpoint's entry and what is wrong with its value, or None."""
        for key in (self.count_key, *self.buffers):
            if key not in entry:
                return key, (
                    "is missing; is it another optimizer's? sgdf.take_over continues from SGD, "
                    "Adam and AdamW; a class from sgdf.filtered loads the checkpoints of its inner "
                    "class"
                )
            if key == self.count_key:
                if fault := count_fault(entry[key]):
                    return key, fault
                continue
            if fault := _dense_fault(entry[key], param):
                return key, fault
            coding = _coding_in(entry, key, param)
            if coding is FULL and (fault := buffer_fault(entry[key], param)):
                return key, fault
            for suffix, wanted in zip(coding.suffixes[1:], coding.new(param)[1:], strict=True):
                if fault := _scale_fault(entry.get(key + suffix), wanted):
                    return key + suffix, fault
        return None


def _coding_in(entry: dict[str, Any], buffer: str, param: Tensor) -> Coding:
    """Return how a buffer is stored in a checkpoint; in full where nothing else fits."""
    fitting = (known for known in _CODED[_role(buffer)] if known.stores(entry[buffer], param))
    return next(fitting, FULL)


def _count(value: float, param: Tensor, group: dict[str, Any]) -> Tensor:
    """Return a step count: on the CPU, or with ``capturable`` on the parameter's device."""
    device = param.device if group.get("capturable") else "cpu"
    return torch.tensor(value, dtype=torch.float32, device=device)


def count_fault(value: object) -> str | None:
    """Return what is wrong with a checkpoint's step count, or None."""
    try:
        # float32, in which it is stored, must be able to hold it.
        valid = 0 <= float(value) <= torch.finfo(torch.float32).max  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        valid = False
    return None if valid else f"is not a count: {value!r}"


def _dense_fault(value: object, param: Tensor) -> str | None:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
        return f"is not a dense tensor: {value!r}"
    if value.is_meta and not param.is_meta:
        return "has no values: it is on the device meta"
    return None


def buffer_fault(value: Tensor, param: Tensor) -> str | None:
    """Return why a checkpoint's ``value`` cannot be a full buffer of ``param``, or None."""
    if value.shape != param.shape:
        return f"has shape {tuple(value.shape)}, the parameter {tuple(param.shape)}"
    is_coded = value.dtype in (torch.int8, torch.uint8)  # as another buffer is
    if is_coded or value.is_complex() != param.is_complex():
        return f"has dtype {value.dtype}, the parameter {param.dtype}"
    return None


def _scale_fault(value: object, wanted: Tensor) -> str | None:
    if value is None:
        return "is missing"
    if fault := _dense_fault(value, wanted):
        return fault
    assert isinstance(value, Tensor)
    if value.shape != wanted.shape:
        return f"has shape {tuple(value.shape)}, expected {tuple(wanted.shape)}"
    return None if value.dtype == wanted.dtype else f"has dtype {value.dtype}, expected float32"
