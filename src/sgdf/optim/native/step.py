"""The elementwise steps in native code: filter, direction and update in one pass over memory.

The C code receives addresses. The checks that torch's own kernels make on every call (shapes,
dtypes, devices, layouts, overlaps) are made here, for whole columns of tensors at a time: a
network has hundreds of tensors, and a step takes a few milliseconds.

This module relies on two private parts of torch, tested with torch 2.13:
``torch._C._dynamo.guards.TensorGuards``, which checks many tensors in one call, and the C
function ``_torchinductor_pyobject_tensor_data_ptr``, which returns the address of a tensor's
memory. If a version of torch lacks either, ``native_fault()`` says so, and the optimizers use
foreach instead; the tests that need the native step are then skipped with that reason, and
``tests/optim/test_native_choice.py`` tests the fallback. If a version keeps the names but
changes an argument or the layout of a tensor object, nothing here can detect it beforehand: the
first step raises, or the process crashes, and the tests in ``tests/optim/test_native_*.py``
fail. Run them before a new version of torch is declared as supported.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat
from operator import contains, is_, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim.optimizer import _foreach_supported_types

from ..state import buffer_dtype
from . import build

State = Mapping[Tensor, Mapping[str, Tensor]]

# The numbers that kernels.c uses for them.
KINDS = {"sgdf": 0, "sign": 1, "adam": 2, "momentum": 3}
"""The kinds of direction that the native step implements."""
_BUFFERS = 3
# Codes of the dtypes in kernels.c; complex tensors are pairs of reals.
_CODES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.bfloat16: 2,
    torch.float16: 3,
    torch.complex64: 0,
    torch.complex128: 1,
}
PLAIN_TYPES = frozenset(_foreach_supported_types)
_STATE_DTYPES = {dtype: buffer_dtype(torch.empty(0, dtype=dtype)) for dtype in _CODES}


class _Internals(NamedTuple):
    """The private parts of torch that the native step uses; see the module's docstring."""

    make_guards: Any
    """Makes an object that checks many tensors in one call: does each still have its type, dtype,
    device, shape and strides, and is it conjugated or negated as before?"""
    address_of: int
    """Address of the C function that returns the memory address of a Python tensor. For anything
    but a tensor with storage it throws a C++ exception, which C code cannot catch: check first."""

    @classmethod
    def find(cls) -> _Internals | None:
        try:
            from torch._C._dynamo import guards

            return cls(guards.TensorGuards, guards._torchinductor_pyobject_tensor_data_ptr)  # type: ignore[attr-defined]  # not in its stubs
        except (ImportError, AttributeError):
            return None


@functools.cache
def _library() -> ctypes.CDLL | OSError:
    if _Internals.find() is None:
        return OSError(f"torch {torch.__version__} lacks the guards or addresses that it needs")
    try:
        library = build.load(Path(__file__).with_name("kernels.c"))
    except OSError as error:
        return error
    pointer, count, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    table = pointer, count
    arguments = *table, pointer, count, pointer, pointer, count, pointer
    # It reads Python objects, so it is called with the GIL held.
    enter = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(("sgdf_enter", library))
    setattr(library, "sgdf_enter", enter)  # noqa: B010 (mypy does not know this attribute)
    library.sgdf_counts.argtypes = (*table, pointer)
    library.sgdf_counts.restype = count
    library.sgdf_step.argtypes = (*table, pointer, pointer, threads)
    library.sgdf_touch.argtypes = (*table, threads)
    library.sgdf_prefetch.argtypes = (pointer, count)
    return library


def native_fault() -> str | None:
    """Return why the native step is not available, or None; the first call builds it."""
    library = _library()
    return str(library) if isinstance(library, OSError) else None


def native_status() -> str:
    """Return "built", the fault, or "not built yet"; unlike ``native_fault`` never build it."""
    if not _library.cache_info().currsize:
        return "not built yet"
    return native_fault() or "built"


def is_supported(param: Tensor) -> bool:
    """Return whether the native step supports parameters of this device and dtype."""
    return param.is_cpu and param.dtype in _CODES


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


def _spans(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Return the sorted first and last addresses of these dense tensors."""
    return sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.numel())


def _lie_apart(spans: list[tuple[int, int]]) -> bool:
    """Return whether no two overlap, and none is at address 0, like torch's lazy zero tensors."""
    return all(start >= end for (_, end), (start, _) in pairwise([(0, 1), *spans]))


def _address(numbers: array[Any]) -> int:
    return numbers.buffer_info()[0]


def _records(tensor: Tensor) -> Iterator[int]:
    """Yield the addresses of the cache lines that hold the Python and C++ objects of a tensor."""
    storage = tensor.untyped_storage()
    for address, lines in ((id(tensor), 1), (tensor._cdata, 3), (storage._cdata, 2)):
        yield from range(address, address + 64 * lines, 64)


class TensorTable:
    """Tensors as kernels.c sees them, one row per parameter: addresses, size, dtypes.

    ``TensorTable.of`` checks everything. The next step usually has new gradients but the same
    parameters and state: ``refill`` then checks only what can have changed.
    """

    def __init__(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        names: Sequence[str],
        columns: Sequence[list[Tensor]],
        rows: array[int],
    ) -> None:
        self.params = list(params)
        self._buffers = len(names) - 1
        self._state_of = itemgetter(*names)
        self._owned = [*params, *chain.from_iterable(zip(*columns, strict=True))]
        internals = _Internals.find()
        assert internals is not None  # otherwise there is no library
        self._guards = internals.make_guards(
            *self._owned, *grads, dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        self._rows = rows
        self._objects = array("Q", map(id, chain(self._owned, grads)))
        self._new_grads = memoryview(self._objects)[len(self._owned) :]
        self._spans = array("Q", chain.from_iterable(_spans(self._owned)))
        self._grad_spans = array("Q", bytes(16 * len(params)))
        self._counts = array("d", bytes(8 * len(params)))
        self._records = array("Q", chain.from_iterable(map(_records, self._owned)))
        # Arguments of every native call. The arrays keep their size, so their addresses stay valid.
        self._library: Any = _library()
        self._place = _address(rows), len(params)
        self._entering = (
            *(*self._place, _address(self._objects), len(names), internals.address_of),
            *(_address(self._spans), len(self._spans) // 2, _address(self._grad_spans)),
        )

    @classmethod
    def of(
        cls, params: list[Tensor], grads: list[Tensor], state: State, names: Sequence[str]
    ) -> TensorTable | None:
        """Return the table of these tensors, or None if kernels.c must not touch them.

        Args:
            params: parameters.
            grads: their gradients.
            state: a dict of tensors for each parameter.
            names: the keys to use in these dicts: of the step count, then of the buffers.
        """
        steps, *buffers = ([state[param][name] for param in params] for name in names)
        columns = params, grads, *buffers
        shapes = [param.shape for param in params]
        own, given, *others = (_Form.of(column) for column in columns)
        wanted = own._replace(dtypes=[_STATE_DTYPES.get(dtype) for dtype in own.dtypes])
        if not (
            None not in wanted.dtypes
            and all(other == wanted for other in others)
            and given._replace(dtypes=own.dtypes) == own
            and all(map(contains, zip(own.dtypes, wanted.dtypes, strict=True), given.dtypes))
            and all([tensor.shape for tensor in column] == shapes for column in columns)
            and all(step.dtype is torch.float32 and step.numel() == 1 for step in steps)
            and all(map(_are_plain, (steps, *columns)))
            and all(param.is_contiguous() or _is_dense(param) for param in params)
            and _lie_apart(_spans(chain(steps, params, *buffers)))
        ):
            return None
        addresses = (map(Tensor.data_ptr, column) for column in (params, steps, *buffers))
        unused = (repeat(0) for _ in range(_BUFFERS - len(buffers)))
        # `_enter` fills these in again; `data_ptr()` is called first because it raises for a
        # tensor without storage, where the C function would crash.
        grad_addresses = map(Tensor.data_ptr, grads)
        sizes = (param.numel() * (2 if param.is_complex() else 1) for param in params)
        codes = (map(_CODES.__getitem__, form.dtypes) for form in (own, given))
        rows = zip(*addresses, *unused, grad_addresses, sizes, *codes, repeat(0))
        table = cls(params, grads, names, (steps, *buffers), array("Q", chain.from_iterable(rows)))
        return table if table._enter(grads) else None

    def refill(self, params: list[Tensor], state: State) -> bool:
        """Enter the present gradients, or return False if anything else has changed as well.

        The table keeps no reference to the gradients: no other thread may release them during
        the step.
        """
        grads = [grad for param in params if (grad := param.grad) is not None]
        if len(grads) < len(params):
            params = [param for param in params if param.grad is not None]
        try:
            # Not `state[param]`, which would create an entry for a parameter that has none.
            kept = map(self._state_of, map(state.get, params, repeat({})))
            owned = [*params, *chain.from_iterable(kept)]
        except KeyError:
            return False
        return (
            len(owned) == len(self._owned)
            and all(map(is_, owned, self._owned))
            # The same objects, but each may have been changed in place.
            and self._guards.check(*owned, *grads)
            and self._enter(grads)
        )

    def prefetch(self) -> None:
        """Ask the CPU to load all objects that ``refill`` will read into its caches.

        After a backward pass none of them is in the caches, and waiting for one tensor after the
        other takes longer. This is only a hint: if an object has moved, its old address is not
        read.
        """
        self._library.sgdf_prefetch(_address(self._records), len(self._records))

    def _enter(self, grads: list[Tensor]) -> bool:
        """Enter the gradients; return False if a tensor has moved or a gradient overlaps one."""
        self._new_grads[:] = array("Q", map(id, grads))
        return bool(self._library.sgdf_enter(*self._entering))

    def counts(self) -> list[float]:
        """Return the distinct step counts of the parameters."""
        distinct = self._library.sgdf_counts(*self._place, _address(self._counts))
        return self._counts[:distinct].tolist()

    def step(self, scalars: Iterable[Sequence[Any]], options: Sequence[float]) -> None:
        """Take the step, with one row of scalars for each of ``counts()``."""
        # Autograd does not see the native call, so it is notified of the change. Before the call,
        # which evicts Python's objects from the caches.
        increment_version(self.params)
        numbers = array("d", map(float, chain.from_iterable(scalars)))
        constants = array("d", options)
        self._library.sgdf_step(
            *self._place, _address(numbers), _address(constants), torch.get_num_threads()
        )

    def touch(self) -> None:
        """Read and write the same bytes as a float32 step of SGDF, without changing finite numbers.

        Its time is a lower bound for any step; ``sgdf cost`` measures it.
        """
        if self._buffers != 2 or any(param.dtype != torch.float32 for param in self.params):
            raise ValueError("touch is for float32 parameters with two buffers")
        self._library.sgdf_touch(*self._place, torch.get_num_threads())


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


def common_options(group: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``take_step`` that come from options of every optimizer."""
    names = ("weight_decay", "decoupled_weight_decay", "maximize")
    return {"lr": float(group["lr"]), **{name: group[name] for name in names}}


def take_step(
    table: TensorTable,
    kind: str,
    scalars: Callable[[float], Sequence[Any]],
    *,
    lr: float,
    betas: tuple[float, float],
    weights: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled_weight_decay: bool,
    maximize: bool,
) -> None:
    """Take one step along directions of a kind on the tensors of ``table``.

    Args:
        table: parameters, gradients, state.
        kind: one of ``KINDS``.
        scalars: function from the number of a step to the scalars that depend on it.
        lr: learning rate.
        betas: weights of the old moments in the new ones.
        weights: weights of this step's gradient in them.
        eps: of the filter, and of Adam's direction.
        weight_decay: strength of the decay.
        decoupled_weight_decay: shrink the parameters instead of adding the decay to the gradient.
        maximize: ascend instead of descend.
    """
    shrink, decay = 1.0, weight_decay
    if decoupled_weight_decay:
        shrink, decay = 1.0 - lr * weight_decay, 0.0
    sign = -1.0 if maximize else 1.0
    table.step(
        [scalars(count + 1.0) for count in table.counts()],
        (KINDS[kind], lr, shrink, sign, decay, *betas, *weights, eps),
    )
