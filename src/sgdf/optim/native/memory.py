"""Where tensors lie in memory, and whether native code may read and write them there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import contains
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..codings import BFLOAT16, FLOAT8, FULL, INT8, SHARED, buffer_dtype
from ..part import PLAIN_TYPES
from ..rounding import blocks_of
from ..state import Format

# Codes of the dtypes in kernels.c; complex tensors are pairs of reals.
CODES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.bfloat16: 2,
    torch.float16: 3,
    torch.complex64: 0,
    torch.complex128: 1,
}
FORMAT_CODES = {FULL: 0.0, BFLOAT16: 1.0, INT8: 2.0, FLOAT8: 2.0, SHARED: 3.0}
"""The numbers that kernels.c has for how a buffer is stored; it must not see any other."""
_STATE_DTYPES = {dtype: buffer_dtype(torch.empty(0, dtype=dtype)) for dtype in CODES}


def is_supported(param: Tensor) -> bool:
    """Return whether the native step supports parameters of this device and dtype."""
    return param.is_cpu and param.dtype in CODES


class _Form(NamedTuple):
    """Dtypes and layouts: besides the shapes, what decides how tensors lie in memory."""

    dtypes: list[Any]
    layouts: list[Any]
    """The strides, or True for a contiguous tensor."""

    @classmethod
    def of(cls, tensors: list[Tensor]) -> _Form:
        return cls(
            dtypes=[tensor.dtype for tensor in tensors],
            layouts=[tensor.is_contiguous() or tensor.stride() for tensor in tensors],
        )


def may_be_stepped(
    params: list[Tensor],
    grads: list[Tensor],
    steps: list[Tensor],
    columns: Sequence[list[Tensor]],
    buffers: Sequence[str],
    format: Format,
    numbered: bool,
) -> bool:
    """Return whether kernels.c may step on these tensors.

    Args:
        params: parameters.
        grads: their gradients.
        steps: their step counts.
        columns: the tensors of their state, a list for each key of the format.
        buffers: the names of the buffers.
        format: of the state.
        numbered: whether the elements of parameters are counted in row-major order, for noise or
            for blocks.
    """
    own, given = _Form.of(params), _Form.of(grads)
    wanted = [_STATE_DTYPES.get(dtype) for dtype in own.dtypes]
    return (
        None not in wanted
        and given.layouts == own.layouts
        and all(map(contains, zip(own.dtypes, wanted, strict=True), given.dtypes))
        and [grad.shape for grad in grads] == [param.shape for param in params]
        and all(step.dtype is torch.float32 and step.numel() == 1 for step in steps)
        and all(map(_are_plain, (params, grads, steps, *columns)))
        and all(param.is_contiguous() or (not numbered and _is_dense(param)) for param in params)
        and _state_fits(params, own, wanted, columns, buffers, format)
        and _lie_apart(spans([*steps, *params, *(t for column in columns for t in column)]))
    )


def _state_fits(
    params: list[Tensor],
    own: _Form,
    wanted: list[Any],
    columns: Sequence[list[Tensor]],
    buffers: Sequence[str],
    format: Format,
) -> bool:
    """Return whether every tensor of the state has the dtype, shape and layout of its format."""
    remaining = iter(columns)
    for buffer in buffers:
        coding = format.coding(buffer)
        if coding not in FORMAT_CODES:
            return False
        first, *scales = (next(remaining) for _ in coding.suffixes)
        dtypes = wanted if coding.dtype is None else [coding.dtype] * len(params)
        if [tensor.dtype for tensor in first] != dtypes:
            return False
        if coding is SHARED:
            if any(tensor.numel() != 1 for tensor in first):
                return False
        elif _Form.of(first).layouts != own.layouts or any(
            tensor.shape != param.shape for tensor, param in zip(first, params, strict=True)
        ):
            return False
        for param, scale in ((p, s) for c in scales for p, s in zip(params, c, strict=True)):
            is_float = scale.dtype is torch.float32 and scale.is_contiguous()
            if not is_float or scale.shape != blocks_of(param.shape).scale_shape:
                return False
    return True


def _are_plain(tensors: list[Tensor]) -> bool:
    """Return whether these are CPU tensors whose memory holds the numbers that they show.

    A subclass may store anything in its memory, and a lazy view may still have to be negated or
    conjugated.
    """
    return (
        PLAIN_TYPES.issuperset(map(type, tensors))
        and all(tensor.is_cpu for tensor in tensors)
        and not any(tensor.is_neg() or tensor.is_conj() for tensor in tensors)
    )


def _is_dense(tensor: Tensor) -> bool:
    """Return whether the elements fill their memory without gaps or repetitions."""
    # Only of a dense tensor does `empty_like` keep the strides.
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def spans(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Return the sorted first and last addresses of these dense tensors."""
    return sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.numel())


def _lie_apart(spans: list[tuple[int, int]]) -> bool:
    """Return whether no two overlap, and none is at address 0, like torch's lazy zero tensors."""
    return all(start >= end for (_, end), (start, _) in pairwise([(0, 1), *spans]))


def aligned(params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Return the gradients, copied where their memory layout differs from the parameter's."""
    return [
        grad
        if _Form.of([grad]) == _Form.of([param]) and _are_plain([grad])
        else _laid_out_as(param, grad)
        for param, grad in zip(params, grads, strict=True)
    ]


def _laid_out_as(param: Tensor, grad: Tensor) -> Tensor:
    if grad.shape != param.shape or not is_supported(param) or type(grad) not in PLAIN_TYPES:
        return grad  # a copy would not help
    dtype = param.dtype if grad.dtype == param.dtype else buffer_dtype(param)
    return torch.empty_like(param, dtype=dtype).copy_(grad)
