"""Stochastic rounding of float32 tensors to 16 bits, and to codes of 8 bits with scales.

A number is rounded up or down, with chances that make the mean of the result the number itself.
Rounded to nearest, a running mean whose steps are smaller than the spacing of its format would
never move. ``r`` are the random numbers, integers from 0 to 65535, one for each element.

Codes of 8 bits are relative to a scale for each block of 256 elements. A block is part of a row of
the first dimension, so that shards of whole rows have blocks and scales of their own; the last
block of a row may be shorter.

``native/rounding.h`` does the same, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 256

_NAN_INT8 = -128
_NAN_FLOAT8 = 255
_OFFSET = 2.0**-32  # added to every number, so that 0 has a code
_OFFSET_BITS = 0x2F800000


class Blocks(NamedTuple):
    """How the elements of a tensor are divided into blocks."""

    rows: int
    length: int
    """Elements of a row."""
    per_row: int
    """Blocks of a row."""
    scale_shape: tuple[int, ...]
    """One scale for each block: a vector, or for two dimensions and more a row for each row."""


def blocks_of(shape: Sequence[int]) -> Blocks:
    """Return the blocks of a tensor of this shape."""
    is_vector = len(shape) < 2
    rows = 1 if is_vector else shape[0]
    length = math.prod(shape if is_vector else shape[1:])
    per_row = -(-length // BLOCK)
    return Blocks(rows, length, per_row, (per_row,) if is_vector else (rows, per_row))


def to_bfloat16(x: Tensor, r: Tensor) -> Tensor:
    """Round to bfloat16. Infinity stays: the noise is below its lowest bit that is kept."""
    bits = x.view(torch.int32).masked_fill(x.isnan(), 0x7FC00000)
    return bits.add_(r).bitwise_right_shift_(16).to(torch.int16).view(torch.bfloat16)


def to_float16(x: Tensor, r: Tensor) -> Tensor:
    """Round to float16. Numbers that round to nearest as infinity become infinity."""
    bits = x.view(torch.int32)
    magnitude = x.abs()
    # Below 2^-14 the halves are the multiples of 2^-24; above, their bits are those of the float.
    small = magnitude.clamp(max=2.0**-14).mul_(2.0**24).add_(_fractions(r)).to(torch.int32)
    normal = (bits & 0x7FFFFFFF).sub_(0x38000000).add_(r >> 3).bitwise_right_shift_(13)
    half = torch.where(magnitude < 2.0**-14, small, normal.clamp_(max=0x7BFF))
    half.masked_fill_(magnitude >= 65520.0, 0x7C00).masked_fill_(x.isnan(), 0x7E00)
    half |= (bits >> 16) & -0x8000
    return half.to(torch.int16).view(torch.float16)


def encode_int8(x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes (int8) and scales: multiples of 1/127 of the block's largest absolute value."""
    codes, scales = _new_codes(x, torch.int8)
    for scale, values, noise, code in _parts(scales, x, r, codes):
        numbers = values.nan_to_num(0.0, 0.0, 0.0)
        lost = numbers != values
        # Below 2^-118 the inverse of the scale could be infinite.
        inverse = _set_scale(scale, numbers, smallest=2.0**-118, largest_code=127.0)
        # Plus 128 the sum is positive, so that dropping its fraction rounds down.
        numbers.mul_(inverse).add_(_fractions(noise).add_(128.0)).clamp_(1.0, 255.0).trunc_()
        code.copy_(numbers.sub_(128.0).masked_fill_(lost, _NAN_INT8))
    return codes, scales


def decode_int8(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the float32 numbers of the codes."""
    x = torch.empty_like(codes, dtype=torch.float32)
    for scale, code, values in _parts(scales, codes, x):
        values.copy_(code).mul_(scale).masked_fill_(code == _NAN_INT8, math.nan)
    return x


def encode_float8(x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes (uint8) and scales of numbers that are not negative (if they are: of 0).

    A code is a float with 5 bits of exponent and 3 of mantissa, relative to the block's largest
    number: its relative spacing is the same over nine decades.
    """
    codes, scales = _new_codes(x, torch.uint8)
    for scale, values, noise, code in _parts(scales, x, r, codes):
        numbers = values.nan_to_num(0.0, 0.0, 0.0)
        lost = numbers != values
        inverse = _set_scale(scale, numbers, smallest=2.0**-126, largest_code=0.875)
        bits = numbers.mul_(inverse).add_(_OFFSET).view(torch.int32)
        # Half a unit of the noise centres it.
        bits.sub_(_OFFSET_BITS).add_(noise << 4).add_(8).bitwise_right_shift_(20)
        code.copy_(bits.clamp_(0, 254).masked_fill_(lost, _NAN_FLOAT8))
    return codes, scales


def decode_float8(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the float32 numbers of the codes."""
    x = torch.empty_like(codes, dtype=torch.float32)
    for scale, code, values in _parts(scales, codes, x):
        bits = code.to(torch.int32).bitwise_left_shift_(20).add_(_OFFSET_BITS)
        numbers = bits.view(torch.float32).sub_(_OFFSET).mul_(scale)
        values.copy_(numbers.masked_fill_(code == _NAN_FLOAT8, math.nan))
    return x


def _new_codes(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return tensors for the codes and scales of ``x``, contiguous whatever the layout of ``x``."""
    codes = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    return codes, x.new_empty(blocks_of(x.shape).scale_shape)


def _parts(scales: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield views of ``scales`` and ``tensors``, in the shape (rows, blocks, elements of a block).

    They show the blocks of 256 elements, then the shorter ones at the ends of the rows.
    """
    rows, length, per_row, _ = blocks_of(tensors[0].shape)
    scales = scales.view(rows, per_row, 1)
    matrices = [tensor.reshape(rows, length) for tensor in tensors]
    blocks = length // BLOCK
    end = blocks * BLOCK
    if blocks:
        yield scales[:, :blocks], *(m[:, :end].view(rows, blocks, BLOCK) for m in matrices)
    if end < length:
        yield scales[:, blocks:], *(m[:, end:].unsqueeze(1) for m in matrices)


def _set_scale(scale: Tensor, numbers: Tensor, *, smallest: float, largest_code: float) -> Tensor:
    """Set ``scale`` so that each block's largest number has the largest code; return its inverse.

    A block whose numbers are all below ``smallest`` counts as zero.
    """
    # Without a tensor of absolute values.
    largest = torch.maximum(numbers.amax(-1, keepdim=True), -numbers.amin(-1, keepdim=True))
    largest.masked_fill_(largest < smallest, 0.0).div_(largest_code)
    scale.copy_(largest.clamp_(max=torch.finfo(torch.float32).max))  # else all would be NaN
    return scale.reciprocal().masked_fill_(scale == 0.0, 0.0)


def _fractions(r: Tensor) -> Tensor:
    """Return the random numbers as float32 from 0 to below 1."""
    return r.to(torch.float32).mul_(2.0**-16)
