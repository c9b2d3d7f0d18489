"""The step of SGDF in native code: ``filter.py`` and the update in one pass over memory.

The C code gets addresses. What torch's own kernels would check on their way (shapes,
dtypes, devices, layouts, overlaps) is checked here, whole columns of tensors at a time: a
network has hundreds of them, and a step takes a few milliseconds.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import contains, is_
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ..filter import FilterScalars, filter_scalars
from . import native
from .state import buffer_dtype

# The numbers that fused.c knows them by; complex tensors are pairs of reals.
_CODES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.bfloat16: 2,
    torch.float16: 3,
    torch.complex64: 0,
    torch.complex128: 1,
}
_STATE_DTYPES = {dtype: buffer_dtype(torch.empty(0, dtype=dtype)) for dtype in _CODES}


@functools.cache
def _library() -> ctypes.CDLL | OSError:
    try:
        library = native.load(Path(__file__).with_name("fused.c"))
    except OSError as error:
        return error
    pointer, count, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.sgdf_enter.argtypes = (pointer, count, pointer, pointer, pointer)
    library.sgdf_enter.restype = count
    library.sgdf_step.argtypes = (pointer, count, pointer, pointer, threads)
    library.sgdf_touch.argtypes = (pointer, count, threads)
    library.sgdf_prefetch.argtypes = (pointer, count)
    return library


def fault() -> str | None:
    """Return why there is no native step here, if there is none; the first call builds it."""
    library = _library()
    return str(library) if isinstance(library, OSError) else None


def _function(name: str) -> Any:
    return getattr(_library(), name)


def is_supported(param: Tensor) -> bool:
    """Return whether the step is made for parameters of this device and dtype."""
    return param.is_cpu and param.dtype in _CODES


class _Traits(NamedTuple):
    """What two columns of tensors must agree in to lie in memory alike."""

    dtypes: list[Any]
    shapes: list[torch.Size]
    layouts: list[Any]
    plain: bool
    """All on the CPU, and none a view whose numbers are to be negated or conjugated first."""


def _traits(tensors: list[Tensor]) -> _Traits:
    return _Traits(
        dtypes=[tensor.dtype for tensor in tensors],
        shapes=list(map(Tensor.size, tensors)),
        layouts=_layouts(tensors),
        plain=all([tensor.is_cpu for tensor in tensors])  # noqa: C419 (twice as fast)
        and not any(map(Tensor.is_neg, tensors))
        and not any(map(Tensor.is_conj, tensors)),
    )


def _layouts(tensors: list[Tensor]) -> list[Any]:
    """Return the strides, or True for any that amount to contiguity."""
    return [tensor.is_contiguous() or tensor.stride() for tensor in tensors]


def _is_dense(tensor: Tensor) -> bool:
    """Return whether the elements fill their memory without gaps or repetitions."""
    # Only then does a new tensor get the same strides.
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _records(tensor: Tensor) -> Iterator[int]:
    """Yield the cache lines in which Python and torch keep book of a tensor."""
    storage = tensor.untyped_storage()
    for address, lines in ((id(tensor), 1), (tensor._cdata, 3), (storage._cdata, 2)):
        yield from range(address, address + 64 * lines, 64)


class Table:
    """Tensors as fused.c sees them, one row each: addresses, size, dtypes.

    ``Table.of`` looks at everything. The next step has other gradients but, as a rule, the
    same parameters and state: ``refill`` then looks only at what can have changed.
    """

    def __init__(self, owned: Sequence[list[Tensor]], grads: _Traits, rows: array[int]) -> None:
        self.params = owned[1]
        self.size = len(self.params)
        self._owned = list(chain(*owned))
        self._grads = grads
        self._rows = rows
        self._spans = array("Q", bytes(32 * self.size))
        self._counts = array("d", bytes(8 * self.size))
        self._records = array("Q", chain.from_iterable(map(_records, self._owned)))

    @classmethod
    def of(
        cls,
        params: list[Tensor],
        grads: list[Tensor],
        buffers: Sequence[list[Tensor]],
        steps: list[Tensor],
    ) -> Table | None:
        """Return the table of these tensors, or None if fused.c must not touch them."""
        own, given = _traits(params), _traits(grads)
        state = own._replace(dtypes=[_STATE_DTYPES.get(dtype) for dtype in own.dtypes])
        if not (
            own.plain
            and None not in state.dtypes
            and all(_traits(buffer) == state for buffer in buffers)
            and given._replace(dtypes=own.dtypes) == own
            and all(map(contains, zip(own.dtypes, state.dtypes, strict=True), given.dtypes))
            and all(step.is_cpu and step.dtype is torch.float32 for step in steps)
            and all(param.is_contiguous() or _is_dense(param) for param in params)
        ):
            return None
        owned = steps, params, *buffers
        addresses = (map(Tensor.data_ptr, column) for column in owned)
        sizes = (param.numel() * (2 if param.is_complex() else 1) for param in params)
        codes = (map(_CODES.__getitem__, traits.dtypes) for traits in (own, given))
        rows = zip(*addresses, repeat(0), sizes, *codes, repeat(0))
        table = cls(owned, given, array("Q", chain.from_iterable(rows)))
        return table if table._enter(grads) else None

    def refill(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        buffers: Sequence[list[Tensor]],
        steps: list[Tensor],
    ) -> bool:
        """Enter the gradients of another step, or return False if more than they is new."""
        owned = list(chain(steps, params, *buffers))
        return (
            len(owned) == len(self._owned)
            and all(map(is_, owned, self._owned))
            and _layouts(params) == self._grads.layouts
            and _traits(grads) == self._grads
            and self._enter(grads)
        )

    def prefetch(self) -> None:
        """Have the CPU fetch what ``refill`` will look at: the last step left none in its caches.

        A mere hint. Should a record have moved, nothing is read in its place.
        """
        _function("sgdf_prefetch")(self._records.buffer_info()[0], len(self._records))

    def _enter(self, grads: list[Tensor]) -> bool:
        """Enter the gradients, unless tensors have moved or share memory."""
        addresses = array("Q", map(Tensor.data_ptr, chain(self._owned, grads)))
        distinct = self._call("sgdf_enter", addresses, self._spans, self._counts)
        self.counts = self._counts[:distinct].tolist()
        return distinct > 0

    def step(self, scalars: list[FilterScalars], options: tuple[float, ...]) -> None:
        """Take the step, with the scalars that belong to each of ``counts``."""
        # Autograd must know of what it does not see. Told now: the call below leaves the
        # caches without anything of Python's.
        increment_version(self.params)
        numbers = array("d", map(float, chain.from_iterable(scalars)))
        self._call("sgdf_step", numbers, array("d", options), torch.get_num_threads())

    def touch(self) -> None:
        """Read and write what a float32 step does, and change nothing.

        This takes the time that no step can undercut.
        """
        self._call("sgdf_touch", torch.get_num_threads())

    def _call(self, function: str, *arguments: array[Any] | int) -> int:
        addresses = (a if isinstance(a, int) else a.buffer_info()[0] for a in arguments)
        result: int = _function(function)(self._rows.buffer_info()[0], self.size, *addresses)
        return result


def aligned(params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Return the gradients, copied where they do not lie in memory as their parameters do."""
    return [
        grad if _traits([grad]) == _traits([param]) else _laid_out_as(param, grad)
        for param, grad in zip(params, grads, strict=True)
    ]


def _laid_out_as(param: Tensor, grad: Tensor) -> Tensor:
    if grad.shape != param.shape or not is_supported(param):
        return grad  # nothing that a copy would mend
    dtype = param.dtype if grad.dtype == param.dtype else buffer_dtype(param)
    return torch.empty_like(param, dtype=dtype).copy_(grad)


def step(
    table: Table,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled_weight_decay: bool,
    maximize: bool,
    **gamma_and_correction: Any,
) -> None:
    """Take one step on the tensors of ``table``."""
    shrink, decay = 1.0, weight_decay
    if decoupled_weight_decay:
        shrink, decay = 1.0 - lr * weight_decay, 0.0
    sign = -1.0 if maximize else 1.0
    table.step(
        [
            filter_scalars(count + 1.0, betas=betas, **gamma_and_correction)
            for count in table.counts
        ],
        (lr, shrink, sign, decay, *betas, *(1.0 - beta for beta in betas), eps),
    )
