"""Lists in chunks: they bound the temporaries of a step, whatever the size of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from . import rounding
from .codings import buffer_dtype
from .part import Part, are_plain

CHUNK_BYTES = 192 * 2**20
"""The most bytes of temporaries on an accelerator, about: few calls, each large enough."""
CPU_CHUNK_BYTES = 8 * 2**20
"""The same on the CPU, where temporaries should stay in the caches."""


class Piece(NamedTuple):
    """A whole tensor, or a part of it: some of its rows, or a part of one row."""

    position: int
    """Of the parameter in its list."""
    start: int = 0
    """Number of the first element in the whole tensor, in row-major order."""
    row: int | None = None
    """The row; None for several, and for vectors."""
    first: int = 0
    last: int = -1
    """The range of rows, or of elements in the row; the last one is -1 for a whole tensor."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor."""
        return self.last < 0

    def of(self, tensor: Tensor) -> Tensor:
        """Return this part of a tensor of the parameter's shape; a view if its rows are dense."""
        if self.is_whole:
            return tensor
        return (tensor if self.row is None else tensor[self.row].reshape(-1))[
            self.first : self.last
        ]

    def of_scales(self, scales: Tensor) -> Tensor:
        """Return the scales of this part, as a view."""
        if self.row is None and scales.dim() > 1:
            return scales[self.first : self.last]
        of_row = scales if self.row is None else scales[self.row]
        return of_row[self.first // rounding.BLOCK : -(-self.last // rounding.BLOCK)]


def chunks(part: Part, bucket: list[int]) -> Iterator[list[Piece]]:
    """Yield the parameters of a bucket, or parts of them, so that their temporaries are bounded."""
    if torch.compiler.is_compiling():  # a compiled step has no temporaries
        yield [Piece(i) for i in bucket]
        return
    most = _chunk_size(part, part.params[bucket[0]])
    chunk: list[Piece] = []
    size = 0
    for i in bucket:
        pieces = _pieces(part, i, most)
        if chunk and (len(pieces) > 1 or size + part.params[i].numel() > most):
            yield chunk
            chunk, size = [], 0
        if len(pieces) > 1:
            yield from ([piece] for piece in pieces)
        else:
            chunk += pieces
            size += part.params[i].numel()
    if chunk:
        yield chunk


def _chunk_size(part: Part, param: Tensor) -> int:
    """Return how many elements have about ``CHUNK_BYTES`` of temporaries."""
    group, wide = part.group, buffer_dtype(param).itemsize
    lists = 3  # two, and the larger list of a cut tensor
    lists += bool(group["maximize"] or group["weight_decay"])
    lists += 2 * (param.dtype.itemsize < wide)  # gradients and parameters
    lists += sum(part.format.coding(buffer).is_random for buffer in part.direction.buffers)
    noise = 48 if part.indices else 0  # integers of 64 bits, and what rounding allocates
    return max(rounding.BLOCK, chunk_bytes(param) // (lists * wide + noise))


def chunk_bytes(param: Tensor) -> int:
    """Return about how many bytes of temporaries a chunk may have on the device of ``param``."""
    return CPU_CHUNK_BYTES if param.is_cpu else CHUNK_BYTES


def _pieces(part: Part, i: int, most: int) -> list[Piece]:
    """Return a parameter in pieces of about ``most`` elements, if its direction allows that."""
    param = part.params[i]
    size = param.numel()
    written = [param, *(column[i] for column in part.columns)]
    if size <= most or not part.direction.elementwise or not are_plain(written):
        return [Piece(i)]
    if param.dim() == 1:
        step = most - most % rounding.BLOCK
        return [
            Piece(i, start, first=start, last=min(start + step, size))
            for start in range(0, size, step)
        ]
    rows = len(param)
    length = size // rows
    if length <= most or not all(_has_dense_rows(tensor, param) for tensor in written):
        step = max(1, most // length)
        return [
            Piece(i, first * length, first=first, last=min(first + step, rows))
            for first in range(0, rows, step)
        ]
    step = most - most % rounding.BLOCK
    return [
        Piece(i, row * length + first, row, first, min(first + step, length))
        for row in range(rows)
        for first in range(0, length, step)
    ]


def _has_dense_rows(tensor: Tensor, param: Tensor) -> bool:
    return tensor.shape != param.shape or tensor[0].is_contiguous()


def stored_tensors(part: Part, piece: Piece) -> list[Tensor]:
    """Return the tensors of a piece's state."""
    keys = part.format.keys(part.direction.buffers)
    tensors = [column[piece.position] for column in part.columns]
    if piece.is_whole:
        return tensors
    return [
        tensor
        if not tensor.dim()  # one number for the whole tensor
        else piece.of_scales(tensor)
        if key.endswith("_scale")
        else piece.of(tensor)
        for key, tensor in zip(keys, tensors, strict=True)
    ]
