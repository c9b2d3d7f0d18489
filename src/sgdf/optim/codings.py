"""How one buffer of a parameter's state is stored: in full, in 16 or 8 bits, or as one number.

A buffer is a list of tensors: the numbers or their codes, and for codes of 8 bits their scales.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from . import rounding

NEAREST = 0x8000
"""Half of the noise's range: in place of random numbers it rounds to nearest."""


def buffer_dtype(param: Tensor) -> torch.dtype:
    """Return float32, or the parameter's dtype if that is wider (complex stays complex)."""
    return torch.promote_types(param.dtype, torch.float32)


class Coding(ABC):
    """The storage of a buffer."""

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """What the state keys of its tensors add to the name of the buffer."""
    dtype: ClassVar[torch.dtype | None] = None
    """Of the numbers or codes; None for ``buffer_dtype``."""
    is_random: ClassVar[bool] = True
    """Whether ``write`` rounds."""

    def new(self, param: Tensor) -> list[Tensor]:
        """Return the tensors of a buffer of zeros."""
        dtype = self.dtype or buffer_dtype(param)
        return [torch.zeros_like(param, dtype=dtype, memory_format=torch.preserve_format)]

    @abstractmethod
    def read(self, stored: Sequence[Tensor]) -> Tensor:
        """Return the numbers, in float32 or wider; they may be the stored tensor itself."""

    @abstractmethod
    def write(self, stored: Sequence[Tensor], numbers: Tensor, noise: Tensor) -> None:
        """Store the numbers. ``noise`` has an integer from 0 to 65535 for each of them."""

    def stores(self, value: Tensor, param: Tensor) -> bool:
        """Return whether a checkpoint's ``value`` is the first tensor of a buffer stored so."""
        return value.dtype == self.dtype and value.shape == param.shape


class Full(Coding):
    """In float32, or in the parameter's dtype where that is wider."""

    is_random = False

    def read(self, stored: Sequence[Tensor]) -> Tensor:
        """Return the stored tensor itself: it is updated in place."""
        return stored[0]

    def write(self, stored: Sequence[Tensor], numbers: Tensor, noise: Tensor) -> None:
        """Copy the numbers, if they are others than ``read`` has returned."""
        if numbers is not stored[0]:
            stored[0].copy_(numbers)


class Bfloat16(Coding):
    """In bfloat16."""

    dtype = torch.bfloat16

    def read(self, stored: Sequence[Tensor]) -> Tensor:
        """Return the numbers in float32."""
        return stored[0].float()

    def write(self, stored: Sequence[Tensor], numbers: Tensor, noise: Tensor) -> None:
        """Round the numbers."""
        stored[0].copy_(rounding.to_bfloat16(numbers, noise))


class _Codes(Coding):
    """In codes of 8 bits, with a scale for each block."""

    suffixes = ("", "_scale")

    def new(self, param: Tensor) -> list[Tensor]:
        """Return codes of zero; they are contiguous, as blocks are."""
        codes = torch.zeros_like(param, dtype=self.dtype, memory_format=torch.contiguous_format)
        shape = rounding.blocks_of(param.shape).scale_shape
        return [codes, torch.zeros(shape, dtype=torch.float32, device=param.device)]


class Int8(_Codes):
    """In int8, as multiples of 1/127 of the block's largest number."""

    dtype = torch.int8

    def read(self, stored: Sequence[Tensor]) -> Tensor:
        """Return the numbers in float32."""
        return rounding.decode_int8(*stored)

    def write(self, stored: Sequence[Tensor], numbers: Tensor, noise: Tensor) -> None:
        """Round the numbers."""
        for tensor, new in zip(stored, rounding.encode_int8(numbers, noise), strict=True):
            tensor.copy_(new)


class Float8(_Codes):
    """In floats of 8 bits without sign, relative to the block's largest number."""

    dtype = torch.uint8

    def read(self, stored: Sequence[Tensor]) -> Tensor:
        """Return the numbers in float32."""
        return rounding.decode_float8(*stored)

    def write(self, stored: Sequence[Tensor], numbers: Tensor, noise: Tensor) -> None:
        """Round the numbers."""
        for tensor, new in zip(stored, rounding.encode_float8(numbers, noise), strict=True):
            tensor.copy_(new)


class Shared(Coding):
    """As one number for the whole tensor."""

    is_random = False

    def new(self, param: Tensor) -> list[Tensor]:
        """Return the number 0."""
        return [torch.zeros((), dtype=buffer_dtype(param), device=param.device)]

    def read(self, stored: Sequence[Tensor]) -> Tensor:
        """Return the number itself: it is updated in place."""
        return stored[0]

    def write(self, stored: Sequence[Tensor], numbers: Tensor, noise: Tensor) -> None:
        """Store the mean of the numbers, if they are others than ``read`` has returned."""
        if numbers is not stored[0]:
            stored[0].copy_(numbers.mean())

    def stores(self, value: Tensor, param: Tensor) -> bool:
        """Return whether this is one number for a parameter of several."""
        return value.is_floating_point() and value.dim() == 0 < param.dim()


FULL, BFLOAT16, INT8, FLOAT8, SHARED = Full(), Bfloat16(), Int8(), Float8(), Shared()
