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
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from operator import is_, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ..direction_table import DIRECTIONS, Group, NativeNumbers
from ..part import Part, State, are_plain
from ..state import FORMATS
from . import build
from .memory import CODES, FORMAT_CODES, aligned, may_be_stepped, spans

# Fields of the struct Tensor in kernels.c, 8 bytes each.
_FIELDS = (
    *("param", "grad", "step"),
    *("exp_avg", "exp_avg_scale", "exp_var", "exp_var_scale", "exp_avg_sq", "exp_avg_sq_scale"),
    *("size", "row", "param_type", "grad_type", "number", "scalars", "sums"),
)


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
    arguments = *table, pointer, count, pointer, pointer, pointer, count, pointer
    # It reads Python objects, so it is called with the GIL held.
    enter = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(("sgdf_enter", library))
    setattr(library, "sgdf_enter", enter)  # noqa: B010 (mypy does not know this attribute)
    library.sgdf_counts.argtypes = (*table, pointer)
    library.sgdf_counts.restype = count
    library.sgdf_sums.argtypes = (*table, pointer)
    library.sgdf_sums.restype = count
    library.sgdf_step.argtypes = (*table, pointer, pointer, threads, pointer)
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


def _address(numbers: array[Any]) -> int:
    return numbers.buffer_info()[0]


def _records(tensor: Tensor) -> Iterator[int]:
    """Yield the addresses of the cache lines that hold the Python and C++ objects of a tensor."""
    storage = tensor.untyped_storage()
    for address, lines in ((id(tensor), 1), (tensor._cdata, 3), (storage._cdata, 2)):
        yield from range(address, address + 64 * lines, 64)


class TensorTable:
    """Tensors as kernels.c sees them, one row per parameter: addresses, sizes, dtypes.

    ``TensorTable.of`` checks everything. The next step usually has new gradients but the same
    parameters and state: ``refill`` then checks only what can have changed.
    """

    def __init__(self, part: Part, grads: list[Tensor], rows: array[int]) -> None:
        self.params = list(part.params)
        self.direction, self.format = part.direction, part.format
        self._shares_variance = part.format.shares_variance
        keys = part.format.keys(part.direction.buffers)
        self._state_of = itemgetter("step", *keys)
        columns = part.steps, *part.columns
        self._owned = [*self.params, *chain.from_iterable(zip(*columns, strict=True))]
        internals = _Internals.find()
        assert internals is not None  # otherwise there is no library
        self._guards = internals.make_guards(
            *self._owned, *grads, dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        self._rows = rows
        self._fields = array("q", map(_FIELDS.index, ("step", *keys)))
        self._objects = array("Q", map(id, chain(self._owned, grads)))
        self._new_grads = memoryview(self._objects)[len(self._owned) :]
        self._spans = array("Q", chain.from_iterable(spans(self._owned)))
        self._grad_spans = array("Q", bytes(16 * len(self.params)))
        self._counts = array("d", bytes(8 * len(self.params)))
        self._records = array("Q", chain.from_iterable(map(_records, self._owned)))
        # Arguments of every native call. The arrays keep their size, so their addresses stay valid.
        self._library: Any = _library()
        self._place = _address(rows), len(self.params)
        self._entering = (
            *(*self._place, _address(self._objects), len(columns), _address(self._fields)),
            *(internals.address_of, _address(self._spans), len(self._spans) // 2),
            _address(self._grad_spans),
        )
        self._formats = tuple(map(self._format_code, ("mean", "variance", "square")))
        self._sums = array("d", bytes(8 * self._number_of_sums()))

    def _number_of_sums(self) -> int:
        """Number the partial sums of squares, and return how many there are."""
        options = array("d", (*repeat(0.0, 10), *self._formats, 0.0))  # only formats count here
        number: int = self._library.sgdf_sums(*self._place, _address(options))
        return number

    def _format_code(self, role: str) -> float:
        """Return the number that kernels.c has for how a buffer is stored."""
        return FORMAT_CODES[getattr(self.format, role)]

    @classmethod
    def of(cls, part: Part, grads: list[Tensor]) -> TensorTable | None:
        """Return the table of these tensors, or None if kernels.c must not touch them.

        Args:
            part: parameters and state.
            grads: the gradients, in the layout of the parameters if possible.
        """
        names, format = part.direction.buffers, part.format
        if not may_be_stepped(
            part.params, grads, part.steps, part.columns, names, format, bool(part.indices)
        ):
            return None
        addresses = {
            key: map(Tensor.data_ptr, column)
            for key, column in zip(format.keys(names), part.columns, strict=True)
        }
        # `_enter` fills these in again; `data_ptr()` is called first because it raises for a
        # tensor without storage, where the C function would crash.
        addresses["grad"] = map(Tensor.data_ptr, grads)
        sizes = [param.numel() * (2 if param.is_complex() else 1) for param in part.params]
        values: dict[str, Iterable[int]] = {
            **addresses,
            "param": map(Tensor.data_ptr, part.params),
            "step": map(Tensor.data_ptr, part.steps),
            "size": sizes,
            "row": (
                size // max(1, len(param)) if param.dim() > 1 else size
                for param, size in zip(part.params, sizes, strict=True)
            ),
            "param_type": (CODES[param.dtype] for param in part.params),
            "grad_type": (CODES[grad.dtype] for grad in grads),
            "number": part.indices or repeat(0),
        }
        rows = zip(*(values.get(field, repeat(0)) for field in _FIELDS), strict=False)
        table = cls(part, grads, array("Q", chain.from_iterable(rows)))
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

    def step(self, group: Group) -> None:
        """Take one step on these tensors, with the options of their group."""
        assert self.direction.native_numbers is not None  # otherwise there is no table
        counts = [count + 1.0 for count in self.counts()]
        numbers: NativeNumbers = self.direction.native_numbers(group, counts, self._shares_variance)
        lr, shrink, decay = float(group["lr"]), 1.0, group["weight_decay"]
        if group["decoupled_weight_decay"]:
            shrink, decay = 1.0 - lr * decay, 0.0
        options = (
            *(self.direction.native_code, lr, shrink, -1.0 if group["maximize"] else 1.0, decay),
            *(*numbers.betas, *numbers.weights, numbers.eps),
            *(*self._formats, bool(group["stochastic_rounding"])),
        )
        # Autograd does not see the native call, so it is notified of the change. Before the call,
        # which evicts Python's objects from the caches.
        increment_version(self.params)
        scalars = array("d", map(float, chain.from_iterable(numbers.scalars)))
        constants = array("d", map(float, options))
        self._library.sgdf_step(
            *(*self._place, _address(scalars), _address(constants)),
            *(torch.get_num_threads(), _address(self._sums)),
        )

    def touch(self) -> None:
        """Read and write the same bytes as a float32 step of SGDF, without changing finite numbers.

        Its time is a lower bound for any step; ``sgdf cost`` measures it.
        """
        is_usual = self.direction is DIRECTIONS["sgdf"] and self.format is FORMATS["full"]
        if not is_usual or any(param.dtype != torch.float32 for param in self.params):
            raise ValueError("touch is for SGDF with full state, and float32 parameters")
        self._library.sgdf_touch(*self._place, torch.get_num_threads())


class _Known(NamedTuple):
    """The tables of a group's last step, and what they depend on."""

    group: Group
    options: tuple[Any, ...]
    tables: list[TensorTable]

    def refill(self, state: State) -> bool:
        """Enter the present gradients, or return False if anything else has changed as well."""
        params = self.group["params"]
        if len(self.tables) == 1:
            return self.tables[0].refill(params, state)
        moving = {id(param) for param in params if param.grad is not None}
        known = set(map(id, chain.from_iterable(table.params for table in self.tables)))
        return moving == known and all(table.refill(table.params, state) for table in self.tables)


class NativeSteps:
    """The native steps of one optimizer: remembers their tensors from one step to the next."""

    def __init__(self, take: Callable[[TensorTable, Group], object] | None = None) -> None:
        """Prepare for steps that call ``take`` with each table and the options of its group.

        The default is ``TensorTable.step``.
        """
        self._take = take or (lambda table, group: table.step(group))
        self._known: dict[int, _Known] = {}

    @property
    def tables(self) -> list[TensorTable]:
        """The tables of the last step; empty if none of it was native."""
        return [table for known in self._known.values() for table in known.tables]

    def repeat(self, groups: list[Group], state: State) -> bool:
        """Take a step on the tensors of the last one, or change nothing and return False.

        Each of the hundreds of tensors is then read only once: after a backward pass none of them
        is in the caches, so every read is slow.
        """
        if not self._known or torch._C._len_torch_dispatch_stack():
            return False
        for table in self.tables:
            table.prefetch()
        due = []
        for group in groups:
            known = self._known.get(id(group))
            if known is not None and known.group is group and known.options == _options(group):
                due.append(known)
            elif any(param.grad is not None for param in group["params"]):
                return False
        if not all(known.refill(state) for known in due):
            return False
        for known in due:
            for table in known.tables:
                self._take(table, known.group)
        return True

    def wants(self, part: Part) -> bool:
        """Return whether the native step is requested, or allowed because no path is."""
        group = part.group
        asked = group["fused"] or (group["fused"] is None and group["foreach"] is None)
        return (
            asked
            and part.direction.native_code is not None
            # Dispatch modes (fake tensors, copies of saved tensors) only see torch's own kernels.
            and not torch._C._len_torch_dispatch_stack()
            and not group["differentiable"]
            and not group["capturable"]
            and are_plain(part.params)
            and not native_fault()
        )

    def step(self, part: Part, idle: Callable[[], list[Tensor]], state: State) -> Part | None:
        """Update these parameters and return None, or change nothing and return them."""
        group = part.group
        known = self._known.get(id(group))
        if known is None or known.group is not group or known.options != _options(group):
            known = self._known[id(group)] = _Known(group, _options(group), [])
        kind = part.direction, part.format
        table = next((t for t in known.tables if (t.direction, t.format) == kind), None)
        copies: list[Tensor] = []  # kept until the native call has returned
        if table is None or not table.refill(part.params, state):
            if table is not None:
                known.tables.remove(table)
            with torch.no_grad():
                copies = aligned(part.params, part.grads)
            table = TensorTable.of(part, copies)
            if table is None:
                return part
            known.tables.append(table)
        self._take(table, group)
        return None


def _options(group: Group) -> tuple[Any, ...]:
    """Return the options that decide which native steps a group takes."""
    names = ("fused", "foreach", "differentiable", "capturable", "state_format")
    return (*(group[name] for name in names), group["stochastic_rounding"], group.get("direction"))
